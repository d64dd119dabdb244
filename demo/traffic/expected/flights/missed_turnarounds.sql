WITH turned AS (
    SELECT
        landed.tailnum AS tail_number,
        landed.flight_id AS landed_flight_id,
        landed.arrived_at AS landed_at,
        landed.arr_delay AS arrival_delay_min,
        after.flight_id AS left_flight_id,
        after.departed_at,
        after.dep_delay AS departure_delay_min
    FROM flown AS landed
    JOIN flown AS after ON after.tailnum = landed.tailnum AND after.flight_id <> landed.flight_id
        AND after.departed_at BETWEEN landed.arrived_at AND landed.arrived_at + INTERVAL 3 HOURS
    WHERE landed.arr_delay > 30
    QUALIFY row_number() OVER (PARTITION BY landed.flight_id ORDER BY after.departed_at, after.flight_id) = 1
)
FROM turned
WHERE departure_delay_min > 15

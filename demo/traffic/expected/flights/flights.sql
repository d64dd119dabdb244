SELECT
    flight_id, carrier, flight,
    tailnum AS tail_number,
    origin,
    dest AS destination,
    scheduled_at, departed_at,
    dep_delay AS departure_delay_min,
    arrived_at,
    -- The file gives a diverted flight no landing, and what it says of its delay belongs to none.
    CASE WHEN arrived_at IS NOT NULL THEN arr_delay END AS arrival_delay_min,
    CASE WHEN arrived_at IS NOT NULL THEN air_time END AS air_time_min,
    CASE WHEN arrived_at IS NULL THEN 'never landed' ELSE 'landed' END AS outcome,
    departed_at + INTERVAL 24 HOURS AS expires_at
FROM flown

SELECT
    flight_id, origin, departed_at,
    (
        SELECT count(*) FROM flown AS other
        WHERE other.origin = flown.origin AND other.departed_at <= flown.departed_at
          AND other.arrived_at > flown.departed_at
    ) AS in_the_air,
    (
        SELECT count(*) FROM flown AS other
        WHERE other.origin = flown.origin AND other.departed_at <= flown.departed_at
          AND other.departed_at > flown.departed_at - INTERVAL 60 MINUTES
    ) AS left_last_hour
FROM flown

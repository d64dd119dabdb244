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
    ) AS left_last_hour,
    count(*) OVER today AS left_today,
    (sum(dep_delay) OVER today)::BIGINT AS delay_today_min
FROM flown
WINDOW today AS (
    PARTITION BY origin, (departed_at AT TIME ZONE 'America/New_York')::DATE ORDER BY departed_at
    RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)

WITH hours AS (
    SELECT
        origin,
        date_trunc('hour', departed_at) AS hour,
        count(*) AS flights,
        sum(dep_delay)::DOUBLE / count(*) AS mean_delay_min
    FROM departed
    GROUP BY ALL
)
SELECT
    origin, hour, hours.flights,
    before.flights AS flights_week_before,
    hours.mean_delay_min,
    before.mean_delay_min AS mean_delay_week_before_min,
    hours.mean_delay_min - before.mean_delay_min AS change_min
FROM hours
LEFT JOIN (SELECT * REPLACE (hour + INTERVAL 168 HOURS AS hour) FROM hours) AS before USING (origin, hour)

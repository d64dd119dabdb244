-- Of three windows that hold a departure, the latest starts with its hour.
SELECT
    origin,
    dest AS destination,
    date_trunc('hour', departed_at) - to_hours(earlier) AS starts_at,
    starts_at + INTERVAL 3 HOURS AS closes_at,
    count(*) AS flights,
    count(*) / 3 AS flights_per_hour
FROM departed, (VALUES (0), (1), (2)) AS windows (earlier)
GROUP BY ALL

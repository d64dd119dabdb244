-- Exact, and without sketches: what is approximate is compared within its error.
WITH days AS (
    SELECT *, (departed_at AT TIME ZONE 'America/New_York')::DATE AS day FROM flown
),
routes AS (
    SELECT carrier, day, list(dest ORDER BY flights DESC, dest)[:3] AS top_destinations
    FROM (SELECT carrier, day, dest, count(*) AS flights FROM days GROUP BY ALL)
    GROUP BY ALL
)
SELECT
    carrier, day,
    count(*) AS flights,
    count(DISTINCT tailnum) AS planes,
    quantile_disc(dep_delay, 0.9)::BIGINT AS p90_delay_min,
    any_value(top_destinations) AS top_destinations
FROM days
JOIN routes USING (carrier, day)
GROUP BY ALL

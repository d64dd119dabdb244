SELECT
    origin,
    date_trunc('hour', departed_at) AS hour,
    hour + INTERVAL 1 HOUR AS closes_at,
    count(*) AS flights,
    sum(dep_delay)::DOUBLE / count(*) AS mean_delay_min,
    round(quantile_cont(dep_delay::DOUBLE, 0.9), 1) AS p90_delay_min,
    count(*) FILTER (dep_delay > 15)::DOUBLE / count(*) AS late_share
FROM departed
GROUP BY ALL

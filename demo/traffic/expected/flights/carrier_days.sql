SELECT
    carrier,
    (departed_at AT TIME ZONE 'America/New_York')::DATE AS day,
    count(*) AS flights,
    count(arrived_at) AS landed,
    avg(dep_delay) AS mean_departure_delay_min,
    avg(arr_delay) FILTER (arrived_at IS NOT NULL) AS mean_arrival_delay_min
FROM flown
GROUP BY ALL

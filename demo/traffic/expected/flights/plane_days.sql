WITH ordered AS (
    SELECT
        tailnum AS tail_number, departed_at, dep_delay,
        lag(departed_at) OVER (PARTITION BY tailnum ORDER BY departed_at) AS previous_at
    FROM departed
    WHERE tailnum IS NOT NULL
),
numbered AS (
    SELECT
        *,
        count(*) FILTER (previous_at IS NULL OR departed_at > previous_at + INTERVAL 6 HOURS)
            OVER (PARTITION BY tail_number ORDER BY departed_at) AS nth
    FROM ordered
)
SELECT
    tail_number,
    min(departed_at) AS first_departed_at,
    max(departed_at) AS last_departed_at,
    count(*) AS legs,
    sum(dep_delay)::BIGINT AS delay_min
FROM numbered
GROUP BY tail_number, nth

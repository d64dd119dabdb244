-- Windows of ten seconds begin at every even second: a bid is in five of them.
WITH counted AS (
    SELECT auction, starts_at, count(*) AS num
    FROM (
        SELECT auction, unnest([
            time_bucket(INTERVAL 2 SECONDS, date_time) - n * INTERVAL 2 SECONDS FOR n IN range(5)
        ]) AS starts_at
        FROM bids
    )
    GROUP BY ALL
)
SELECT auction, num, starts_at, starts_at + INTERVAL 10 SECONDS AS ends_at
FROM counted
WHERE num >= (SELECT max(others.num) FROM counted AS others WHERE others.starts_at = counted.starts_at)

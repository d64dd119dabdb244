-- A session begins with a bid that has none of its bidder in the ten seconds before it.
WITH marked AS (
    SELECT bidder, date_time,
        date_time > lag(date_time, 1, '-infinity') OVER of_bidder + INTERVAL 10 SECONDS AS is_first
    FROM bids WINDOW of_bidder AS (PARTITION BY bidder ORDER BY date_time)
),
numbered AS (
    SELECT *, count(*) FILTER (is_first) OVER (PARTITION BY bidder ORDER BY date_time) AS session FROM marked
)
SELECT bidder, min(date_time) AS starts_at, max(date_time) AS last_bid_at, count(*) AS bid_count,
    max(date_time) + INTERVAL 10 SECONDS AS ends_at
FROM numbered
GROUP BY bidder, session

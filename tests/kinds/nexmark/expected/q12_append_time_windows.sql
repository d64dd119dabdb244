SELECT bidder, time_bucket(INTERVAL 10 SECONDS, appended_at) AS starts_at,
    time_bucket(INTERVAL 10 SECONDS, appended_at) + INTERVAL 10 SECONDS AS ends_at, count(*) AS bid_count
FROM bids
GROUP BY ALL

SELECT
    auction,
    date_trunc('day', date_time) AS day,
    date_trunc('day', date_time) + INTERVAL 1 DAY AS ends_at,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    min(price) AS min_price,
    max(price) AS max_price,
    (sum(price) // count(*))::BIGINT AS avg_price,
    sum(price)::BIGINT AS sum_price
FROM bids
GROUP BY auction, date_trunc('day', date_time)

WITH windowed AS (SELECT *, time_bucket(INTERVAL 10 SECONDS, date_time) AS starts_at FROM bids),
highest AS (SELECT starts_at, max(price) AS price FROM windowed GROUP BY starts_at),
first AS (SELECT starts_at, min(date_time) AS date_time FROM windowed JOIN highest USING (starts_at, price) GROUP BY ALL)
SELECT starts_at, starts_at + INTERVAL 10 SECONDS AS ends_at, auction, bidder, price, date_time, extra
FROM windowed JOIN first USING (starts_at, date_time)

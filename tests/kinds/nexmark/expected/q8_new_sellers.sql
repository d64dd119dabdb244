SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECONDS, p.date_time) AS starts_at
FROM persons AS p JOIN auctions AS a ON p.id = a.seller
WHERE time_bucket(INTERVAL 10 SECONDS, p.date_time) = time_bucket(INTERVAL 10 SECONDS, a.date_time)

WITH in_time AS (
    SELECT a.*, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra
    FROM auctions AS a JOIN bids AS b ON a.id = b.auction
    WHERE b.date_time >= a.date_time AND b.date_time <= a.expires
)
FROM in_time
WHERE NOT EXISTS (
    FROM in_time AS other
    WHERE other.id = in_time.id
      AND (other.price > in_time.price OR other.price = in_time.price AND other.bid_date_time < in_time.bid_date_time)
)

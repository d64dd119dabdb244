SELECT auction, bidder, price, channel, url, date_time, extra,
    1 + (
        SELECT count(*) FROM bids AS better
        WHERE better.auction = bids.auction
          AND (better.price > bids.price OR better.price = bids.price AND better.date_time < bids.date_time)
    ) AS rank_number
FROM bids
WHERE rank_number <= 10

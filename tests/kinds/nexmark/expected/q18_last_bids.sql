SELECT auction, bidder, price, channel, url, date_time, extra
FROM bids
WHERE (bidder, auction, date_time) IN (SELECT (bidder, auction, max(date_time)) FROM bids GROUP BY bidder, auction)

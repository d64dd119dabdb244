SELECT auction, bidder, date_time, price FROM bids WHERE auction % 123 = 0

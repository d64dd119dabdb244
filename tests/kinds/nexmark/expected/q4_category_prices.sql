SELECT category, (sum(final) // count(*))::BIGINT AS final
FROM (
    SELECT max(b.price) AS final, a.category
    FROM auctions AS a JOIN bids AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category

-- Spark orders structs field by field, nulls first.
WITH sold AS (
    SELECT product, date_trunc('hour', ordered_at) AS hour, unnest(lines) AS line FROM ordered
)
SELECT
    line.product AS line, product, hour,
    hour + INTERVAL 1 HOUR AS closes_at,
    count(*) AS lines,
    sum(line.price)::DECIMAL(20,2) AS total,
    first({'price': line.price, 'wishes': line.wishes} ORDER BY
        line.price DESC, line.wishes IS NOT NULL DESC, line.wishes.note DESC NULLS LAST, line.wishes.at DESC NULLS LAST
    ) AS greatest
FROM sold
WHERE line.price IS NOT NULL
GROUP BY ALL

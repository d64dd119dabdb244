-- Two bitmaps, whose bits are told by the first and the next four digits of the customer's MD5. DuckDB counts the bits
-- of a byte from the greatest.
WITH told AS (
    SELECT
        product, customer,
        date_trunc('hour', ordered_at) AS hour,
        ('0x' || md5(customer)[1:4])::INTEGER % 32768 AS first,
        ('0x' || md5(customer)[5:8])::INTEGER % 32768 AS second
    FROM ordered
)
SELECT
    product, hour,
    hour + INTERVAL 1 HOUR AS closes_at,
    count(*) AS orders,
    bitstring_agg(first // 8 * 8 + 7 - first % 8, 0, 32767)::BLOB
        || bitstring_agg(second // 8 * 8 + 7 - second % 8, 0, 32767)::BLOB AS customers
FROM told
GROUP BY product, hour

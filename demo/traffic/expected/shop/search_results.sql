WITH met AS (
    SELECT search_id, click_id, product, clicked_at
    FROM searched JOIN clicked USING (search_id)
    WHERE clicked_at BETWEEN searched_at AND searched_at + INTERVAL 10 MINUTES
)
SELECT
    search_id, click_id, terms, product, searched_at, clicked_at, searched_at + INTERVAL 10 MINUTES AS closes_at
FROM searched
LEFT JOIN met USING (search_id)

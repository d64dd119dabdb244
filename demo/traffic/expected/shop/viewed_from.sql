-- A customer's country is that of the row which begins, and stays.
SELECT
    view_id, v.customer, v.page, v.viewed_at::TIMESTAMPTZ AS viewed_at,
    (SELECT any_value(country) FROM changed_customers AS c WHERE c.customer = v.customer AND c.kind = 'insert') AS country,
    arg_max(c.street, (c.moved_at::TIMESTAMPTZ, c.nth)) AS street
FROM (SELECT DISTINCT view_id, customer, page, viewed_at FROM page_views) AS v
LEFT JOIN changed_customers AS c
    ON c.customer = v.customer AND c.street IS NOT NULL AND c.moved_at::TIMESTAMPTZ <= v.viewed_at::TIMESTAMPTZ
GROUP BY ALL

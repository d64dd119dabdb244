SELECT
    order_id, login_id, customer,
    l.country AS login_country, o.country AS order_country, logged_in_at, ordered_at,
    logged_in_at + INTERVAL 5 MINUTES AS closes_at
FROM logged_in AS l
JOIN ordered AS o USING (customer)
WHERE l.country <> o.country AND ordered_at BETWEEN logged_in_at AND logged_in_at + INTERVAL 5 MINUTES

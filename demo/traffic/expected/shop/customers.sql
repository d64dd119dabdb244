SELECT
    customer,
    arg_max(country, nth) FILTER (country IS NOT NULL) AS country,
    arg_max(street, nth) FILTER (street IS NOT NULL) AS street,
    (arg_max(moved_at, nth) FILTER (moved_at IS NOT NULL))::TIMESTAMPTZ AS moved_at,
    (arg_max(last_login, nth) FILTER (last_login IS NOT NULL))::TIMESTAMPTZ AS last_login,
    lower(split_part(arg_max(mail, nth) FILTER (mail IS NOT NULL), '@', 2)) AS mail_domain
FROM changed_customers
GROUP BY customer

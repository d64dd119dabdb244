SELECT
    payment_id, order_id, customer, cents, ordered_at,
    tried_at AS paid_at,
    ordered_at + INTERVAL 1 HOUR AS closes_at
FROM ordered
JOIN tried USING (order_id)
WHERE outcome = 'accepted' AND tried_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR

WITH accepted AS (
    FROM tried WHERE outcome = 'accepted'
),
met AS (
    SELECT order_id, payment_id, cents, ordered_at, tried_at
    FROM ordered JOIN accepted USING (order_id)
    WHERE tried_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR
),
together AS (
    SELECT order_id, payment_id, 'paid' AS outcome, cents, ordered_at AS happened_at, tried_at AS paid_at FROM met
    UNION ALL
    SELECT order_id, NULL, 'not paid', cents, ordered_at, NULL FROM ordered ANTI JOIN met USING (order_id)
    UNION ALL
    SELECT order_id, payment_id, 'no order', NULL, tried_at, tried_at FROM accepted ANTI JOIN met USING (payment_id)
)
SELECT *, happened_at + INTERVAL 1 HOUR AS closes_at
FROM together

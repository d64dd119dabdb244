-- The attempts of a card fall into groups, each ended by one that was accepted.
WITH grouped AS (
    SELECT *, count(*) FILTER (outcome = 'accepted') OVER (
        PARTITION BY card ORDER BY tried_at, payment_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS nth_group
    FROM tried
),
declined AS (
    FROM grouped
    WHERE outcome = 'declined'
    QUALIFY row_number() OVER (PARTITION BY card, nth_group ORDER BY tried_at DESC, payment_id DESC) <= 3
)
SELECT
    card,
    a.payment_id,
    min(d.tried_at) AS first_tried_at,
    a.tried_at AS paid_at,
    list(d.payment_id ORDER BY d.tried_at, d.payment_id) AS declined_ids
FROM grouped AS a
JOIN declined AS d USING (card, nth_group)
WHERE a.outcome = 'accepted'
GROUP BY card, a.payment_id, a.tried_at
HAVING count(*) = 3 AND min(d.tried_at) >= a.tried_at - INTERVAL 10 MINUTES

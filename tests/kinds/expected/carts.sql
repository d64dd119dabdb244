-- The sums of a product within its cart, never below nothing: what was taken out before it was put in is not there.
-- Lindley: the sum less the least of its earlier values that is below nothing.
WITH ordered_since AS (
    SELECT *, coalesce(bool_or(kind = 'ordered') OVER before, false) AS is_ordered
    FROM cart_changes
    WINDOW before AS (PARTITION BY cart_id ORDER BY version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
changes AS (
    SELECT cart_id, version, product,
        CASE WHEN is_ordered THEN 0 WHEN kind = 'added' THEN quantity ELSE -quantity END AS change
    FROM ordered_since WHERE kind <> 'ordered'
),
states AS (
    SELECT c.cart_id, c.version, p.product, coalesce(d.change, 0) AS change
    FROM cart_changes AS c
    JOIN (SELECT DISTINCT cart_id, product FROM changes) AS p USING (cart_id)
    LEFT JOIN changes AS d ON d.cart_id = c.cart_id AND d.version = c.version AND d.product = p.product
),
sums AS (
    SELECT *, sum(change) OVER (PARTITION BY cart_id, product ORDER BY version) AS total FROM states
),
quantities AS (
    SELECT *, (total - least(0, min(total) OVER (PARTITION BY cart_id, product ORDER BY version)))::INTEGER AS quantity
    FROM sums
),
contents AS (
    SELECT cart_id, version,
        coalesce(
            list({'product': product, 'quantity': quantity} ORDER BY product) FILTER (quantity > 0), []
        ) AS lines
    FROM quantities GROUP BY ALL
)
SELECT
    cart_id, version,
    CASE WHEN is_ordered OR kind = 'ordered' THEN 'ordered' ELSE 'open' END AS state,
    coalesce(lines, []) AS lines,
    (version - row_number() OVER following)::INTEGER AS missing,
    happened_at AS valid_from,
    lead(happened_at) OVER following AS valid_to
FROM ordered_since
LEFT JOIN contents USING (cart_id, version)
WINDOW following AS (PARTITION BY cart_id ORDER BY version)

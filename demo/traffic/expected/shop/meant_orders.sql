FROM ordered AS o
WHERE NOT EXISTS (
    FROM ordered AS before
    WHERE before.customer = o.customer AND before.product = o.product
      AND (before.ordered_at, before.order_id) < (o.ordered_at, o.order_id)
      AND before.ordered_at >= o.ordered_at - INTERVAL 5 MINUTES
)

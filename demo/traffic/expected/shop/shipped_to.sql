-- A transaction that moves the customer and makes the shipment has one number: the new street counts.
SELECT shipment_id, order_id, s.customer, arg_max(c.street, c.nth) AS street
FROM changed_shipments AS s
LEFT JOIN changed_customers AS c ON c.customer = s.customer AND c.street IS NOT NULL AND c.nth <= s.nth
WHERE s.kind = 'insert'
GROUP BY ALL

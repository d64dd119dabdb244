SELECT
    shipment_id,
    arg_max(order_id, nth) FILTER (order_id IS NOT NULL) AS order_id,
    arg_max(customer, nth) FILTER (customer IS NOT NULL) AS customer,
    arg_max(state, nth) FILTER (state IS NOT NULL) AS state
FROM changed_shipments
GROUP BY shipment_id
HAVING arg_max(kind, nth) <> 'delete'

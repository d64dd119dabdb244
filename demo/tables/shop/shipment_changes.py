"""Changes of the shipments in the shop's database.

shipment_id: id of the shipment
order_id: the order that is sent
customer: to whom it is sent
state: packed, sent, delivered or cancelled
"""

from twofold import changes_of

TOPIC = changes_of(
    "public.shipments",
    columns={"shipment_id": "string", "order_id": "string", "customer": "string", "state": "string"},
    primary_key=["shipment_id"],
)

"""Changes of the shipments in the shop's database."""

from tables import changes_of

TOPIC = changes_of(
    "public.shipments",
    columns={"shipment_id": "string", "order_id": "string", "customer": "string", "state": "string"},
    primary_key=["shipment_id"],
)

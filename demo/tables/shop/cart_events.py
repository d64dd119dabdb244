"""The events of carts, into which their service turned the commands that it accepted.

cart_id: id of the cart
version: the event's number within its cart, from 1
kind: added, removed or ordered
product: what was added or removed; null for an order
quantity: pieces that were added or removed; null for an order
happened_at: when the service accepted the command
"""

from twofold import Topic, between, one_of

TOPIC = Topic(
    schema={
        "cart_id": "string",
        "version": "int",
        "kind": "string",
        "product": "string?",
        "quantity": "int?",
        "happened_at": "timestamp",
    },
    event_time="happened_at",
    message_key="cart_id",
    dedup_keys=["cart_id", "version"],
    checks=[one_of("kind", ["added", "removed", "ordered"]), between("version", 1, None), between("quantity", 1, None)],
)

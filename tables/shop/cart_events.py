"""The events of carts, into which their service turned the commands that it accepted."""

from tables import Topic, between, one_of

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

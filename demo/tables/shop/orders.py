"""Orders as the shop takes them.

order_id: id of the order
customer: who ordered
product: what was ordered
cents: price, euro cents
country: to which it is sent, ISO code
ordered_at: when the shop took the order
lines: products with their prices, in euros, and wishes
labels: free labels of the order, with a number each
"""

from twofold import Topic, between, field

TOPIC = Topic(
    schema={
        "order_id": "string",
        "customer": field("buyer.customer", "string"),
        "product": "string",
        "cents": "int",
        "country": "string",
        "ordered_at": "timestamp",
        "lines": "array<struct<product: string, price: decimal(10,2)?, "
        "wishes: struct<note: string?, at: timestamp?>?>>?",
        "labels": "map<string,long?>?",
    },
    event_time="ordered_at",
    message_key="order_id",
    dedup_keys=["order_id"],
    checks=[between("cents", 1, 10_000_000)],
)

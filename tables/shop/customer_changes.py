"""Changes of the customers in the shop's database."""

from tables import changes_of

TOPIC = changes_of(
    "public.customers",
    columns={
        "customer": "string",
        "country": "string",
        "street": "string",
        "moved_at": "timestamp",
        "last_login": "timestamp",
    },
    primary_key=["customer"],
)

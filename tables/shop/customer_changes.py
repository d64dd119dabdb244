"""Changes of the customers in the shop's database.

customer: id of the customer
country: of residence, ISO code
street: of residence, with the number
moved_at: since when the customer lives there
last_login: when the customer last logged in
"""

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

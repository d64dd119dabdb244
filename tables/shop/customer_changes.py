"""Changes of the customers in the shop's database; the mail address is encrypted before it is here."""

from tables import changes_of, domain_of, personal

TOPIC = changes_of(
    "public.customers",
    columns={
        "customer": "string",
        "country": "string",
        "street": "string",
        "moved_at": "timestamp",
        "last_login": "timestamp",
        "mail": personal("customer"),
        "mail_domain": domain_of("mail"),
    },
    primary_key=["customer"],
)

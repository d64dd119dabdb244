"""Changes of the customers in the shop's database; the mail address is encrypted before it is here.

customer: id of the customer
country: of residence, ISO code
street: of residence, with the number
mail: address for messages, encrypted
mail_domain: the part of the address after the @
moved_at: since when the customer lives there
last_login: when the customer last logged in
"""

from twofold import changes_of, domain_of, personal

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

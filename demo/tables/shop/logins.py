"""Logins of customers, with the country of their address on the net.

login_id: id of the login
customer: who logged in
country: of the address on the net, ISO code
logged_in_at: when
"""

from twofold import Topic

TOPIC = Topic(
    schema={"login_id": "string", "customer": "string", "country": "string", "logged_in_at": "timestamp"},
    event_time="logged_in_at",
    message_key="customer",
    dedup_keys=["login_id"],
)

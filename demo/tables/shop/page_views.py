"""Pages that customers look at.

view_id: id of the view
customer: who looked
page: path of the page
viewed_at: when
"""

from twofold import Topic

TOPIC = Topic(
    schema={"view_id": "string", "customer": "string", "page": "string", "viewed_at": "timestamp"},
    event_time="viewed_at",
    message_key="customer",
    dedup_keys=["view_id"],
)

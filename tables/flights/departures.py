"""Departures and cancellations as the airlines report them."""

from tables import Topic, between, matches, one_of

TOPIC = Topic(
    schema={
        "flight_id": "string",  # carrier, number and scheduled time in UTC: UA1545/2013-01-01T10:15Z
        "kind": "string",
        "carrier": "string",
        "flight": "int",
        "tail_number": "string?",
        "origin": "string",
        "destination": "string",
        "scheduled_at": "timestamp",
        "occurred_at": "timestamp",  # when it left; of a cancellation, when it should have left
        "delay_min": "int?",
        "reported_at": "timestamp",
    },
    event_time="occurred_at",
    report_time="reported_at",
    message_key="flight_id",
    dedup_keys=["flight_id", "kind"],
    checks=[
        one_of("kind", ["departed", "cancelled"]),
        matches("carrier", r"[A-Z0-9]{2}"),
        matches("origin", r"[A-Z]{3}"),
        between("occurred_at", "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"),
        between("delay_min", -240, 2_880),
    ],
    segment_bytes=1 << 20,  # a month is a few megabytes: small segments reach the archive at once
)

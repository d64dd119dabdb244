"""Departures and cancellations as the airlines report them.

flight_id: carrier, number and scheduled time in UTC: UA1545/2013-01-01T10:15Z
kind: departed or cancelled
carrier: airline, IATA code
flight: number of the flight, which the carrier uses again each day
tail_number: registration of the plane; null if it is not known
origin: airport of departure, IATA code
destination: airport of arrival, IATA code
scheduled_at: when it was to leave
occurred_at: when it left; of a cancellation, when it should have left
delay_min: delay of the departure against the schedule, minutes; negative is early
reported_at: when the airline reported it
"""

from twofold import Topic, between, matches, one_of

TOPIC = Topic(
    schema={
        "flight_id": "string",
        "kind": "string",
        "carrier": "string",
        "flight": "int",
        "tail_number": "string?",
        "origin": "string",
        "destination": "string",
        "scheduled_at": "timestamp",
        "occurred_at": "timestamp",
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

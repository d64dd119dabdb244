"""Landings as the airlines report them.

flight_id: carrier, number and scheduled time in UTC, as departures have it
carrier: airline, IATA code
destination: airport of arrival, IATA code
arrived_at: when the plane landed
delay_min: delay against the schedule, minutes; negative is early
air_time_min: time in the air, minutes
reported_at: when the airline reported the landing
"""

from twofold import Topic, between, matches

TOPIC = Topic(
    schema={
        "flight_id": "string",
        "carrier": "string",
        "destination": "string",
        "arrived_at": "timestamp",
        "delay_min": "int?",
        "air_time_min": "int?",
        "reported_at": "timestamp",
    },
    event_time="arrived_at",
    report_time="reported_at",
    message_key="flight_id",
    dedup_keys=["flight_id"],
    checks=[
        matches("destination", r"[A-Z]{3}"),
        between("arrived_at", "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"),
        between("delay_min", -240, 2_880),
        between("air_time_min", 1, 1_440),
    ],
    segment_bytes=1 << 20,  # a month is a few megabytes: small segments reach the archive at once
)

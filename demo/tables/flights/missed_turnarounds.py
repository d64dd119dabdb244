"""Planes that landed late and then left New York late: delays that were handed on."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import timedelta

from twofold import RECORD, DataFrame, Event, Match, between, expression, find_matches, table, unique

WITHIN = timedelta(hours=3)
LANDED_LATE_MIN, LEFT_LATE_MIN = 30, 15


@table(
    primary_key=["landed_flight_id"],
    event_time="departed_at",
    depends_within="27 hours",  # a flight lands within 24 hours, and its plane leaves within three
    lineage_columns=["landed_record", "left_record"],
    checks=[
        unique("landed_flight_id"),
        between("arrival_delay_min", 31, None),
        between("departure_delay_min", 16, None),
        expression("departed_at >= landed_at"),
    ],
)
def missed_turnarounds(flights: DataFrame) -> DataFrame:
    """One row per flight that landed late, whose plane left late within three hours.

    Both are named by their flight, and by the record of the log that reported the landing, or the departure.

    landed_flight_id: the flight that landed late
    landed_at: when it landed
    arrival_delay_min: delay of that landing, minutes
    left_flight_id: the next flight of its plane, which left late
    departed_at: when that flight left
    departure_delay_min: delay of that departure, minutes
    landed_record: the log record of the landing
    left_record: the log record of the departure
    """
    return find_matches(
        flights.where("tail_number IS NOT NULL").select(
            "tail_number",
            "flight_id",
            "departed_at",
            "departure_delay_min",
            "departed_record",
            "arrived_at",
            "arrival_delay_min",
            "arrived_record",
        ),
        key=["tail_number"],
        order=["departed_at", "flight_id"],
        find=late_after_late,
        returns="tail_number string, landed_flight_id string, landed_at timestamp, arrival_delay_min int, "
        "left_flight_id string, departed_at timestamp, departure_delay_min int, "
        f"landed_record {RECORD}, left_record {RECORD}",
    )


def late_after_late(flights: Sequence[Event]) -> Iterator[Match]:
    """Landings more than 30 minutes late, with the plane's next departure where it is more than 15 minutes late.

    Args:
        flights: of one plane, in the order of their departures; the next is the first that left when this one had
            landed, and counts within three hours.
    """
    departures = [flight["departed_at"] for flight in flights]
    for landed in flights:
        if landed["arrived_at"] is None or (landed["arrival_delay_min"] or 0) <= LANDED_LATE_MIN:
            continue
        after = flights[bisect_left(departures, landed["arrived_at"]) :]
        left = next((flight for flight in after if flight is not landed), None)
        if left is None or left["departed_at"] > landed["arrived_at"] + WITHIN:
            continue
        if (left["departure_delay_min"] or 0) > LEFT_LATE_MIN:
            yield {
                "tail_number": landed["tail_number"],
                "landed_flight_id": landed["flight_id"],
                "landed_at": landed["arrived_at"],
                "arrival_delay_min": landed["arrival_delay_min"],
                "left_flight_id": left["flight_id"],
                "departed_at": left["departed_at"],
                "departure_delay_min": left["departure_delay_min"],
                "landed_record": landed["arrived_record"],
                "left_record": left["departed_record"],
            }

"""Cards that paid after three attempts that were declined: the pattern "n times A, then B"."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from twofold import RECORD, DataFrame, Event, Match, expression, find_matches, table, times_then, unique

WITHIN = timedelta(minutes=10)
ATTEMPTS = 3


@table(
    primary_key=["payment_id"],
    event_time="paid_at",
    lineage_columns=["records"],
    depends_within="10 minutes",
    checks=[unique("payment_id"), expression("size(records) = 4")],
)
def guessed_cards(payments: DataFrame) -> DataFrame:
    """One row per payment of a card after three declined ones within ten minutes, with the records of all four.

    card: token of the card
    payment_id: the accepted payment
    first_tried_at: time of the first of the three declined ones
    paid_at: time of the accepted one
    declined_ids: the three declined payments
    records: the log records of the three and of the accepted one
    """
    return find_matches(
        payments,
        key=["card"],
        order=["tried_at", "payment_id"],
        find=declined_then_accepted,
        returns="card string, payment_id string, first_tried_at timestamp, paid_at timestamp, "
        f"declined_ids array<string>, records array<{RECORD}>",
    )


def declined_then_accepted(attempts: Sequence[Event]) -> Iterator[Match]:
    """Three attempts that were declined, then one that was not, of one card."""
    found = times_then(
        attempts,
        ATTEMPTS,
        lambda attempt: attempt["outcome"] == "declined",
        lambda attempt: attempt["outcome"] == "accepted",
        at="tried_at",
        within=WITHIN,
    )
    for declined, accepted in found:
        yield {
            "card": accepted["card"],
            "payment_id": accepted["payment_id"],
            "first_tried_at": declined[0]["tried_at"],
            "paid_at": accepted["tried_at"],
            "declined_ids": [attempt["payment_id"] for attempt in declined],
            "records": [attempt["record"] for attempt in (*declined, accepted)],
        }

"""A run that asks for what the log does not have yet waits for it, holding nothing, or fails with the frontier."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from twofold.dags.operators.params import awaited_arguments

TOPIC = "flights.departures"
BEYOND = "import json, sys; print(json.dumps({'error': 'the archive reaches up to 40', 'hint': 'wait'})); sys.exit(75)"
THERE = f"import json; print(json.dumps({json.dumps({'topic': TOPIC, 'ranges': {'0': [5, 9]}})}))"
GONE = "import json, sys; print(json.dumps({'error': 'no such offsets', 'hint': None})); sys.exit(2)"


class Instance:
    """A task's instance that began to wait so many minutes ago; None: now."""

    def __init__(self, ago_min: int | None) -> None:
        self.since = None if ago_min is None else datetime.now(UTC) - timedelta(minutes=ago_min)

    def get_first_reschedule_date(self, _: Any) -> datetime | None:
        return self.since


def look(ago_min: int | None = None, **params: object) -> object:
    """What one look ends with."""
    from airflow.sdk import DAG

    from twofold.dags.operators.range_sensor import RangeSensor

    with DAG("flights.replay", schedule=None):
        sensor: Any = RangeSensor(
            task_id="range", arguments=lambda context: awaited_arguments(context["params"], [TOPIC])
        )
    context = {"params": {"topic": TOPIC, **params}, "ti": Instance(ago_min)}
    return type(sensor).execute.__wrapped__(sensor, context)


def test_a_range_that_is_there_is_not_waited_for(stand_in: Callable[[str], None]) -> None:
    stand_in(THERE)
    assert look(to_offsets="9") is None


def test_without_a_range_nothing_is_asked(stand_in: Callable[[str], None]) -> None:
    stand_in(BEYOND)
    assert look() is None


def test_a_range_that_is_not_there_yet_is_looked_for_again(stand_in: Callable[[str], None]) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    stand_in(BEYOND)
    for ago_min in (None, 4):
        with pytest.raises(AirflowRescheduleException) as again:
            look(ago_min, to_offsets="90", wait_min=5)
        assert 20 < (again.value.reschedule_date - datetime.now(UTC)).total_seconds() <= 30


@pytest.mark.parametrize(("ago_min", "wait_min"), [(None, 0), (6, 5)])
def test_when_the_wait_is_over_the_frontier_is_named(
    stand_in: Callable[[str], None], ago_min: int | None, wait_min: int
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    stand_in(BEYOND)
    with pytest.raises(AirflowFailException, match=r"cannot be read whole\. the archive reaches up to 40"):
        look(ago_min, to_offsets="90", wait_min=wait_min)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"to_offsets": "9"}, "no such offsets"), ({"to_offsets": "soon"}, "expected offsets"), ({"wait_min": -1}, "-1")],
)
def test_what_cannot_be_meant_is_not_waited_for(
    stand_in: Callable[[str], None], params: dict[str, object], message: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    stand_in(GONE)
    with pytest.raises(AirflowFailException, match=message):
        look(**{"wait_min": 5, **params})

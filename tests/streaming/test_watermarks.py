"""Which input keeps a table from closing its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.tables.declared import READINGS, a_table, bound_as
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.status.fold import Facts
from twofold.streaming.watermarks import by_input, held_back_by
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import INGEST, IngestedOffsets
from twofold.tables.refresh.events.record_decoder import events_schema, heartbeat

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("marks", "name"),
    [
        ({}, None),
        ({"a": 7}, "a"),
        ({"a": 7, "b": 6}, "b"),
        ({"a": 7, "b": 7}, "a"),
        ({"a": -7, "b": None}, "b"),
        ({"a": 0, "b": -1}, "b"),
    ],
)
def test_the_least_holds_the_watermark_back(marks: Mapping[str, int | None], name: str | None) -> None:
    assert held_back_by(marks) == name


def commit(lake: Lake, topic: Topic, newest_ms: int) -> None:
    """A micro-batch with one event of that time."""
    lake.ensure(topic.full_name, events_schema(topic), statistics=["read_at"])
    after = IngestedOffsets().after({0: (0, 1)}, newest_ms)
    Writer(lake, topic.full_name).append(
        heartbeat(topic, newest_ms, 0), CommitTag(app=INGEST, version=1, info=after.info)
    )


def test_an_input_lets_rows_close_up_to_its_newest_event_less_the_delay(lake: Lake) -> None:
    def rooms(doors: Any, lamps: Any, blinds: Any) -> Any:
        return doors

    topics = [bound_as(replace(READINGS), name, "house") for name in ("doors", "lamps", "blinds")]
    table = bound_as(replace(a_table(watermark="2 hours"), derive=rooms), "rooms", "house")
    registry = Registry({topic.full_name: topic for topic in topics}, {table.full_name: table})
    commit(lake, topics[0], 12 * HOUR)
    commit(lake, topics[1], 10 * HOUR)
    marks = by_input(Facts(lake).newest_ms, registry, table)
    assert marks == {"house.doors": 10 * HOUR, "house.lamps": 8 * HOUR, "house.blinds": None}
    assert by_input(Facts(lake).newest_ms, registry, replace(table, closes_at=None)) == {}

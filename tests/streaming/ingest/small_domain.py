"""A domain of two topics, whose micro-batches and broker are what the test says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.streaming.ingest.small_log import SmallLog, reading
from tests.tables.declared import READINGS, a_topic, bound_as
from twofold.infra.delta.lake import Lake
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.infra.offset_ranges import RangesOf
from twofold.streaming.ingest.catch_up import CatchUp
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.events import lost_offsets

READ, OTHER = a_topic(), bound_as(replace(READINGS), "others")


class Domain:
    """Two topics of one partition, their driver, and a broker that has what the test says."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs = {t.full_name: SmallLog(lake, t, {0: [reading(n) for n in range(20)]}) for t in (READ, OTHER)}
        lost_offsets.ensure(lake)
        registry = Registry({t.full_name: t for t in (READ, OTHER)}, {})
        self.lake, self.ids = lake, {name: f"id of {name}" for name in self.logs}
        self.ingest = Ingest(cast(Any, None), lake, registry, "plant")
        self.ranges: RangesOf = {}
        monkeypatch.setattr(Ingest, "_ranges", lambda *_: self.ranges)
        monkeypatch.setattr("twofold.streaming.ingest.ingest_query.KeptAdmin.topic_ids", lambda *_: self.ids)
        monkeypatch.setattr("twofold.streaming.ingest.ingest_query.KeptAdmin.commit", lambda *_: True)
        monkeypatch.setattr("twofold.streaming.ingest.catch_up.topic_ids", lambda *_: self.ids)
        monkeypatch.setattr(
            "twofold.streaming.ingest.catch_up.offsets", lambda *_: {name: {0: self.reach} for name in self.logs}
        )
        self.reach = PartitionOffsets(earliest=0, earliest_local=0, latest=20, tiered=None)

    def batch(self, start: int, end: int) -> None:
        """A micro-batch with these offsets of each topic."""
        self.ranges = {name: {0: (start, end)} for name in self.logs}
        raws = [
            log.raw({0: (start, end)}).append_column("topic", pa.array([name] * (end - start)))
            for name, log in self.logs.items()
        ]
        self.ingest._batch(cast(Any, SimpleNamespace(toArrow=lambda: pa.concat_tables(raws), where=lambda _: None)), 0)

    def plan(self) -> CatchUp:
        """What a driver plans that starts the query again."""
        left_out = self.ingest._left_out
        feeds = {name: feed for name, feed in self.ingest._feeds.items() if name not in left_out.now}
        fill = CatchUp(
            cast(Any, None), self.lake, feeds, lambda *_: None, lambda t, e: left_out.add(t, e, at_once=True)
        )
        fill.plan({})
        return fill

"""The code of a table's rows is one fact in the table; other code cannot commit after a change of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.ingest.small_log import BAD, SmallLog, reading
from tests.tables.declared import READINGS, a_table, a_topic
from twofold.batch.plan.code_changes import code_changes
from twofold.batch.rewrite.accepted_decoding import accept_decoded, begin_decoding, lower_decoding
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import DefinitionChanged
from twofold.quality.rules import between
from twofold.status.fold import Facts
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.record_fields import key
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import DeviceClock
from twofold.tables.refresh.acceptance import (
    FENCES,
    Accepted,
    accept,
    accepted_code,
    definition,
    is_accepted,
    require_one_definition,
)
from twofold.tables.refresh.events.decoding_fingerprint import decoding

STRICT, LOOSE = a_topic(checks=[between("value", 0, 10)]), a_topic()
NAME = LOOSE.full_name
OF_STRICT, OF_LOOSE = decoding(STRICT), decoding(LOOSE)
BEGUN = Accepted(code=OF_LOOSE, through={})


def committed(lake: Lake, table: Table, mark: str, version: int = 1) -> None:
    rows = pa.table({"sensor": ["a"]})
    lake.ensure(table.full_name, rows.schema, statistics=[])
    Writer(lake, table.full_name).append(rows, CommitTag(app="stream/a", version=version, info={"fingerprint": mark}))


def declared(table: Table, **topic: Any) -> Registry:
    return Registry({"plant.readings": a_topic(**topic)}, {table.full_name: table})


def test_rows_of_one_definition_may_follow_each_other(lake: Lake) -> None:
    table, registry = a_table(), declared(a_table())
    lake.ensure(table.full_name, pa.schema([("sensor", pa.string())]), statistics=[])
    require_one_definition(lake, table, registry)
    assert accepted_code(lake, table.full_name) is None
    committed(lake, table, definition(table, registry))
    require_one_definition(lake, table, registry)
    fact = accepted_code(lake, table.full_name)
    assert fact is not None
    assert fact.code == definition(table, registry)


def test_other_dedup_keys_or_another_clock_are_another_definition(lake: Lake) -> None:
    table, clock = a_table(), DeviceClock(event="read_at", sent="sent_at")
    device = {"clock": clock, "event_time": "at", "schema": {**READINGS.schema, "sent_at": "timestamp"}}
    changed = [declared(table, dedup_keys=["sensor", "value"]), declared(table, **device)]
    committed(lake, table, fingerprint(table))
    for registry in (declared(table), *changed):
        require_one_definition(lake, table, registry)  # older versions did not note it
    committed(lake, table, definition(table, declared(table)), 2)
    require_one_definition(lake, table, declared(table))
    for registry in changed:
        with pytest.raises(DefinitionChanged, match=r"plant\.hours: .* its topics' dedup_keys or clock say"):
            require_one_definition(lake, table, registry)
        assert not is_accepted(lake, table, registry)


def test_rows_of_two_definitions_are_kept_apart(lake: Lake) -> None:
    table = a_table()
    committed(lake, table, "0123456789ab")
    with pytest.raises(DefinitionChanged, match=f"definition 0123456789ab; .* says {fingerprint(table)}") as raised:
        require_one_definition(lake, table, declared(table))
    assert "./twofold backfill plant.hours" in (raised.value.hint or "")
    assert not raised.value.retryable


def test_a_fact_is_changed_under_the_next_number_of_every_writer(lake: Lake) -> None:
    table = a_table()
    committed(lake, table, "old")
    before, name = accepted_code(lake, table.full_name), table.full_name
    new = Accepted(code="new", rules="r", through={})
    assert not accept(lake, name, new, instead_of=new), "another fact than was expected"
    assert accept(lake, name, new, instead_of=before)
    assert accept(lake, name, new, instead_of=new), "it is there"
    assert (accepted_code(lake, name), lake.version(name)) == (new, 2)
    numbers = {app: lake.open(name).transaction_version(app) for app in FENCES}
    assert numbers == dict.fromkeys(FENCES, 1)
    behind = Writer(lake, name).append(pa.table({"sensor": ["b"]}), CommitTag(app="stream", version=1))
    assert behind.skipped
    lake.open(name).restore(1)
    assert accepted_code(lake, name) == before, "a restore takes it back with the rows"


@pytest.fixture
def log(lake: Lake) -> SmallLog:
    """Six records of which 2 and 4 break the strict rules, and 5 is bad; the first four were ingested by those."""
    values = [reading(10 * n, 99.0 if n in (2, 4) else 1.0) for n in range(6)]
    values[5] = BAD
    log = SmallLog(lake, values={0: values})
    log.take(log.driver(STRICT), {0: (0, 4)})
    return log


def changes(log: SmallLog) -> list[tuple[str, str, str]]:
    registry = Registry({NAME: LOOSE}, {})
    return [(change.kind, change.before, change.now) for change in code_changes(log.lake, registry, ["plant"])]


def test_a_restart_before_a_plan_does_not_hide_a_changed_decoding(log: SmallLog) -> None:
    restarted = log.driver(LOOSE)
    log.take(restarted, {0: (4, 5)})
    assert log.accepted == [(0, 0), (0, 1), (0, 3), (0, 4)]
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_STRICT, through={"0": 4})
    assert changes(log) == [("decoding", OF_STRICT, OF_LOOSE)]
    assert [name for name in (NAME, "plant.hours") if Facts(log.lake).is_of_other_code(name)] == [NAME]
    log.take(log.driver(LOOSE), {0: (5, 6)})
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_STRICT, through={"0": 4}), "once"


def test_ingest_of_older_code_stops_when_another_decoding_is_accepted(log: SmallLog) -> None:
    old = log.driver(STRICT)
    begin_decoding(log.lake, NAME, BEGUN, {})
    with pytest.raises(DefinitionChanged, match=f"decoded by {OF_LOOSE} now; this process decodes by {OF_STRICT}"):
        log.take(old, {0: (4, 5)})
    assert log.accepted == [(0, 0), (0, 1), (0, 3)]
    log.take(log.driver(LOOSE), {0: (4, 6)})
    assert log.faults({0: 6}) == ["missing (0, 2)"] or log.faults({0: 6}) == []
    assert changes(log) == [("decoding", OF_LOOSE, OF_LOOSE)], "none of the events is known to be of it"


def test_ingest_that_began_with_an_empty_topic_stops_for_another_decoding(lake: Lake) -> None:
    log = SmallLog(lake, values={0: [reading(n) for n in range(4)]})
    old = log.driver(STRICT)
    log.take(old, {0: (0, 2)})
    begin_decoding(log.lake, NAME, BEGUN, {})
    with pytest.raises(DefinitionChanged, match=f"decoded by {OF_LOOSE} now; this process decodes by {OF_STRICT}"):
        log.take(old, {0: (2, 4)})
    assert log.accepted == [(0, 0), (0, 1)]


def test_records_of_older_code_during_an_acceptance_are_not_accepted(log: SmallLog) -> None:
    begin_decoding(log.lake, NAME, BEGUN, {})
    version = log.lake.version(NAME)
    log.take(log.driver(STRICT), {0: (4, 6)})
    accept_decoded(log.lake, NAME, {0: 4}, version, BEGUN, {})
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_LOOSE, through={"0": 4})
    version = log.lake.version(NAME)
    accept_decoded(log.lake, NAME, {0: 6}, version, BEGUN, {})
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_LOOSE, through={"0": 4}), "it is another fact by now"
    accept_decoded(log.lake, NAME, {0: 6}, version, Accepted(code=OF_LOOSE, through={"0": 4}), {})
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_LOOSE)
    assert changes(log) == []


def test_a_range_that_is_decoded_by_other_code_is_not_accepted(log: SmallLog) -> None:
    lower_decoding(log.lake, STRICT, {0: (1, 3)}, {})
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_STRICT), "it is the accepted code"
    lower_decoding(log.lake, LOOSE, {0: (2, 3)}, {})
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_STRICT, through={"0": 2})
    lower_decoding(log.lake, LOOSE, {0: (1, 3)}, {})
    assert accepted_code(log.lake, NAME) == Accepted(code=OF_STRICT, through={"0": 1})


def test_a_compacted_topic_is_decoded_otherwise_from_now_on(lake: Lake) -> None:
    schema = {**LOOSE.schema, "sensor": key()}
    old, new = (replace(topic, compacted=True, tiered=False, dedup_keys=(), schema=schema) for topic in (STRICT, LOOSE))
    log = SmallLog(lake, old, {0: [reading(n) for n in range(4)]})
    log.take(log.driver(old), {0: (0, 3)})
    log.take(log.driver(new), {0: (3, 4)})
    assert accepted_code(lake, NAME) == Accepted(code=decoding(new), since={"0": 3})

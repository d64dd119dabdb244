"""A topic of a real broker has exactly the rows of its table, or its changes, whatever is killed or wakes up late."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from kafka import KafkaProducer

from tests.infra.conftest import free_port
from tests.outputs.followed_table import SCHEMA, FollowedTable, hour, key_of
from tests.outputs.killed_steps import check_killed_steps, killed_after
from tests.outputs.test_next_step import EVENTS, run_events, small_pages
from tests.tables.declared import written
from twofold import to_topic
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting, BrokerUnreachable, ChangesGone, WriteConflict
from twofold.infra.kafka.compacted_topic import NewestValues, TransactionalWriter
from twofold.infra.project.settings import Settings
from twofold.outputs.copy_comparison import compare_copy
from twofold.outputs.refused_rows import Refused
from twofold.outputs.resend import resend_all, resume
from twofold.outputs.targets.open_target import open_target
from twofold.outputs.targets.topic_copy import POSITIONS, TopicCopy
from twofold.outputs.view import KEY
from twofold.tables.declare.registry import load

__all__ = ["small_pages"]

pytestmark = pytest.mark.platform

_numbers = count(1)


class ReadCopy(TopicCopy):
    """A copy that tests read."""

    def rows(self, columns: list[str]) -> list[tuple[Any, ...]]:
        schema = FollowedTable.schema_of(columns)
        return sorted((tuple(row.values()) for row in self.sent(schema, 0, 1).to_pylist()), key=repr)


def new_copy(broker: Settings, refused: list[Refused] | None = None, *, compacted: bool = True) -> ReadCopy:
    """A copy whose topic nobody has."""
    number = next(_numbers)

    def note(rows: Any, after: Any) -> None:
        if refused is not None:
            refused.extend(rows)

    name = f"hours_{number}"
    return ReadCopy(settings=broker, table="plant.hours", name=name, compacted=compacted, note_refused=note)


def again(copy: ReadCopy) -> ReadCopy:
    """The copy as a process sees it that starts now."""
    return replace(copy)


@pytest.fixture
def followed(lake: Lake) -> FollowedTable:
    return FollowedTable(lake, to_topic("hours"))


def records(broker: Settings, topic: str) -> Iterator[tuple[str, Any]]:
    """Every committed record of a topic, by a consumer of its own."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=2_000,
    )
    try:
        for record in consumer:
            yield record.key.decode(), record.value and json.loads(record.value)
    finally:
        consumer.close()


def test_each_change_is_a_record_and_a_row_that_goes_a_tombstone(broker: Settings, followed: FollowedTable) -> None:
    copy = new_copy(broker)
    followed.put(("a", 1, hour(1)), ("b", 1, None))
    followed.follow(copy)
    followed.put(("a", 2, None))
    followed.remove("b")
    followed.follow(copy)
    sent = list(records(broker, copy.topic))
    first = {KEY: key_of("a"), "k": "a", "n": 1, "closes_at": "2026-01-01T01:00:00+00:00"}
    assert (len(sent), sent.count((key_of("a"), first))) == (4, 1)
    assert sorted(sent[2:], key=repr) == [
        (key_of("a"), {KEY: key_of("a"), "k": "a", "n": 2, "closes_at": None}),
        (key_of("b"), None),
    ]


def test_a_copy_that_is_erased_has_a_tombstone_for_each_row(broker: Settings, followed: FollowedTable) -> None:
    followed.put(("a", 1, None), ("b", 1, None))
    followed.follow(copy := new_copy(broker))
    again(copy).erase()
    again(copy).erase()
    assert (again(copy).position(), again(copy).rows(["k"])) == (None, [])
    assert dict(records(broker, copy.topic)) == {key_of("a"): None, key_of("b"): None}


def test_a_process_that_wakes_up_late_sends_nothing(broker: Settings, followed: FollowedTable) -> None:
    late = new_copy(broker)
    followed.put(("a", 1, None))
    followed.follow(late)
    followed.put(("a", 2, None))
    other = again(late)
    followed.follow(other)
    followed.put(("a", 3, None))
    with pytest.raises(WriteConflict):
        late.send(followed.schema_of(SCHEMA.names).empty_table(), late.position(), other.position())  # type: ignore[arg-type]
    followed.follow(again(late))
    assert [value["n"] for _, value in records(broker, late.topic)] == [1, 2, 3]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_process_killed_around_its_commit_sends_each_row_once(
    broker: Settings, followed: FollowedTable, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    commit = KafkaProducer.commit_transaction

    def dies(producer: KafkaProducer) -> None:
        if is_committed:
            commit(producer)
        raise KeyboardInterrupt

    copy = new_copy(broker)
    followed.put(("a", 1, None))
    followed.follow(copy)
    followed.put(("a", 2, None), ("b", 2, None))
    with monkeypatch.context() as killed:
        killed.setattr(KafkaProducer, "commit_transaction", dies)
        with pytest.raises(KeyboardInterrupt):
            followed.step(copy)
    followed.follow(again(copy))
    assert sorted((key, value["n"]) for key, value in records(broker, copy.topic)) == [
        (key_of("a"), 1), (key_of("a"), 2), (key_of("b"), 2)
    ]  # fmt: skip


@pytest.fixture
def open_elsewhere(broker: Settings, tmp_path: Path) -> Iterator[None]:
    """The transaction of another output, whose process was killed, and was not started again."""
    other, copy = FollowedTable(Lake(Settings(home=tmp_path / "other"))), new_copy(broker)
    other.put(("x", 1, None))
    with killed_after(1, [(KafkaProducer, "commit_transaction")]) as ran:
        other.follow(copy)
    assert ran == ["commit_transaction"]
    yield
    TransactionalWriter(broker, copy.owner).close()


@pytest.mark.usefixtures("open_elsewhere")
def test_a_row_of_a_killed_step_is_gone_once_its_table_went_back(broker: Settings, followed: FollowedTable) -> None:
    copy = new_copy(broker)
    writes = [(KafkaProducer, "send"), (KafkaProducer, "commit_transaction")]
    assert check_killed_steps(followed, lambda: again(copy), writes) == 4


def test_a_position_among_those_of_all_outputs_goes_on(broker: Settings, followed: FollowedTable) -> None:
    """So are homes of earlier code, and one of their outputs can have been killed in its transaction."""
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(TopicCopy, "positions", POSITIONS)
        copy, other = new_copy(broker), new_copy(broker)
        followed.put(("a", 1, None))
        followed.follow(copy)
        with killed_after(0, [(KafkaProducer, "commit_transaction")]):
            followed.follow(other)
        followed.put(("a", 2, None))
        followed.follow(copy)
    followed.put(("a", 3, None))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(followed.follow, again(copy))  # it has looked at what came before the open transaction
        time.sleep(1)
        followed.follow(again(other))
        assert isinstance(waiting.exception(), WriteConflict)
    followed.follow(again(copy))
    assert [value["n"] for _, value in records(broker, copy.topic)] == [1, 2, 3]
    assert [value["n"] for _, value in records(broker, other.topic)] == [3]


def test_a_row_that_cannot_be_written_is_refused(broker: Settings, followed: FollowedTable) -> None:
    refused: list[Refused] = []
    copy = new_copy(broker, refused)
    followed.put_far("far")
    followed.put(("near", 1, None))
    followed.follow(copy)
    assert [row.key for row in refused] == [key_of("far")]
    assert [key for key, value in records(broker, copy.topic) if value] == [key_of("near")]


@pytest.fixture
def changes(broker: Settings, followed: FollowedTable) -> ReadCopy:
    """A topic that gets the changes of the table."""
    followed.with_output(compacted=False)
    return new_copy(broker, compacted=False)


def briefs(copy: ReadCopy) -> list[tuple[str, int | None, int | None, int]]:
    """The changes in a topic: operation, the number before and after, version."""
    sent = (value for _, value in records(copy.settings, copy.topic))
    return [
        (v["op"], *((v[side] or {}).get("n") for side in ("before", "after")), v["source"]["version"]) for v in sent
    ]


def test_a_topic_of_changes_gets_each_commit_as_debezium_writes_it(changes: ReadCopy, followed: FollowedTable) -> None:
    followed.put(("a", 1, hour(1)))
    followed.follow(changes)
    followed.put(("a", 2, None))
    followed.put(("a", 3, None))
    followed.remove("a")
    followed.follow(changes)
    assert briefs(changes) == [("c", None, 1, 1), ("u", 1, 2, 2), ("u", 2, 3, 3), ("d", 3, None, 4)]
    first = {"k": "a", "n": 1, "closes_at": "2026-01-01T01:00:00+00:00"}
    source = {"table": "plant.hours", "version": 1}
    found = next(records(changes.settings, changes.topic))
    assert found == (key_of("a"), {"op": "c", "before": None, "after": first, "source": source})


@pytest.mark.usefixtures("open_elsewhere")
def test_a_topic_of_changes_has_each_once_if_killed(
    changes: ReadCopy, followed: FollowedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(producer: KafkaProducer) -> None:
        raise KeyboardInterrupt

    followed.put(("a", 1, None))
    followed.follow(changes)
    followed.put(("a", 2, None))
    with monkeypatch.context() as killed:
        killed.setattr(KafkaProducer, "commit_transaction", dies)
        with pytest.raises(KeyboardInterrupt):
            followed.step(changes)
    followed.follow(again(changes))
    assert [number for _, _, number, _ in briefs(changes)] == [1, 2]


def test_changes_that_are_lost_must_be_asked_for(changes: ReadCopy, followed: FollowedTable) -> None:
    followed.put(("a", 1, None))
    followed.follow(changes)
    followed.create()
    followed.put(("b", 1, None))
    followed.put(("c", 1, None))
    with pytest.raises(ChangesGone, match=r"plant\.hours: what changed after .* made again"):
        followed.follow(changes)
    assert resume(changes, followed.lake, followed.table, followed.output, 1) == 1
    followed.follow(changes)
    assert briefs(changes)[1:] == [("c", None, 1, 2)]


def test_a_record_that_others_wrote_differs_from_its_row(broker: Settings, followed: FollowedTable) -> None:
    """Also if its row should be null, or gone."""
    copy = new_copy(broker)
    followed.put(("a", None, None), ("b", 1, None))
    followed.follow(copy)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for key in ("a", "gone"):
        value = {KEY: key_of(key), "k": key, "n": "many", "closes_at": None}
        producer.send(copy.topic, json.dumps(value).encode(), key_of(key).encode())
    producer.close()
    compared = compare_copy(followed.lake, followed.table, again(copy))
    assert compared is not None
    assert (compared.rows, compared.differing) == (2, 2)
    resend_all(again(copy), followed.lake, followed.table)
    followed.follow(again(copy))
    assert copy.rows(SCHEMA.names) == [(key_of("a"), "a", None, None), (key_of("b"), "b", 1, None)]


def test_a_broker_that_does_not_answer_is_named(followed: FollowedTable) -> None:
    nowhere = Settings(bootstrap=f"127.0.0.1:{free_port()}")
    with pytest.raises(BrokerUnreachable, match=nowhere.bootstrap):
        NewestValues(nowhere, "plant.hours").look()


def test_a_topic_that_is_declared_is_no_output(tmp_path: Path) -> None:
    topic = '"""Readings."""\nfrom twofold import Topic\n\nTOPIC = Topic(schema={"s": "string", "at": "timestamp"},\n'
    topic += '    event_time="at", message_key="s", dedup_keys=["s"])\n'
    table = '"""Sums."""\nfrom twofold import F, table, to_topic\n\n\n@table(outputs=[to_topic("readings")])\n'
    table += 'def sums(readings):\n    return readings.groupBy("s").agg(F.count("*").alias("n"))\n'
    found = load(written(tmp_path, {"plant/readings.py": topic, "plant/sums.py": table}))
    assert "the output readings is a declared topic" in str(found.faults["plant.sums"])


def test_another_broker_is_a_destination(followed: FollowedTable, tmp_path: Path) -> None:
    file = tmp_path / "destinations"
    file.write_text("there = kafka://other:9092\nreports = postgresql://db/x\n")
    file.chmod(0o600)
    lake = Lake(replace(followed.lake.settings, destinations=str(file)))
    copy = open_target(lake, followed.table, to_topic("hours", destination="there"))
    assert isinstance(copy, TopicCopy)
    assert (copy.settings.bootstrap, copy.topic) == ("other:9092", "plant.hours")
    with pytest.raises(BadSetting, match=r"expected kafka://\.\.\."):
        open_target(lake, followed.table, to_topic("hours", destination="reports"))


@pytest.mark.usefixtures("small_pages")
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=8))
def test_a_topic_equals_its_table_whatever_happens(broker: Settings, events: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as home:
        run_events(FollowedTable(Lake(Settings(home=Path(home) / "home"))), new_copy(broker), events)

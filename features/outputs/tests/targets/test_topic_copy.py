"""A topic of a real broker has exactly the rows of its table, or its changes, whatever is killed or wakes up late."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.infra.conftest import free_port
from tests.tables.declared import written
from twofold import to_topic
from twofold.features.outputs.commands.resend import resend_all
from twofold.features.outputs.copy_comparison import compare_copy
from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.topic_copy import POSITIONS, TopicCopy
from twofold.features.outputs.tests.followed_table import SCHEMA, FollowedTable, hour, key_of
from twofold.features.outputs.tests.killed_steps import killed_after
from twofold.features.outputs.tests.moved_outputs import MovedOutput, Row, replayed, without_key
from twofold.features.outputs.tests.targets.target_contract import Kind, TargetContract
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration, BadSetting, BrokerUnreachable, WriteConflict
from twofold.infra.kafka.compacted_topic import NewestValues, TransactionalWriter
from twofold.infra.kafka.topic_admin import offsets
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.output_view import KEY

pytestmark = pytest.mark.platform
WRITES = [(KafkaProducer, "send"), (KafkaProducer, "commit_transaction"), (StateFile, "note_position")]

_numbers = count(1)


def new_copy(broker: Settings, *, compacted: bool = True) -> TopicCopy:
    """A copy whose topic nobody has."""
    name = f"hours_{next(_numbers)}"
    return TopicCopy(Lake(broker), Place("plant.hours", name, "topic", ""), to_topic(name, compacted=compacted))


def again(copy: TopicCopy) -> TopicCopy:
    """The copy as a process sees it that starts now."""
    return TopicCopy(copy._lake, copy._place, copy._output)


def of_topic(moved: MovedOutput) -> TopicCopy:
    copy = moved.target
    assert isinstance(copy, TopicCopy)
    return copy


def changes_of(moved: MovedOutput) -> list[Row]:
    copy = of_topic(moved)
    sent = [(json.loads(key), value) for key, value in records(copy.settings, copy.topic)]
    return [{"key": key, **{side: value[side] for side in ("before", "after")}} for key, value in sent]


def kind_of(broker: Settings, *, compacted: bool) -> Kind:
    def rows(moved: MovedOutput, columns: Sequence[str]) -> list[Row]:
        if not compacted:
            return replayed(changes_of(moved))
        return without_key(map(json.loads, NewestValues(broker, of_topic(moved).topic).look(decided=True).values()))

    return Kind(
        output=to_topic("copy", compacted=compacted, destination="there"),
        address=f"kafka://{broker.bootstrap_servers}",
        rows=rows,
        writes=WRITES,
        changes=changes_of,
        examples=4,
    )


@pytest.mark.usefixtures("open_elsewhere")
class TestContract(TargetContract):
    @pytest.fixture
    def kind(self, broker: Settings) -> Kind:
        return kind_of(broker, compacted=True)


@pytest.mark.usefixtures("open_elsewhere")
class TestContractOfChanges(TargetContract):
    @pytest.fixture
    def kind(self, broker: Settings) -> Kind:
        return kind_of(broker, compacted=False)

    def test_it_forgets_a_person(self, kind: Kind, lake: Lake) -> None:
        with pytest.raises(BadDeclaration, match="records of a topic that is not compacted stay"):
            replace(kind.output, reveal=["mail"])


@pytest.fixture
def followed(lake: Lake) -> FollowedTable:
    return FollowedTable(lake, to_topic("hours"))


def records(broker: Settings, topic: str) -> Iterator[tuple[str, Any]]:
    """Every committed record of a topic, by a consumer of its own; no transaction of it is open."""
    from kafka import KafkaConsumer, TopicPartition

    NewestValues(broker, topic).look(decided=True)
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed")
    try:
        consumer.assign([place])
        consumer.seek_to_beginning()
        while consumer.position(place) < offsets(broker, [topic])[topic][0].latest:
            for record in consumer.poll(500).get(place, ()):
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


@pytest.fixture
def changes(broker: Settings, followed: FollowedTable) -> TopicCopy:
    """A topic that gets the changes of the table."""
    followed.with_output(compacted=False)
    return new_copy(broker, compacted=False)


def briefs(copy: TopicCopy) -> list[tuple[str, int | None, int | None, int]]:
    """The changes in a topic: operation, the number before and after, version."""
    sent = (value for _, value in records(copy.settings, copy.topic))
    return [
        (v["op"], *((v[side] or {}).get("n") for side in ("before", "after")), v["source"]["version"]) for v in sent
    ]


def test_a_topic_of_changes_gets_each_commit_as_debezium_writes_it(changes: TopicCopy, followed: FollowedTable) -> None:
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
    rows = again(copy).sent(followed.schema_of(SCHEMA.names), 0, 1).to_pylist()
    assert sorted(map(tuple, map(dict.values, rows))) == [(key_of("a"), "a", None, None), (key_of("b"), "b", 1, None)]


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

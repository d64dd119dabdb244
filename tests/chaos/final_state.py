"""What must be true in the end of the records that `tests.chaos.worker` feeds, whatever happened on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb

from tests.chaos.worker import parts, values
from tests.fuzz.flights_oracle import Oracle, judged
from tests.fuzz.fuzz_cases import Sent
from twofold.demo.traffic.fault_injection import CORRUPT
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.instants import from_epoch_ms
from twofold.testing.worlds import World


def assert_each_record_is_there_once(world: World, legs: int) -> None:
    """Events and quarantine are the log of so many legs, by offset."""
    for topic, sent in _fed(legs).items():
        name = world.registry.find_topic(topic).full_name
        connection = duckdb.connect()
        connection.register("events", world.rows(name).select(["_partition", "_offset"]))
        connection.register("bad", world.rows(name + QUARANTINE).select(["_partition", "_offset"]))
        found = connection.sql("SELECT _offset FROM events UNION ALL SELECT _offset FROM bad ORDER BY 1").fetchall()
        assert [offset for (offset,) in found] == list(range(sent)), name


def assert_tables_are_right(world: World, tables: Sequence[str], legs: int) -> None:
    """Closed rows are what DuckDB makes of the records, and there are some."""
    sent = (m for part in parts(legs) for m in part if not m.kind.startswith(CORRUPT))
    oracle = Oracle([Sent(0, message.topic.split(".")[1], message.value) for message in sent])
    before = from_epoch_ms(min(ms for name in tables if (ms := world.watermark_ms(name))))
    for name in tables:
        found = judged(world, name, oracle.expected(name, before), before)
        assert found.equal, (name, found)
        assert found.rows > 0, name


def assert_each_transaction_is_there_once(lake: Lake, names: Sequence[str]) -> None:
    """No commit was made twice, by whomever."""
    for name in names:
        commits = lake.commits(name, -1, lake.version(name))
        made = Counter(transaction for commit in commits for transaction in commit.transactions.items())
        assert [transaction for transaction, times in made.items() if times > 1] == [], name


def _fed(legs: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for part in parts(legs):
        for topic, sent in values(part).items():
            counts[topic] += len(sent)
    return counts

"""Of several drivers of one topic one goes on at a time, and a record is on one side, whatever ends a driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.streaming.ingest.small_log import BAD, SmallLog, reading
from tests.tables.declared import a_topic
from twofold.infra.delta import delta_writer
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import LogGap, WriteConflict
from twofold.quality.rules import between
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.refresh.events.ingested_offsets import IngestedOffsets, read_ingested_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRICT = a_topic(checks=[between("value", 0, 10)])
LOOSE = a_topic()
NAME = LOOSE.full_name


@pytest.fixture
def log(lake: Lake) -> SmallLog:
    """Ten records of partition 0, of which 6 is bad, 4 and 7 break strict rules; and ten good ones of partition 1."""
    values = [reading(10 * n, 99.0 if n in (4, 7) else 1.0) for n in range(10)]
    values[6] = BAD
    return SmallLog(lake, values={0: values, 1: [reading(5 * n) for n in range(10)]})


@pytest.fixture(params=["delta-rs", pytest.param("spark", marks=pytest.mark.spark)])
def session(request: pytest.FixtureRequest) -> SparkSession | None:
    """A session where micro-batches are large, so that Spark takes them."""
    return request.getfixturevalue("spark") if request.param == "spark" else None


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets something happen once a writer has looked at a table and before it commits, and something with the next."""

    def arrange(name: str, *happens: Callable[[], None]) -> None:
        waiting, happening = list(happens), threading.Lock()
        commit = Writer._commit

        def late(self: Writer, rows: Any, stamp: CommitTag, attempt: Callable[[Any], None], extra: Any = ()) -> Written:
            def attempted(table: Any) -> None:
                if self.name == name and waiting and happening.acquire(blocking=False):
                    waiting.pop(0)()
                    happening.release()
                attempt(table)

            return commit(self, rows, stamp, attempted, extra)

        monkeypatch.setattr(Writer, "_commit", late)

    return arrange


def test_a_driver_that_wakes_up_adds_only_what_another_has_not(log: SmallLog, session: SparkSession | None) -> None:
    first, second = log.driver(spark=session), log.driver(spark=session)
    log.take(first, {0: (0, 5)}, session)
    second.reload()
    log.take(first, {0: (5, 8)}, session)
    log.take(second, {0: (5, 10)}, session)
    assert log.faults({0: 10}) == []
    assert second.events.ends == {0: 10}
    assert log.rejected == [(0, 6)]


def test_a_driver_that_looked_before_another_committed_does_not_commit(
    log: SmallLog, session: SparkSession | None, behind: Callable[..., None]
) -> None:
    first, second = log.driver(spark=session), log.driver(spark=session)
    behind(NAME, lambda: log.take(first, {0: (0, 5)}))
    log.take(second, {0: (0, 8)}, session)
    assert log.faults({0: 8}) == []


def test_the_frontier_of_one_partition_does_not_go_back_with_another(log: SmallLog) -> None:
    first, second = log.driver(), log.driver()
    log.take(first, {0: (0, 8), 1: (0, 0)})
    log.take(second, {0: (0, 5), 1: (0, 10)})
    assert read_ingested_offsets(log.lake, LOOSE).ends == {0: 8, 1: 10}
    assert log.faults({0: 8, 1: 10}) == []


def test_a_driver_that_is_overtaken_twice_names_the_other(log: SmallLog, behind: Callable[..., None]) -> None:
    first, second = log.driver(), log.driver()
    behind(NAME, lambda: log.take(first, {0: (0, 1)}), lambda: log.take(first, {0: (1, 2)}))
    with pytest.raises(WriteConflict, match=r"plant\.readings: another driver .* process \d+ on .*, home .*home"):
        log.take(second, {0: (0, 3)})
    assert log.faults({0: 2}) == []
    log.take(second, {0: (0, 3)})
    assert log.faults({0: 3}) == []


def test_a_frontier_and_its_number_are_of_one_version(log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = log.driver(), log.driver()
    log.take(first, {0: (0, 2)})
    newest_info = Lake.newest_info

    def slow(lake: Lake, name: str, *arguments: Any, **named: Any) -> Any:
        found = newest_info(lake, name, *arguments, **named)
        if name == NAME and first.events.ends == {0: 2}:
            log.take(first, {0: (2, 5)})
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "newest_info", slow)
        second.reload()
    log.take(second, {0: (2, 6)})
    assert log.faults({0: 6}) == []


def test_an_idle_topic_is_not_moved_by_a_driver_that_was_overtaken(log: SmallLog) -> None:
    first, second = log.driver(), log.driver()
    log.take(first, {0: (0, 5)})
    second.move(0, 0)
    assert second.moved_ms is None
    assert second.events == first.events == read_ingested_offsets(log.lake, LOOSE)


def test_a_gap_is_not_skipped_again_by_a_driver_that_was_overtaken(log: SmallLog) -> None:
    first, second = log.driver(), log.driver()
    first.skip({0: (0, 3)})
    log.take(first, {0: (3, 5)})
    second.skip({0: (0, 3)})
    assert read_ingested_offsets(log.lake, LOOSE).ends == {0: 5}
    assert log.accepted == [(0, 3), (0, 4)]


def test_a_gap_is_refused_only_by_the_frontier_as_it_is(log: SmallLog) -> None:
    first, second = log.driver(), log.driver()
    log.take(first, {0: (0, 5)})
    log.take(second, {0: (5, 6)})
    assert log.faults({0: 6}) == []
    with pytest.raises(LogGap, match=r"ends before offset 6 and the stream goes on at 7"):
        log.take(first, {0: (7, 8)})


def killed_after(monkeypatch: pytest.MonkeyPatch, commits: int, take: Callable[[], None]) -> None:
    """Run it until so many commits were made; nothing is written from then on."""
    append, left = Writer.append, [commits]

    def counted(self: Writer, rows: Any, stamp: CommitTag) -> Written:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return append(self, rows, stamp)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "append", counted)
        with pytest.raises(KeyboardInterrupt):
            take()


@pytest.mark.parametrize("rules", [(STRICT, LOOSE), (LOOSE, STRICT)], ids=["looser", "stricter"])
def test_a_record_is_in_one_table_though_the_rules_changed_meanwhile(
    log: SmallLog, session: SparkSession | None, rules: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = rules
    killed_after(monkeypatch, 1, lambda: log.take(log.driver(before, session), {0: (0, 8)}, session))
    again = log.driver(after, session)
    log.take(again, {0: (0, 8)}, session)
    log.take(again, {0: (0, 10)}, session)
    assert log.faults({0: 10}) == []
    strict = [(0, 4), (0, 6), (0, 7)]
    assert log.rejected == (strict if before is STRICT else [(0, 6)])


def test_what_another_driver_has_completed_is_not_quarantined_again(log: SmallLog, behind: Callable[..., None]) -> None:
    first, second = log.driver(), log.driver()

    def complete() -> None:
        log.take(second, {0: (0, 10)})

    behind(NAME + QUARANTINE, complete)
    log.take(first, {0: (0, 8)})
    assert log.faults({0: 10}) == []
    assert log.rejected == [(0, 6)]


def test_bad_records_of_restored_events_stay_in_quarantine_once(log: SmallLog, session: SparkSession | None) -> None:
    log.take(log.driver(spark=session), {0: (0, 3)}, session)
    log.take(log.driver(spark=session), {0: (3, 8)}, session)
    log.lake.open(NAME).restore(1)
    log.take(log.driver(spark=session), {0: (3, 10)}, session)
    assert log.rejected == [(0, 6)]
    assert log.accepted == [(0, n) for n in range(10) if n != 6]


def test_events_that_are_restored_under_a_driver_leave_no_hole(log: SmallLog) -> None:
    driver = log.driver()
    log.take(driver, {0: (0, 3)})
    log.take(driver, {0: (3, 6)})
    log.lake.open(NAME).restore(1)
    with pytest.raises(LogGap, match="ends before offset 3 and the stream goes on at 6"):
        log.take(driver, {0: (6, 8)})
    log.take(driver, {0: (3, 8)})
    assert log.accepted == [(0, n) for n in range(8) if n != 6]


def test_the_order_of_the_log_is_kept_where_a_part_was_there(log: SmallLog) -> None:
    log.take(log.driver(), {0: (0, 7)})
    log.lake.open(NAME).restore(0)
    log.take(log.driver(), {0: (0, 10)})
    rows = pa.table(log.lake.open(NAME).scan())
    assert rows["_offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]


def test_each_commit_of_either_table_takes_the_next_number(log: SmallLog) -> None:
    driver: TopicWriter = log.driver()
    log.take(driver, {0: (0, 7), 1: (0, 3)})
    log.take(driver, {0: (7, 9), 1: (3, 3)})
    driver.move(0, 0)
    assert read_ingested_offsets(log.lake, LOOSE).number == driver.events.number == 3
    assert read_ingested_offsets(log.lake, LOOSE, quarantine=True).number == 1
    assert driver.events.starts == {0: 7, 1: 3}
    assert IngestedOffsets().number == 0
    assert delta_writer._done(log.lake.open(NAME), CommitTag(app="ingest", version=3))


def test_a_commit_says_how_late_its_records_were(log: SmallLog) -> None:
    driver = log.driver()
    log.take(driver, {0: (0, 10)})  # nothing was ingested before: their lateness is not known
    log.take(driver, {1: (0, 10)})  # 90, 85, ..., 45 seconds behind
    commits = log.lake.commits(NAME, 0, log.lake.version(NAME))
    assert [commit.info["lateness"] for commit in commits] == [{}, {"10000": 3, "60000": 7}]

"""Each change of a table is called out under one id, in order by key, whatever is killed, moved back or made again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings

from tests.outputs.followed_table import SCHEMA, hour, key_of
from tests.outputs.followed_webhook import FollowedWebhook
from tests.outputs.test_next_step import ROWS, happen, small_pages
from tests.outputs.webhook_receiver import Receiver, Request, receiving
from twofold import between, to_webhook
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, ChangesGone, WriteConflict
from twofold.infra.project.settings import Settings
from twofold.outputs.next_step import next_step
from twofold.outputs.targets import webhook_queue

__all__ = ["small_pages"]


@pytest.fixture
def hook(lake: Lake) -> Iterator[FollowedWebhook]:
    with receiving(Receiver()) as receiver:
        yield FollowedWebhook(lake, receiver)


def begun(hook: FollowedWebhook, **output: Any) -> FollowedWebhook:
    """The output, after its first step."""
    hook.table.with_output(**output)
    assert hook.run() == []
    return hook


def test_a_new_webhook_begins_with_what_changes_from_then_on(hook: FollowedWebhook) -> None:
    hook.table.put(("a", 1, None), ("b", 1, None))
    begun(hook)
    hook.table.put(("a", 2, None))
    assert hook.run() == [("a", "update", 2)]


def test_a_webhook_can_begin_with_all_rows(hook: FollowedWebhook) -> None:
    hook.table.with_output(begin="all")
    hook.table.put(("a", 1, None), ("b", 1, None))
    assert sorted(hook.run()) == [("a", "insert", 1), ("b", "insert", 1)]


def test_a_change_has_its_row_before_and_after(hook: FollowedWebhook) -> None:
    begun(hook)
    hook.table.put(("a", 1, hour(1)))
    hook.table.put(("a", 2, None))
    hook.table.remove("a")
    hook.follow()
    hook.send()
    first = {"k": "a", "n": 1, "closes_at": "2026-01-01T01:00:00+00:00"}
    second = {"k": "a", "n": 2, "closes_at": None}
    common = {"table": "plant.hours", "key": {"k": "a"}}
    assert [request.change for request in hook.receiver.requests] == [
        {**common, "version": 1, "change": "insert", "before": None, "after": first},
        {**common, "version": 2, "change": "update", "before": first, "after": second},
        {**common, "version": 3, "change": "delete", "before": second, "after": None},
    ]


def test_each_commit_sends_its_net_rows(hook: FollowedWebhook) -> None:
    begun(hook)
    hook.table.put(("a", 1, None))
    hook.table.put(("b", 1, None))
    hook.table.compact()
    hook.table.put(("a", 2, None), ("b", 1, None))
    hook.table.put(("b", 2, None))
    hook.table.put(("b", 1, None))
    found = hook.run()
    assert [b for b in found if b[0] == "a"] == [("a", "insert", 1), ("a", "update", 4)]
    assert [b for b in found if b[0] == "b"] == [("b", "insert", 2), ("b", "update", 5), ("b", "update", 6)]


def test_a_roll_back_while_behind_is_a_commit_with_net_rows(hook: FollowedWebhook) -> None:
    hook.table.put(("a", 0, None), ("b", 0, None), ("gone", 0, None))
    hook.table.put(("c", 0, None))
    begun(hook)
    for number in range(1, 5):
        hook.table.put(("a", number, None))
    hook.table.remove("gone")
    hook.table.restore(1)
    found = hook.run()
    assert [b for b in found if b[0] == "a"] == [("a", "update", version) for version in (3, 4, 5, 6, 8)]
    assert [b for b in found if b[0] == "gone"] == [("gone", "delete", 7), ("gone", "insert", 8)]
    assert [b for b in found if b[0] in "bc"] == [("c", "delete", 8)]


def test_a_correction_of_a_closed_row_is_a_retraction_and_a_value(hook: FollowedWebhook) -> None:
    begun(hook, when="closed")
    hook.table.close_through(hour(0))
    hook.table.put(("a", 1, hour(1)), ("open", 1, hour(9)))
    assert hook.run() == []
    hook.table.put(("a", 2, hour(1)))
    hook.table.close_through(hour(1))
    assert hook.run() == [("a", "insert", 2)]
    hook.table.put(("a", 3, hour(1)), ("open", 2, hour(9)))
    hook.follow()
    hook.send()
    [request] = hook.receiver.requests
    assert (request.change["before"]["n"], request.change["after"]["n"]) == (2, 3)
    hook.receiver.take()
    hook.table.put(("a", 3, hour(5)))
    assert hook.run() == [("a", "delete", 4)]
    hook.table.close_through(hour(5))
    hook.follow()
    hook.send()
    [closed] = hook.receiver.requests
    assert closed.brief == ("a", "insert", 4)


def test_changes_of_one_version_have_ids_of_their_own(hook: FollowedWebhook) -> None:
    """A row that is reopened and closes again, and another condition, by no commit."""
    begun(hook, when="closed")
    hook.table.close_through(hour(1))
    hook.table.put(("a", 7, hour(1)))
    hook.follow()
    hook.table.put(("a", 7, hour(2)))
    hook.follow()
    hook.table.close_through(hour(2))
    hook.follow()
    hook.table.with_output(where=[between("n", 8, None)])
    hook.follow()
    hook.send()
    assert [request.brief for request in hook.receiver.requests] == [
        ("a", "insert", 1),
        ("a", "delete", 2),
        ("a", "insert", 2),
        ("a", "delete", 2),
    ]
    assert len(hook.receiver.counted) == 4


def test_a_row_that_leaves_the_condition_is_deleted(hook: FollowedWebhook) -> None:
    begun(hook, where=[between("n", 5, None)], columns=["n"])
    hook.table.put(("a", 4, None), ("b", 6, None))
    assert hook.run() == [("b", "insert", 1)]
    hook.table.put(("a", 5, None), ("b", 1, None))
    hook.follow()
    hook.send()
    found = {request.change["key"]["k"]: request.change for request in hook.receiver.requests}
    assert (found["a"]["change"], found["a"]["after"]) == ("insert", {"n": 5})
    assert (found["b"]["change"], found["b"]["before"], found["b"]["after"]) == ("delete", {"n": 6}, None)


def test_values_of_all_types_are_json(hook: FollowedWebhook) -> None:
    begun(hook)
    row = {
        "k": 'it\'s \\ "so", 😀\n\0',
        "flag": pa.array([True]),
        "large": pa.array([2**63 - 1]),
        "double": pa.array([float("nan")]),
        "exact": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
        "bytes": pa.array([b"\x00\xff"], pa.binary()),
        "day": pa.array([date(1, 1, 1)]),
        "at": pa.array([datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC)]),
        "local": pa.array([datetime(2026, 3, 29, 1, 30)], pa.timestamp("us")),
        "nested": pa.array([{"a": [1, None], "b": [("x", 1.5)]}], NESTED),
    }
    hook.table.overwrite(pa.table({**row, "k": [row["k"]]}))
    hook.follow()
    hook.send()
    [request] = hook.receiver.requests
    assert request.change["after"] == {
        "k": row["k"],
        "flag": True,
        "large": 2**63 - 1,
        "double": "NaN",
        "exact": "1.50",
        "bytes": "00ff",
        "day": "0001-01-01",
        "at": "2026-03-29T01:30:00.000001+00:00",
        "local": "2026-03-29T01:30:00",
        "nested": {"a": [1, None], "b": [["x", 1.5]]},
    }


NESTED = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.float64()))])


def test_a_row_that_json_cannot_hold_is_in_the_ledger(hook: FollowedWebhook) -> None:
    begun(hook)
    far = pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"k": ["far", "near"], "n": [1, 1], "closes_at": far})
    write_deltalake(hook.table.lake.uri(hook.table.name), rows, mode="overwrite")
    assert hook.run() == [("near", "insert", 1)]
    [row] = hook.refused()
    assert (row["key"], row["version"], row["output"]) == (key_of("far"), 1, "hook")


def test_a_full_queue_holds_the_reader(hook: FollowedWebhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_queue, "MOST_WAITING", 2)
    begun(hook)
    hook.table.put(("a", 1, None), ("b", 1, None), ("c", 1, None))
    assert hook.queue.has_room()
    hook.follow()
    assert not hook.queue.has_room()
    hook.send()
    assert hook.queue.has_room()


def test_a_process_that_is_behind_another_queues_nothing(hook: FollowedWebhook) -> None:
    begun(hook)
    hook.table.put(("a", 1, None))
    step = next_step(hook.table.lake, hook.table.table, hook.table.output, hook.queue.position(), hook.queue)
    assert step is not None
    hook.follow()
    with pytest.raises(WriteConflict, match="another process has moved the queue"):
        hook.queue.send(step.changes, step.before, step.after)
    hook.send()
    assert hook.receiver.take() == [("a", "insert", 1)]


def test_a_table_made_again_stops_its_webhook(hook: FollowedWebhook) -> None:
    hook.table.put(("a", 1, None))
    begun(hook)
    hook.table.create()
    hook.table.put(("a", 1, None))
    hook.table.put(("b", 1, None))
    for _ in range(2):
        with pytest.raises(ChangesGone, match=r"plant\.hours: what changed after .* made again") as stopped:
            hook.run()
    assert "./twofold outputs resend plant.hours --from N" in str(stopped.value)
    assert hook.resume(1) == 1
    assert hook.run() == [("b", "insert", 2)]


def test_a_vacuum_while_behind_stops_until_it_begins_now(hook: FollowedWebhook) -> None:
    hook.table.put(("a", 1, None))
    begun(hook)
    hook.table.put(("a", 2, None))
    hook.table.vacuum()
    with pytest.raises(ChangesGone):
        hook.run()
    assert hook.resume(None) == max(hook.table.versions)
    assert hook.run() == []
    hook.table.put(("b", 1, None))
    assert [found[:2] for found in hook.run()] == [("b", "insert")]


def test_what_is_sent_again_has_the_ids_that_it_had(hook: FollowedWebhook) -> None:
    begun(hook)
    for number in range(3):
        hook.table.put(("a", number, None), (f"b{number}", number, None))
        hook.table.remove(f"b{number}")
    hook.follow()
    hook.send()
    first = [(request.id, request.body) for request in hook.receiver.requests]
    hook.receiver.take()
    hook.resume(2)
    hook.follow()
    hook.send()
    again = [(request.id, request.body) for request in hook.receiver.requests]
    assert len(again) == 6
    assert sorted(again) == sorted(pair for pair in first if json.loads(pair[1])["version"] > 2)
    with pytest.raises(BadArgument, match=r"--from 7: expected now, or a version up to 6"):
        hook.resume(7)


def test_what_waits_and_is_queued_again_is_sent_in_order(hook: FollowedWebhook) -> None:
    begun(hook)
    for number in range(4):
        hook.table.put(("a", number, None))
    hook.follow()
    hook.sender.step(hook.now)
    assert hook.receiver.take() == [("a", "insert", 1)]
    hook.resume(2)
    assert hook.run() == [("a", "update", 2), ("a", "update", 3), ("a", "update", 4)]


def test_a_change_that_is_queued_again_while_it_is_sent_waits_its_turn(hook: FollowedWebhook) -> None:
    begun(hook)
    for number in range(3):
        hook.table.put(("a", number, None))
    hook.follow()
    hook.queue.accept(hook.queue.due(hook.now, 8))
    [second] = hook.queue.due(hook.now, 8)
    hook.resume(0)
    hook.follow()
    hook.queue.postpone(second, hook.now)
    for version in (1, 2, 3):
        [due] = hook.queue.due(hook.now, 8)
        assert due.version == version
        hook.queue.accept([due])


def test_closed_rows_are_sent_again_as_they_closed(hook: FollowedWebhook) -> None:
    """Neither the values that they had while they were open, nor what had closed before."""
    begun(hook, when="closed")
    hook.table.put(("old", 1, hour(1)), ("next", 1, hour(2)))
    hook.table.close_through(hour(1))
    assert hook.run() == [("old", "insert", 1)]
    hook.table.put(("next", 2, hour(2)), ("last", 1, hour(2)))
    assert hook.run() == []
    hook.table.put(("last", 2, hour(2)))
    hook.table.close_through(hour(2))
    assert sorted(hook.run()) == [("last", "insert", 3), ("next", "insert", 3)]
    hook.resume(1)
    assert sorted(hook.run()) == [("last", "insert", 3), ("next", "insert", 3)]
    hook.table.close_through(hour(9))
    hook.table.put(("later", 2, hour(5)))
    hook.resume(None)
    assert hook.run() == []


class Killed(Exception):
    """The process ends here."""


@contextmanager
def killed_after(statements: int) -> Iterator[list[int]]:
    """Ends the process in place of the statement of SQLite after so many; yields how many there were."""
    ran: list[int] = []

    class Dying(sqlite3.Connection):
        def execute(self, *values: Any) -> Any:
            if len(ran) == statements:
                raise Killed
            if not str(values[0]).lstrip().startswith("CREATE"):
                ran.append(len(ran))
            return super().execute(*values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Dying))
        with suppress(Killed):
            yield ran


@pytest.mark.platform
def test_a_process_killed_at_any_statement_loses_and_doubles_no_change(hook: FollowedWebhook) -> None:
    """What is sent twice has one id and one body; the last of each key is the last that was first seen."""
    begun(hook)
    statements, ran = 0, [0]
    expected: list[tuple[str, str, int]] = []
    while len(ran) >= statements:  # until it ends before it is killed
        statements += 1
        hook.table.put(("a", statements, None), (f"new {statements}", statements, None))
        hook.table.put(("a", -statements, None))
        one, other = 2 * statements - 1, 2 * statements
        kind = "insert" if statements == 1 else "update"
        expected += [("a", kind, one), (f"new {statements}", "insert", one), ("a", "update", other)]
        with killed_after(statements) as ran:
            hook.follow()
            hook.send()
        hook.follow()
        hook.send()
    assert statements > 20
    counted = hook.receiver.counted
    assert sorted(request.brief for request in counted.values()) == sorted(expected)
    assert len(hook.receiver.requests) > len(counted)
    assert all(counted[request.id].body == request.body for request in hook.receiver.requests)
    in_order = [request.brief[2] for request in counted.values() if request.brief[0] == "a"]
    assert in_order == sorted(in_order)
    assert hook.queue.waiting() == (0, "")


EVENTS = st.one_of(
    st.tuples(st.just("put"), ROWS),
    st.tuples(st.just("remove"), st.sampled_from("abcdefg")),
    st.tuples(st.just("restore"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["compact", "step", "step", "follow"]), st.none()),
    st.tuples(st.just("close"), st.integers(0, 9)),
    st.tuples(
        st.just("output"),
        st.sampled_from(
            [
                to_webhook("hook", begin="all"),
                to_webhook("hook", columns=["k", "closes_at"], begin="all"),
                to_webhook("hook", when="closed", begin="all"),
                to_webhook("hook", where=[between("n", 5, None)], begin="all"),
            ]
        ),
    ),
)
"""What happens to a table whose webhook is not stopped by it."""


@pytest.mark.platform
@pytest.mark.usefixtures("small_pages")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=12), lost=st.sets(st.integers(0, 30)))
def test_the_changes_make_the_table_whatever_happens(events: list[tuple[str, Any]], lost: set[int]) -> None:
    """A receiver that counts each id once, and loses its connection at times, has the rows of the table."""
    tries = iter(range(10_000))

    def answer(_: Request) -> Any:
        return None if next(tries) in lost else (200, {}, "")

    with TemporaryDirectory() as home, receiving(Receiver(answer)) as receiver:
        hook = FollowedWebhook(Lake(Settings(home=Path(home) / "home")), receiver, to_webhook("hook", begin="all"))
        restorable = [0]
        for event in [*events, ("follow", None)]:
            happen(hook.table, hook.queue, event, restorable)
            restorable.append(max(hook.table.versions))
            hook.wait(3)
        rows: dict[str, Any] = {}
        for change in (request.change for request in receiver.counted.values()):
            key = json.dumps(change["key"])
            assert (rows.get(key) is None) == (change["before"] is None)
            rows[key] = change["after"]
        at = hook.queue.position()
        assert at is not None
        columns = list(hook.table.output.columns or SCHEMA.names)
        found = [[None if v is None else str(v) for v in row.values()] for row in rows.values() if row is not None]
        should = [
            [None if v is None else v.isoformat() if isinstance(v, datetime) else str(v) for v in row[1:]]
            for row in hook.table.expected(at)
        ]
        assert all(list(row) == columns for row in rows.values() if row is not None)
        assert sorted(found, key=repr) == sorted(should, key=repr)

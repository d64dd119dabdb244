"""Each change of a table is called out under one id, in order by key, whatever is killed, moved back or made again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.infra.webhooks.signed import secret
from twofold import between, to_webhook
from twofold.features.outputs.tests.followed_table import hour
from twofold.features.outputs.tests.followed_webhook import FollowedWebhook
from twofold.features.outputs.tests.moved_outputs import WRITES, called
from twofold.features.outputs.tests.targets.target_contract import Kind, TargetContract
from twofold.features.outputs.tests.webhook_receiver import Receiver, receiving
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ChangesGone


@pytest.fixture
def hook(lake: Lake) -> Iterator[FollowedWebhook]:
    with receiving(Receiver()) as receiver:
        yield FollowedWebhook(lake, receiver)


class TestContract(TargetContract):
    @pytest.fixture
    def kind(self) -> Kind:
        return Kind(
            output=to_webhook("there", begin="all"),
            address=f"http://127.0.0.1:9/hook {secret()}",
            rows=lambda moved, columns: called(moved),
            writes=WRITES,
            changes=lambda moved: [{"id": id, **change} for id, change in moved.arrived],
            examples=20,
        )


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

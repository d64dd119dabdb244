"""An output sends the difference of its table between two positions, whatever happened to the table meanwhile."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from twofold import between
from twofold.features.outputs import next_step as reading
from twofold.features.outputs.commands.resend import resend_all, resend_from
from twofold.features.outputs.next_step import Step
from twofold.features.outputs.tests.followed_table import SCHEMA, FollowedTable, MemoryCopy, hour, key_of
from twofold.infra.delta.delta_writer import CHANGE, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, SchemaMismatch
from twofold.tables.output_view import KEY, View


@pytest.fixture
def followed(lake: Lake) -> FollowedTable:
    return FollowedTable(lake)


def changes(step: Step) -> list[tuple[str, str]]:
    return sorted((change[KEY], change[CHANGE]) for change in step.changes.to_pylist())


def sent(steps: list[Step]) -> list[tuple[str, str]]:
    return sorted(change for step in steps for change in changes(step))


def test_a_new_output_starts_with_all_rows(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.put(("a", 1, hour(1)), (None, 2, None))
    assert sent(followed.follow(copy)) == [(key_of("a"), "insert"), (key_of(None), "insert")]
    assert copy.rows(SCHEMA.names) == [('{"k":"a"}', "a", 1, hour(1)), ('{"k":null}', None, 2, None)]
    assert followed.step(copy) is None


def test_a_key_that_is_no_number_is_json() -> None:
    view = View(key=("x", "k"), columns=("k",), where=(), closes_at=None)
    numbers = [float("nan"), float("inf"), float("-inf"), 0.5, None]
    rows = pa.table({"x": pa.array(numbers), "k": ["NaN", "b", "c", "d", "e"]})
    keys = view.rows(rows, None)[KEY].to_pylist()
    assert [json.loads(key, parse_constant=pytest.fail)["x"] for key in keys] == [
        "NaN", "Infinity", "-Infinity", 0.5, None
    ]  # fmt: skip
    assert keys[3:] == ['{"x":0.5,"k":"d"}', '{"x":null,"k":"e"}']


def test_many_commits_are_one_net_difference(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.put(("a", 1, None), ("b", 1, None), ("c", 1, None))
    followed.follow(copy)
    followed.put(("a", 2, None), ("d", 1, None))
    followed.put(("a", 3, None), ("b", 2, None))
    followed.put(("b", 1, None))
    followed.remove("c", "d")
    [step] = followed.follow(copy)
    assert changes(step) == [(key_of("a"), "update"), (key_of("c"), "delete")]


def test_a_commit_that_changes_no_row_moves_the_position_alone(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.put(("a", 1, None))
    followed.put(("b", 1, None))
    followed.follow(copy)
    followed.compact()
    [step] = followed.follow(copy)
    assert (changes(step), step.after.version) == ([], 3)


def test_a_roll_back_behind_fifty_commits_sends_net_rows(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.put(("a", 0, None), ("b", 0, None), ("gone", 0, None))
    followed.put(("c", 0, None))
    followed.follow(copy)
    for number in range(50):
        followed.put(("a", number, None), (f"new {number % 7}", number, None))
    followed.remove("gone")
    followed.restore(1)
    [step] = followed.follow(copy)
    assert changes(step) == [(key_of("c"), "delete")]
    assert copy.rows(["n"]) == [(key_of("a"), 0), (key_of("b"), 0), (key_of("gone"), 0)]


def test_a_table_made_again_sends_the_difference_to_its_copy(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.put(("a", 1, None), ("b", 1, None))
    followed.put(("c", 1, None))
    followed.follow(copy)
    followed.create()
    followed.put(("a", 1, None), ("b", 2, None))
    assert sent(followed.follow(copy)) == [(key_of("b"), "update"), (key_of("c"), "delete")]


def test_a_log_put_back_from_a_backup_is_noticed(followed: FollowedTable, tmp_path: Path) -> None:
    """The table keeps its id and gets to the same version by other rows."""
    copy, place = MemoryCopy(), Path(followed.lake.uri(followed.name))
    followed.put(("a", 1, None))
    shutil.copytree(place, tmp_path / "backup")
    followed.put(("b", 1, None))
    followed.follow(copy)
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "backup", place)
    followed.writer = Writer(followed.lake, followed.name)
    followed.put(("c", 1, None))
    assert sent(followed.follow(copy)) == [(key_of("b"), "delete"), (key_of("c"), "insert")]


def test_a_vacuum_and_another_condition_while_an_output_is_down(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.put(("a", 1, None), ("b", 7, None), ("c", 7, None), ("d", 8, None))
    followed.follow(copy)
    followed.put(("c", 2, None), ("d", 9, None))
    followed.vacuum()
    followed.with_output(where=[between("n", 5, None)])
    assert sent(followed.follow(copy)) == [(key_of("a"), "delete"), (key_of("c"), "delete"), (key_of("d"), "update")]
    assert copy.rows(["n"]) == [(key_of("b"), 7), (key_of("d"), 9)]


def test_a_correction_as_its_row_closes_is_one_row(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.with_output(when="closed")
    followed.put(("a", 1, hour(1)), ("b", 1, hour(2)))
    followed.close_through(hour(0))
    assert sent(followed.follow(copy)) == []
    followed.put(("a", 2, hour(1)))
    followed.close_through(hour(1))
    assert sent(followed.follow(copy)) == [(key_of("a"), "insert")]
    assert copy.rows(["n"]) == [(key_of("a"), 2)]


def test_a_later_correction_replaces_the_closed_row(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.with_output(when="closed")
    followed.put(("a", 1, hour(1)), ("b", 1, hour(9)))
    followed.close_through(hour(1))
    followed.follow(copy)
    followed.put(("a", 2, hour(1)), ("b", 2, hour(9)))
    [step] = followed.follow(copy)
    [change] = step.changes.to_pylist()
    assert (change[KEY], change[CHANGE], change["_before_n"], change["n"]) == (key_of("a"), "update", 1, 2)


def test_what_has_closed_stays_closed(followed: FollowedTable) -> None:
    """A stream that is made again begins with an older watermark."""
    copy = MemoryCopy()
    followed.with_output(when="closed")
    followed.put(("a", 1, hour(1)))
    followed.close_through(hour(1))
    followed.follow(copy)
    followed.close_through(hour(0))
    followed.put(("b", 1, hour(1)))
    assert sent(followed.follow(copy)) == [(key_of("b"), "insert")]


def test_a_row_is_sent_by_the_version_that_closed_it(followed: FollowedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values of before are in commits that an output reads first if it is far behind."""
    copy = MemoryCopy()
    followed.with_output(when="closed")
    followed.close_through(hour(0))
    followed.follow(copy)
    monkeypatch.setattr(reading, "MOST_ROWS", 1)
    for number in range(4):
        followed.put(("a", number, hour(1)))
    followed.close_through(hour(1))
    assert sent(followed.follow(copy)) == [(key_of("a"), "insert")]
    assert copy.rows(["n"]) == [(key_of("a"), 3)]


def test_other_columns_are_sent_to_the_rows_that_have_them(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.with_output(columns=["n"])
    followed.put(("a", 1, hour(1)), ("b", 1, None))
    followed.follow(copy)
    followed.with_output(columns=["n", "closes_at"])
    assert sent(followed.follow(copy)) == [(key_of("a"), "update")]


def test_a_column_of_another_type_is_sent_again(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.put(("a", 1, None), ("b", None, None))
    followed.follow(copy)
    followed.overwrite(
        pa.table(
            {"k": ["a", "b"], "n": pa.array(["1", None], pa.string()), "closes_at": [None, None]},
            schema=SCHEMA.set(1, pa.field("n", pa.string())),
        )
    )
    assert sent(followed.follow(copy)) == [(key_of("a"), "update")]
    assert copy.rows(["n"]) == [(key_of("a"), "1"), (key_of("b"), None)]


def test_a_column_that_the_table_lost_is_named(followed: FollowedTable) -> None:
    copy = MemoryCopy()
    followed.with_output(columns=["n"])
    followed.overwrite(pa.table({"k": ["a"], "closes_at": pa.array([None], SCHEMA.field("closes_at").type)}))
    with pytest.raises(SchemaMismatch, match="An output reads n, which its table lacks"):
        followed.follow(copy)


def test_a_large_commit_is_read_by_pages(followed: FollowedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = MemoryCopy()
    followed.put(*((f"k{n}", n, None) for n in range(40)))
    followed.follow(copy)
    monkeypatch.setattr(reading, "MOST_ROWS", 10)
    followed.put(*((f"k{n}", -n, None) for n in range(1, 30)))
    steps = followed.follow(copy)
    assert len(steps) == 5
    assert len(steps[0].changes) == 0
    assert max(len(step.changes) for step in steps) < 29
    assert sent(steps) == sorted((key_of(f"k{n}"), "update") for n in range(1, 30))


def test_rows_that_change_between_pages_come_after_the_last(
    followed: FollowedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 10)
    copy = MemoryCopy()
    followed.put(*((f"k{n}", n, None) for n in range(30)))
    for _ in range(2):
        followed.step(copy)
    monkeypatch.setattr(reading, "MOST_ROWS", 100)
    followed.put(("k1", 100, None), ("k2", 100, None))
    followed.remove("k3")
    steps = followed.follow(copy)
    assert steps[-1].before is not None
    assert steps[-1].before.version == 1
    assert changes(steps[-1]) == [(key_of("k1"), "update"), (key_of("k2"), "update"), (key_of("k3"), "delete")]


def test_a_heading_whose_rows_are_gone_is_given_up(followed: FollowedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 10)
    copy = MemoryCopy()
    followed.put(*((f"k{n}", n, None) for n in range(30)))
    for _ in range(2):
        followed.step(copy)
    followed.put(*((f"k{n}", 1, None) for n in range(30)))
    followed.vacuum()
    followed.follow(copy)
    assert copy.rows(["n"]) == sorted((key_of(f"k{n}"), 1) for n in range(30))


def test_a_table_that_does_not_exist_yet_is_waited_for(followed: FollowedTable) -> None:
    shutil.rmtree(followed.lake.uri(followed.name))
    assert followed.step(MemoryCopy()) is None


def test_versions_that_cannot_be_sent_again_are_named(followed: FollowedTable) -> None:
    table, lake, copy = followed.table, followed.lake, MemoryCopy()
    with pytest.raises(BadArgument, match=r"Nothing of plant\.hours was sent yet"):
        resend_all(copy, lake, table)
    for number in range(3):
        followed.put(("a", number, None))
    followed.follow(copy)
    for version in (3, 9):
        with pytest.raises(BadArgument, match=r"expected a version from 0 to 2; the copy of plant\.hours shows 3"):
            resend_from(copy, lake, table, version)
    followed.vacuum()
    with pytest.raises(BadArgument, match="cannot be read: files of them were removed"):
        resend_from(copy, lake, table, 1)

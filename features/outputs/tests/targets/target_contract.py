"""The contract of what holds the copy of an output: written once, and met by each kind of target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings

from tests.support.personal_search import found_in
from twofold import between
from twofold.features.outputs.commands.resend import resend_all, resend_from, resume
from twofold.features.outputs.copy_comparison import compare_copy
from twofold.features.outputs.next_step import next_step, page_of
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.output_target import Target
from twofold.features.outputs.refused_rows import REFUSED
from twofold.features.outputs.tests.followed_table import SCHEMA, FollowedTable, hour, key_of
from twofold.features.outputs.tests.followed_webhook import lake_with
from twofold.features.outputs.tests.moved_outputs import MovedOutput, Row, as_json
from twofold.features.outputs.tests.revealed_table import RevealedTable, mail_of
from twofold.features.persons.certificate import certify
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ChangesGone, WriteConflict
from twofold.infra.project.settings import Settings
from twofold.tables.declare.output import Output
from twofold.tables.declare.registry import Registry
from twofold.tables.output_view import KEY
from twofold.tables.refresh.row_diff import difference

_numbers = count(1)
FOLLOW = ("follow", None)
HISTORY: list[tuple[str, Any]] = [
    (
        "put",
        [("a", 1, hour(1)), ('it\'s \\ "so",\n', None, None), (None, 2**62, hour(-1)), ("", 0, None), ("b", 1, None)],
    ),
    FOLLOW,
    ("put", [("a", 2, hour(1)), ("c", 1, None)]),
    ("remove", ""),
    FOLLOW,
    ("remove", "a"),
    ("put", [("c", 6, hour(2)), ("d", 1, None)]),
    FOLLOW,
    ("restore", 2),
    ("trim", None),
    FOLLOW,
    ("put", [("d", 9, hour(3))]),
    ("output", {"columns": ["k", "n"]}),
    FOLLOW,
    ("close", 2),
    ("output", {"when": "closed"}),
]
"""Rows are inserted, edited and deleted, come back by a restore, and change while others close or are left out."""
ROWS = st.tuples(st.sampled_from([*"abcdefg", None]), st.integers(0, 9), st.integers(0, 9).map(hour))
EVENTS = st.one_of(
    st.tuples(st.just("put"), st.lists(ROWS, min_size=1, max_size=6, unique_by=lambda row: row[0])),
    st.tuples(st.just("remove"), st.sampled_from("abcdefg")),
    st.tuples(st.just("restore"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["compact", "vacuum", "trim", "create", "follow"]), st.none()),
    st.tuples(st.just("move"), st.tuples(st.sampled_from([1, 1, -1]), st.none() | st.integers(0, 20))),
    st.tuples(st.just("close"), st.integers(0, 9)),
    st.tuples(
        st.just("output"),
        st.sampled_from([{}, {"columns": ["k", "n"]}, {"when": "closed"}, {"where": [between("n", 5, None)]}]),
    ),
)
"""What happens to a table or its output, whose process can end in a move before the write after so many."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of target, as its tests see it.

    Attributes:
        output: as a table declares it, with the destination `there` if it has one.
        rows: reads the rows that the copy shows, with these columns.
        writes: what it calls before each of its writes, and after the last: who has the function, and its name.
        address: of the destination.
        revealing: parameters of the output by which it reveals the column `mail`.
        changes: reads the changes that have arrived, of a kind that cannot be read.
        folders: of files that have the values in the clear.
        examples: of random histories.
    """

    output: Output
    rows: Callable[[MovedOutput, Sequence[str]], Iterable[Row]]
    writes: Sequence[tuple[Any, str]]
    address: str = "nowhere"
    revealing: Mapping[str, Any] = field(default_factory=lambda: {"reveal": ["mail"]})
    changes: Callable[[MovedOutput], list[Row]] = lambda moved: []
    folders: Callable[[], Sequence[Path]] = lambda: ()
    examples: int = 8


class World:
    """A table, and one output of a kind, whose copy nobody had before."""

    def __init__(self, kind: Kind, table: Any, lake: Lake, page: int = 3, **changes: Any) -> None:
        self.kind, self.page, self.output = kind, page, replace(kind.output, name=f"copy_{next(_numbers)}", **changes)
        self.table = table(lake_with(lake, {"there": kind.address}), self.output)
        self.lake, self.arrived = self.table.lake, []
        self.declare()

    def declare(self, **changes: Any) -> None:
        """Declare the output otherwise."""
        self.table.output = replace(self.output, **changes)
        table, writes = self.table.table, self.kind.writes
        self.moved = MovedOutput(self.lake, table, self.table.output, self.page, writes, self.arrived)

    def open(self) -> Target:
        """Open the target, as a process does that starts now."""
        return open_target(self.lake, self.table.table, self.table.output)

    def rows(self) -> list[Row]:
        """The rows that the copy shows; values of columns that are declared no more may stay."""
        columns = self.table.output.columns or self.lake.open(self.table.name).schema().to_arrow().names
        return [{name: row.get(name) for name in columns} for row in self.kind.rows(self.moved, columns)]

    def check(self, said: object = "") -> None:
        """The copy shows the newest version of the table, and nothing else."""
        at = self.open().position()
        assert at is not None
        assert (at.heading, at.version) == (None, max(self.table.versions))
        columns = self.table.output.columns or SCHEMA.names
        should = [dict(zip(columns, row[1:], strict=True)) for row in self.table.expected(at)]
        rows = as_json(self.rows())
        assert rows == as_json(should), said


class TargetContract:
    """What each kind of target proves: a class for it has the fixture `kind`."""

    @pytest.fixture(autouse=True)
    def noted_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("twofold.infra.delta.history._NOTED_EVERY_S", 0.0)

    @pytest.fixture
    def world(self, kind: Kind, lake: Lake) -> World:
        return World(kind, FollowedTable, lake)

    def test_it_equals_its_table_whatever_happens(self, kind: Kind) -> None:
        """Rows and the output change, history goes, the table goes back, and processes end between any two writes.

        What cannot be read stops if the table is made again, or loses what it needs.
        """
        lost = () if kind.output.is_read else ("vacuum", "create")
        events = st.lists(EVENTS.filter(lambda event: event[0] not in lost), max_size=10)

        @settings(max_examples=kind.examples, suppress_health_check=list(HealthCheck))
        @example(HISTORY)
        @given(events)
        def run(events: list[tuple[str, Any]]) -> None:
            with TemporaryDirectory() as home:
                world = World(kind, FollowedTable, Lake(Settings(home=Path(home) / "home")))
                let_happen(world, events)

        run()

    @pytest.mark.parametrize("goes_back", [True, False])
    def test_a_step_killed_at_any_write_is_there_as_a_whole(self, world: World, goes_back: bool) -> None:
        """The table goes back before the next process starts, or does not."""
        table = world.table
        table.put(("a", 0, None))
        world.moved.move()
        for writes in count():
            back = world.lake.version(table.name)
            table.put(("a", writes + 1, None), (f"ghost {writes}", 1, None))
            ran = world.moved.move(-1, writes)
            if goes_back:
                table.restore(back)
            world.moved.move()
            world.check(f"killed after {ran}")
            if len(ran) < writes:  # it ended before it was killed
                break
        assert writes > 3

    def test_a_process_behind_another_changes_nothing(self, world: World) -> None:
        table = world.table
        table.put(("a", 1, None))
        older, newer = world.open(), world.open()
        table.follow(older)
        table.put(("a", 2, None), ("b", 2, None))
        step = next_step(world.lake, table.table, table.output, older.position(), older)
        assert step is not None
        table.follow(newer)
        table.put(("a", 3, None))
        table.remove("b")
        table.follow(newer)
        with pytest.raises(WriteConflict):
            older.send(step.changes, step.before, step.after)
        world.check()
        table.put(("a", 4, None))
        world.moved.move()
        world.check()

    def test_a_row_that_it_cannot_have_is_in_the_ledger(self, world: World) -> None:
        """Once; the others are there, and so is none that it was before, in what can be read."""
        table = world.table
        if world.output.is_read:
            table.put(("far", 0, None))
            world.moved.move()
        table.put_far("far")
        table.put(("near", 1, None))
        world.moved.move()
        if world.output.is_read:
            resend_all(world.open(), world.lake, table.table)
            world.moved.start()
            world.moved.move()
        world.check()
        [row] = pa.table(world.lake.open(REFUSED).scan()).to_pylist()
        place = (row["table"], row["output"], row["key"], row["version"])
        assert place == (table.name, world.output.name, key_of("far"), max(table.versions))
        assert row["reason"]

    def test_rows_are_sent_again(self, world: World) -> None:
        """A copy gets what differs, and changes come once more; those that are lost must be asked for."""
        table = world.table
        table.put(("a", 1, hour(1)), ("b", 1, None), ("c", 1, None))
        world.moved.move()
        table.put(("b", 2, None), ("d", 1, None))
        table.remove("c")
        world.moved.move()
        (self._compare if world.output.is_read else self._repeat)(world)

    def _compare(self, world: World) -> None:
        table, target = world.table, world.open()
        at = target.position()
        assert at is not None
        rows = page_of(world.lake, table.name, at, 0, 1)
        edited = [{**row, "n": 7 if row["k"] == "b" else row["n"]} for row in rows.to_pylist()]
        ghost = {**edited[0], KEY: key_of("ghost"), "k": "ghost"}
        for others, number in (([*edited, ghost], None), (edited, 0)):
            target = world.open()
            target.send(difference(pa.Table.from_pylist(others, rows.schema), rows, [KEY]), at, at)
            assert self._differing(world) == (3, 1 if number == 0 else 2)
            if number is None:
                resend_all(world.open(), world.lake, table.table)
            else:
                assert resend_from(world.open(), world.lake, table.table, number) == 3
            world.moved.start()
            world.moved.move()
            world.check()
            assert self._differing(world) == (3, 0)
            at = world.open().position()

    def _differing(self, world: World) -> tuple[int, int]:
        compared = compare_copy(world.lake, world.table.table, world.open())
        assert compared is not None
        return compared.rows, compared.differing

    def _repeat(self, world: World) -> None:
        table, first = world.table, world.kind.changes(world.moved)
        assert len(first) == 6
        assert resume(world.open(), world.lake, table.table, table.output, 1) == 1
        world.moved.start()
        world.moved.move()
        again = world.kind.changes(world.moved)[6:]
        assert as_json(again) == as_json(first[3:])
        table.create()
        table.put(("a", 1, None))
        table.put(("e", 1, None))
        for _ in range(2):
            with pytest.raises(ChangesGone, match=r"plant\.hours: what changed after .* made again"):
                world.moved.move()
        assert resume(world.open(), world.lake, table.table, table.output, 1) == 1
        world.moved.start()
        world.moved.move()
        [last] = world.kind.changes(world.moved)[9:]
        assert (last["before"], last["after"]["k"]) == (None, "e")

    def test_it_forgets_a_person(self, kind: Kind, lake: Lake) -> None:
        """Also if its process ends at any write meanwhile, or the output reveals no more; erased it has nothing."""
        world = World(kind, RevealedTable, lake, page=100, **kind.revealing)
        people: RevealedTable = world.table
        names = [f"{world.output.name} {number}" for number in range(50)]
        people.put(*names, f"{names[0]} to {names[-1]}")
        world.moved.move()
        mails = {mail_of(name)[4:]: name for name in names}
        found = found_in(kind.folders(), list(mails))
        # A format shares what is alike: not each one is there in one piece.
        assert len(found) >= 10 * len(kind.folders()), "the search of bytes finds what is there"
        names.sort(key=lambda name: mail_of(name)[4:] not in found)
        for writes in count():
            gone = names[: writes + 1]
            people.forget(gone[-1])
            ran = world.moved.move(-1, writes)
            world.moved.move()
            assert {row["k"]: row["mail"] for row in world.rows()} == people.without(*gone), f"killed after {ran}"
            assert found_in(kind.folders(), [mail_of(gone[-1])[4:]]) == {}, f"killed after {ran}"
            if len(ran) < writes:
                break
        self._is_certified(world, gone[-1])
        if world.output.is_read:
            world.declare(reveal=())
            world.moved.move()
            assert found_in(kind.folders(), list(found)[:5]) == {}
            world.declare()
            world.moved.move()
            for _ in range(2):
                world.open().erase()
            assert (world.open().position(), world.rows()) == (None, [])
            assert found_in(kind.folders(), list(found)[:5]) == {}

    def _is_certified(self, world: World, name: str) -> None:
        outputs = [(world.table.table, world.output)]
        registry = cast("Registry", SimpleNamespace(topics={}, outputs=lambda: outputs))
        with closing(KeyStore(world.lake.settings)) as store:
            state = store.state_of(person := Person("customer", name))
            assert state is not None
            found = certify(world.lake, registry, store, store.ref(person), state)
        assert found.is_complete
        assert found.elsewhere[0] == f"plant.hours: {world.output.name}: {world.output.elsewhere}."


def let_happen(world: World, events: Sequence[tuple[str, Any]]) -> None:
    """Let these events happen; whenever the output has followed, the copy is the table."""
    table, restorable = world.table, [0]
    for event, value in [*events, FOLLOW]:
        match event:
            case "put":
                table.put(*value)
            case "remove":
                table.remove(value)
            case "restore":
                if (version := restorable[value % len(restorable)]) < max(table.versions):
                    table.restore(version)
            case "close":
                table.close_through(hour(value))
            case "output":
                world.declare(**value)
            case "move":
                world.moved.move(*value)
            case "follow":
                world.moved.move()
                world.check()
            case _:
                getattr(table, event)()
        if event in ("vacuum", "trim", "create"):
            restorable = []
        restorable.append(max(table.versions))

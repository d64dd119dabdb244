"""What outputs reveal of a person is gone once they have caught up, whatever was killed, rolled back or put back.

There is no Spark. A small table has values of persons, encrypted; an index and a webhook reveal them. This is a machine
of its own, since sums of windows have no value of a person: in that of `tests/chaos/test_refresh_model.py` it would
share no step.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import cast
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.chaos.refresh_world import Killed, dying
from tests.harness.tiers import this_run
from tests.infra.webhooks.signed import secret
from tests.support.personal_search import found_in
from tests.support.short_history import NOTHING
from twofold import to_search, to_webhook
from twofold.features.outputs.tests.followed_webhook import lake_with
from twofold.features.outputs.tests.moved_outputs import MovedOutput, as_json
from twofold.features.outputs.tests.revealed_table import RevealedTable, mail_of
from twofold.features.persons.keys.ended_keys import EndedKeys
from twofold.features.persons.keys.key_store import Person
from twofold.features.search.search_index import SearchIndex
from twofold.features.search.tests.moved_index import moved_index
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.trim import Trim
from twofold.infra.errors import TryAgain
from twofold.infra.project.settings import Settings

RUNS = 20 * (this_run.kills or this_run.worlds) or 2
PERSONS = ["ann", "bob", "cat"]
KEYS = [*PERSONS, "ann to bob", "bob to cat"]
WRITES = st.none() | st.integers(0, 12)


class Forgetting(RuleBasedStateMachine):
    """A table, two outputs that reveal its mails, and the keys of three persons, whose first backup has them all."""

    @initialize(keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    def begin(self, keys: list[str]) -> None:
        self.home = Path(mkdtemp(prefix="twofold-forgetting-"))
        self.at_once = patch("twofold.infra.delta.history._NOTED_EVERY_S", 0.0)
        self.at_once.start()
        destinations = {"hook": f"http://127.0.0.1:9 {secret()}"}
        self.lake = lake_with(Lake(Settings(home=self.home / "home")), destinations)
        self.people = RevealedTable(self.lake)
        self.people.with_keys(lambda store: store.keys_of([Person("customer", name) for name in PERSONS]))
        self.back_up()
        self.outputs = [
            moved_index(self.lake, self.people.table, to_search(text=["mail", "note"], reveal=["mail"])),
            MovedOutput(self.lake, self.people.table, to_webhook("hook", begin="all", reveal=["mail"])),
        ]
        self.forgotten: set[str] = set()
        self.mails: dict[str, str] = {}
        self.versions = {self.lake.version(self.people.name): dict(self.people.rows)}
        self.put(keys, 0)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True), number=st.integers(0, 2))
    def put(self, keys: list[str], number: int) -> None:
        """Rows get mails, each its own; those of the forgotten have none."""
        for key in keys:
            mail = mail_of(f"{key} {number}")
            self.people.put(key, mail=mail)
            self.mails[mail] = key
            self._note()

    @rule(key=st.sampled_from(KEYS))
    def remove(self, key: str) -> None:
        self.lake.open(self.people.name).delete(f"k = '{key}'")
        self.people.rows.pop(key, None)
        self._note()

    @rule(back=st.integers(1, 5))
    def roll_back(self, back: int) -> None:
        """The table goes back by some versions, as far as its files are there."""
        newest = self.lake.version(self.people.name)
        version = max(newest - back, self.lake.history(self.people.name).floor().rows)
        if version < newest:
            self.lake.open(self.people.name).restore(version)
            self.people.rows = dict(self.versions[version])
            self._note()

    @rule()
    def compact(self) -> None:
        self.lake.open(self.people.name).optimize.compact()
        self._note()

    def _note(self) -> None:
        """Versions between have no other rows: a trim changes properties alone."""
        newest = self.lake.version(self.people.name)
        self.versions |= dict.fromkeys(range(max(self.versions) + 1, newest), self.versions[max(self.versions)])
        self.versions[newest] = dict(self.people.rows)

    @rule()
    def trim(self) -> None:
        """The history of the table goes as far as its readers allow; its writer opens it again, as after a minute."""
        self.lake.open(self.people.name).create_checkpoint()
        Trim(self.lake, self.people.name, NOTHING).now()
        self.people.writer = Writer(self.lake, self.people.name)
        self._note()

    @rule(name=st.sampled_from(PERSONS), is_done=st.sampled_from([None, None, False, True]))
    def forget(self, name: str, is_done: bool | None) -> None:
        """A person is forgotten by a process that may end before or after the lake knows of it.

        Before that the end is due, and ends with the next who opens the keys; no store is put back in between.
        """
        if is_done is None:
            self.people.forget(name)
        else:
            with dying((EndedKeys, "add"), is_done=is_done), suppress(Killed):
                self.people.forget(name)
        if is_done is False:
            self.people.with_keys(lambda store: None)
        self.forgotten.add(name)

    @rule()
    def back_up(self) -> None:
        file = self.home / "backup"
        file.unlink(missing_ok=True)
        self.people.with_keys(lambda store: store.backup(file))

    @rule()
    def put_back(self) -> None:
        """The keys are those of the backup again, also of persons who were forgotten after it."""
        shutil.copy(self.home / "backup", self.lake.settings.keys_file)

    @rule(which=st.integers(0, 1), most=st.integers(1, 4), writes=WRITES)
    def move(self, which: int, most: int, writes: int | None) -> None:
        """An output takes some steps, unless its process ends before the write after so many."""
        self.outputs[which].move(most, writes)

    @rule(which=st.integers(0, 1), key=st.sampled_from(KEYS), number=st.integers(0, 2), writes=st.integers(2, 5))
    def cut_short(self, which: int, key: str, number: int, writes: int) -> None:
        """An output's process ends in a step, after which its table goes back."""
        self.outputs[which].move()
        self.put([key], number)
        self.outputs[which].move(1, writes)
        self.roll_back(1)

    @rule()
    def search(self) -> None:
        """The index finds nobody by a mail of the forgotten, wherever it is."""
        index = cast(SearchIndex, self.outputs[0].target)
        for mail in self._gone:
            with suppress(TryAgain):
                assert index.find(mail, 10) == []

    @rule()
    def compare(self) -> None:
        """Outputs that have caught up show the table without what is forgotten, and have no byte of that."""
        should = self.people.without(*self.forgotten)
        rows = pa.table(self.lake.open(self.people.name).scan()).to_pylist()
        assert {row["k"] for row in rows} == set(should)
        for output in self.outputs:
            output.move()
            assert output.rows() == as_json({**row, "mail": should[row["k"]]} for row in rows)
        assert found_in([self.home / "home" / "search", self.home / "home" / "outputs"], self._gone) == {}

    @property
    def _gone(self) -> list[str]:
        """The mails of who is forgotten."""
        return [mail for mail, key in self.mails.items() if self.forgotten & set(key.split(" to "))]

    def teardown(self) -> None:
        try:
            self.compare()
            self.put_back()
            self.compare()
        finally:
            self.at_once.stop()
            shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture
def world() -> Iterator[Forgetting]:
    """The steps, to be taken one by one."""
    world = Forgetting()
    world.begin(["ann", "bob"])
    yield world
    world.teardown()


def test_a_webhook_that_is_behind_goes_on_once_a_person_is_forgotten(world: Forgetting) -> None:
    """It gets the rows of its version again, whose files were replaced since, and trimmed."""
    world.compare()
    world.put(["ann", "bob"], 1)
    world.trim()
    world.forget("ann", is_done=None)
    world.compare()


Forgetting.TestCase.settings = settings(
    max_examples=RUNS, stateful_step_count=20, suppress_health_check=list(HealthCheck)
)
for mark in (pytest.mark.kills, pytest.mark.worlds, pytest.mark.timeout(60 + 30 * RUNS)):
    mark(Forgetting.TestCase)
test_outputs_have_nothing_of_who_is_forgotten = Forgetting.TestCase

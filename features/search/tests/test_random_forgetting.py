"""Whatever is edited, restored or killed, a certificate that says complete is one of bytes that have nothing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.harness.tiers import this_run
from tests.support.personal_search import found_in
from twofold import to_search
from twofold.features.outputs import next_step as reading
from twofold.features.outputs.open_target import open_place, open_target
from twofold.features.outputs.revealed_places import Place, note_revealed, revealed_places
from twofold.features.outputs.tests.revealed_table import RevealedTable, mail_of
from twofold.features.persons.certificate import certify
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.search.search_index import SearchIndex
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.output import Output
from twofold.tables.declare.registry import Registry

NAMES = [f"person{number}" for number in range(9)]
OUTPUTS: list[Output | None] = [
    None,
    to_search(text=["note"]),
    to_search(text=["note"], reveal=["mail"]),
    to_search(text=["mail", "note"], reveal=["mail"]),
    to_search(text=["mail"], reveal=["mail", "note"]),
    to_search(text=["mail"], reveal=["mail"], name="other"),
    to_search(text=["mail"], reveal=["mail"], name="third"),
]
STEPS = 50


class World:
    """A table whose persons are forgotten, and its output, which changes."""

    def __init__(self, home: Path, seed: int) -> None:
        self.chance, self.home = random.Random(seed), home
        self.people = RevealedTable(Lake(Settings(home=home)))
        self.output: Output | None = OUTPUTS[3]
        self.forgotten: set[str] = set()
        self.put()

    def put(self) -> None:
        self.people.put(*self.chance.sample(NAMES, 4))

    def forget(self, name: str = "") -> None:
        name = name or self.chance.choice(NAMES)
        self.people.forget(name)
        self.forgotten.add(name)

    def declare(self) -> None:
        self.output = self.chance.choice(OUTPUTS)

    def back_up(self) -> None:
        file = self.home / "backup"
        file.unlink(missing_ok=True)
        self.people.with_keys(lambda store: store.backup(file))

    def restore(self) -> None:
        if (self.home / "backup").exists():
            shutil.copy(self.home / "backup", self.people.lake.settings.keys_file)

    def follow(self, most: int = 3) -> None:
        """Take some steps, or all."""
        if self.output is not None:
            self.people.output = self.output
            target = open_target(self.people.lake, self.people.table, self.output)
            while most and self.people.step(target):
                most -= 1

    def killed(self) -> None:
        """Take steps until one of the writes or removals of an index is the last one."""
        left = self.chance.randrange(6)

        def dying(real: Any) -> Any:
            def do(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
                return real(*arguments, **options)

            return do

        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(SearchIndex, "_note", dying(SearchIndex._note))
            patch.setattr(SearchIndex, "_change", dying(SearchIndex._change))
            patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
            self.follow(9)

    def erase(self) -> None:
        """Empty the places that are declared no more, as a person does by `outputs erase`."""
        lake, table = self.people.lake, self.people.table
        declared = Place.declared(table, self.output) if self.output else None
        for place in revealed_places(lake):
            if place != declared:
                open_place(lake, place).erase()
                note_revealed(lake, place, is_gone=True)

    def certified(self, names: Sequence[str]) -> dict[str, bool]:
        """Name -> whether the certificate says complete."""
        outputs = [(self.people.table, self.output)] if self.output else []
        registry = cast("Registry", SimpleNamespace(topics={}, outputs=lambda: outputs))

        def complete(store: KeyStore, name: str) -> bool:
            state = store.state_of(person := Person("customer", name))
            assert state is not None
            return certify(self.people.lake, registry, store, store.ref(person), state).is_complete

        return {name: self.people.with_keys(lambda store, name=name: complete(store, name)) for name in names}

    def found(self) -> set[str]:
        """The forgotten whose mails are in the bytes of what outputs keep."""
        mails = {mail_of(name): name for name in self.forgotten}
        return {mails[mail] for mail in found_in([self.home / "search"], list(mails))}


@pytest.mark.worlds
@pytest.mark.parametrize("number", range(max(2, this_run.worlds)))
def test_what_is_certified_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 3)
    world = World(tmp_path, this_run.seed + number)
    actions = [world.put, world.forget, world.declare, world.back_up, world.restore, world.killed, world.erase]
    world.follow(-1)
    world.forget(next(iter(world.people.rows)))
    assert len(world.found()) == 1, "the search of bytes finds what is there"
    done: list[str] = []
    for _ in range(STEPS):
        action = world.chance.choices([world.follow, *actions], [4, 3, 2, 3, 2, 2, 2, 1])[0]
        done.append(action.__name__)
        action()
        found = sorted(world.found())
        assert world.certified(found) == dict.fromkeys(found, False), done
    world.follow(-1)
    world.erase()
    assert set(world.certified(sorted(world.forgotten)).values()) <= {True}, done
    assert world.found() == set(), done

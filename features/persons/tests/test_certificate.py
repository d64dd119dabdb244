"""A certificate counts what was found of a person, and what can still be read of it; no id is in it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from twofold.features.outputs.next_step import next_step
from twofold.features.outputs.open_target import open_place, open_target
from twofold.features.outputs.position import Position
from twofold.features.outputs.revealed_places import REVEALED, Place, note_revealed, revealed_places
from twofold.features.outputs.tests.followed_table import MemoryCopy
from twofold.features.persons import certificate
from twofold.features.persons.certificate import Certificate, certify, wait_for_copies
from twofold.features.persons.keys.ended_keys import FORGOTTEN
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.tests.forgotten_letters import Letters
from twofold.features.search.search_output import SearchOutput

ANN, SEVEN = Person("sender", "ann"), Person("client", "7")


@pytest.fixture
def letters(tmp_path: Path) -> Letters:
    return Letters(tmp_path / "home", tmp_path / "tables")


def certified(letters: Letters, person: Person) -> Certificate:
    with closing(KeyStore(letters.settings)) as store:
        state = store.state_of(person)
        assert state is not None
        return certify(letters.lake, letters.registry, store, store.ref(person), state)


def forget(letters: Letters, person: Person) -> int:
    with closing(KeyStore(letters.settings)) as store:
        store.forget(person, 0)
        state = store.state_of(person)
        assert state is not None
        assert state.forgotten_no is not None
        return state.forgotten_no


def counts(found: Certificate) -> dict[str, tuple[str, int, int | None]]:
    return {one.place: (one.part, one.rows, one.readable) for one in found.found}


def test_what_is_held_is_counted_before_and_after(letters: Letters) -> None:
    letters.follow()
    before = certified(letters, ANN)
    assert counts(before) == {
        "post.letters": ("events", 2, 2),
        "post.kept_letters": ("table", 2, 2),
        "post.letters_quarantine": ("quarantine", 1, 1),
        "post.kept_letters: kept_letters": ("search", 2, 2),
    }
    assert (before.is_complete, before.forget_at) == (False, None)
    assert not letters.lake.exists(FORGOTTEN)

    number = forget(letters, ANN)
    assert counts(certified(letters, ANN))["post.kept_letters: kept_letters"] == ("search", 2, 2), "not yet"
    assert not wait_for_copies(letters.lake, letters.registry, number, 0)
    letters.follow()
    assert wait_for_copies(letters.lake, letters.registry, number, 0)
    after = certified(letters, ANN)
    assert counts(after) == {place: (part, rows, 0) for place, (part, rows, _) in counts(before).items()}
    assert after.is_complete
    assert after.elsewhere[0] == "post.kept_letters: kept_letters: the index was made again."
    assert counts(certified(letters, Person("sender", "bob")))["post.letters"] == ("events", 1, 1)


def test_values_of_two_persons_are_found_behind_the_key_of_the_other(letters: Letters) -> None:
    assert counts(certified(letters, SEVEN))["post.letters"] == ("events", 2, 2)
    forget(letters, SEVEN)
    assert counts(certified(letters, SEVEN))["post.letters"] == ("events", 2, 0)
    eight = Person("client", "8")
    assert counts(certified(letters, eight))["post.letters"] == ("events", 1, 1)
    forget(letters, ANN)
    assert "post.letters" not in counts(certified(letters, eight)), "no key opens what is around it"


def test_the_ledger_has_counts_and_no_id_and_each_look_once(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    letters.follow()
    forget(letters, ANN)
    certified(letters, ANN)
    certified(letters, ANN)
    letters.follow()
    first = certified(letters, ANN)
    rows = pa.table(letters.lake.open(FORGOTTEN).scan()).to_pylist()
    assert [row["part"] for row in rows if not row["place"]] == ["key"], "the end itself, before the key goes"
    rows = [row for row in rows if row["place"]]
    assert len(rows) == 2 * 4, "one look before the index followed, one after"
    assert {row["kind"] for row in rows} == {"sender"}
    with closing(KeyStore(letters.settings)) as store:
        assert {row["ref"] for row in rows} == {store.ref(ANN)}
    assert not any("ann" in str(value) for row in rows for value in row.values())
    monkeypatch.setattr(certificate, "_look", None)
    assert certified(letters, ANN) == first, "printed again from the ledger"


def test_a_copy_that_does_not_answer_is_not_certified(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.infra.errors import DatabaseUnreachable

    letters.follow()
    forget(letters, ANN)
    letters.follow()

    def away(*_: object) -> None:
        raise DatabaseUnreachable("It does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(certificate, "open_target", away)
        found = certified(letters, ANN)
        assert counts(found)["post.kept_letters: kept_letters"][2] is None
        assert not found.is_complete
    assert certified(letters, ANN).is_complete


def without_output(letters: Letters, **changes: Any) -> None:
    """Declares the table without its output, or with another one."""
    table = letters.registry.tables["post.kept_letters"]
    [output] = table.outputs
    outputs = (replace(output, **changes),) if changes else ()
    letters.registry = replace(letters.registry, tables={table.full_name: replace(table, outputs=outputs)})


@pytest.mark.parametrize("changes", [{}, {"name": "other"}])
def test_a_removed_copy_is_not_complete_until_it_is_erased(letters: Letters, changes: dict[str, Any]) -> None:
    letters.follow()
    folder = letters.settings.home / "search" / "post.kept_letters.kept_letters"
    without_output(letters, **changes)
    number = forget(letters, ANN)
    if changes:
        letters.follow()
    assert wait_for_copies(letters.lake, letters.registry, number, 0)
    found = certified(letters, ANN)
    assert counts(found)["post.kept_letters: kept_letters"] == ("search", 2, None)
    assert not found.is_complete
    assert "outputs erase 'post.kept_letters: kept_letters'" in found.elsewhere[-3]
    [place] = [one for one in revealed_places(letters.lake) if one.output == "kept_letters"]
    assert folder.exists()
    open_place(letters.lake, place).erase()
    note_revealed(letters.lake, place, is_gone=True)
    assert not folder.exists()
    assert certified(letters, ANN).is_complete


def test_a_place_is_in_the_ledger_before_the_first_value_is_there(letters: Letters) -> None:
    [(table, output)] = letters.registry.outputs()
    assert next_step(letters.lake, table, output, None, MemoryCopy()) is not None
    assert revealed_places(letters.lake) == [Place.declared(table, output)]
    note_revealed(letters.lake, Place.declared(table, output))
    assert letters.lake.rows(REVEALED) == 1


@pytest.mark.parametrize(("is_read", "readable"), [(True, 0), (False, 2)])
def test_an_output_that_reveals_no_more_is_complete_once_it_was_compared(
    letters: Letters, monkeypatch: pytest.MonkeyPatch, is_read: bool, readable: int
) -> None:
    """Nothing takes back what a receiver has: a person has to say that it is gone there."""
    letters.follow()
    without_output(letters, reveal=())
    forget(letters, ANN)
    assert counts(certified(letters, ANN))["post.kept_letters: kept_letters"] == ("search", 2, 2), "not yet"
    letters.follow()
    [(table, output)] = letters.registry.outputs()
    position = open_target(letters.lake, table, output).position()
    monkeypatch.setattr(SearchOutput, "is_read", is_read)
    monkeypatch.setattr(certificate, "open_target", lambda *_: MemoryCopy(at=position))
    assert counts(certified(letters, ANN))["post.kept_letters: kept_letters"] == ("search", 2, readable)


AT = Position(definition="{}", table_id="t", version=0, commit="c")


@pytest.mark.parametrize(
    ("position", "readable"),
    [
        (None, 0),
        (replace(AT, forgotten=1), 0),
        (replace(AT, forgotten=2), 0),
        (AT, 2),
        (AT.towards(replace(AT, forgotten=1), 3), 2),
        (replace(AT, forgotten=1).towards(AT, 3), 2),
    ],
)
def test_a_copy_is_without_values_from_the_end_that_its_position_has(
    letters: Letters, monkeypatch: pytest.MonkeyPatch, position: Position | None, readable: int
) -> None:
    copy = MemoryCopy(at=position)
    monkeypatch.setattr(certificate, "open_target", lambda *_: copy)
    assert forget(letters, ANN) == 1
    assert counts(certified(letters, ANN))["post.kept_letters: kept_letters"] == ("search", 2, readable)

"""An export has all values of a person, also where another person's key is around them and no id next to them."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from twofold.features.persons.export import Rows, export
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.tests.forgotten_letters import Letters

ANN, SEVEN, NINE = Person("sender", "ann"), Person("client", "7"), Person("client", "9")


@pytest.fixture
def letters(tmp_path: Path) -> Letters:
    return Letters(tmp_path / "home", tmp_path / "tables")


def exported(letters: Letters, person: Person) -> dict[str, Rows]:
    with closing(KeyStore(letters.settings)) as store:
        return dict(export(letters.lake, letters.registry, store, person))


def test_values_of_two_persons_are_given_in_tables_without_the_id(letters: Letters) -> None:
    found = exported(letters, SEVEN)
    texts = {name: [(row["id"], row["text"]) for row in rows] for name, rows in found.items()}
    of_seven = [(1, "to seven"), (2, "to seven, too")]
    assert texts == {"post.letters": of_seven, "post.kept_letters": of_seven}
    assert all(row["mail"].startswith("enc:1:") for rows in found.values() for row in rows), "they are of the senders"
    assert "receiver" not in found["post.kept_letters"][0]


def test_a_person_of_an_id_alone_is_found_where_the_id_is(letters: Letters) -> None:
    [row] = exported(letters, NINE)["post.letters"]
    assert (row["id"], row["text"]) == (4, None)
    assert exported(letters, Person("client", "10")) == {}


def test_what_a_forgotten_sender_closed_is_found_by_the_id_alone(letters: Letters) -> None:
    with closing(KeyStore(letters.settings)) as store:
        store.forget(ANN, time.time_ns() // 1_000_000)
    found = exported(letters, SEVEN)
    assert [(row["id"], row["text"][:6]) for row in found["post.letters"]] == [(1, "enc:1:"), (2, "to sev")]
    assert [row["id"] for row in found["post.kept_letters"]] == [2]

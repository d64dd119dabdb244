"""Commands about persons: forgetting, taking it back, handing out, and the function `reveal` of `sql`."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cli.conftest import Cli
from tests.tables.declared import written
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.records.record_sealer import sealing
from twofold.infra.project.settings import Settings
from twofold.tables.declare import registry

LETTERS = '''
    """Letters of customers."""
    from twofold import Topic, person, personal
    TOPIC = Topic(
        schema={
            "id": "int", "sender": "string", "receiver": "int", "at": "timestamp", "mail": personal("sender"),
            "text": personal("sender", person("client", of="receiver")),
        },
        event_time="at", message_key="sender", dedup_keys=["id"], unknown_fields="keep",
    )
    '''
USER = pwd.getpwuid(os.getuid()).pw_name
ANN = {"id": 1, "sender": "ann", "receiver": 7, "mail": "ann@b.c", "text": {"hello": "world"}, "nick": "annie"}
BOB = {"id": 2, "sender": "bob", "receiver": 7, "mail": "bob@b.c", "text": "to 7"}


@pytest.fixture
def platform(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two letters in the lake, with keys."""
    declared = registry.load(written(tmp_path / "tables", {"post/letters.py": LETTERS})).require_sound()
    monkeypatch.setattr(registry, "load", lambda: declared)
    settings = Settings(home=home)
    make_keys(settings)
    with sealing(settings, declared.topics.values()) as seal:
        values = [seal("post.letters", json.dumps(letter).encode()) for letter in (ANN, BOB)]
    rows: list[dict[str, Any]] = [json.loads(value or b"") for value in values]
    for row in rows:
        row["_rest"] = json.dumps({"nick": row.pop("nick", None)})
    write_deltalake(home / "lake" / "post" / "letters", pa.Table.from_pylist(rows))
    return settings


def revealed(cli: Cli) -> list[Any]:
    ran = cli("sql", "SELECT reveal(mail) AS mail, reveal(text) AS text FROM letters ORDER BY id", "--json")
    assert (ran.code, ran.err) == (0, "")
    return [tuple(row.values()) for row in ran.document]


def accesses(settings: Settings) -> list[Any]:
    with closing(sqlite3.connect(settings.keys_file)) as connection:
        return connection.execute("SELECT who, purpose, persons FROM access").fetchall()


def test_values_are_revealed_and_each_use_is_written_down(cli: Cli, platform: Settings) -> None:
    assert revealed(cli) == [("ann@b.c", '{"hello":"world"}'), ("bob@b.c", "to 7")]
    assert accesses(platform) == [(USER, "sql", 2), (USER, "sql", 1)], "ann and bob, then their client"
    ran = cli("sql", "SELECT reveal('ann@b.c'), reveal(NULL), reveal(upper(mail)) FROM letters LIMIT 1", "--csv")
    assert ran.out.splitlines()[1] == ",,"
    assert len(accesses(platform)) == 2


def test_without_the_keys_values_are_null(cli: Cli, platform: Settings) -> None:
    platform.key_of_keys_file.unlink()
    ran = cli("sql", "SELECT reveal(mail) FROM letters", "--csv")
    assert ran.out.splitlines()[1:] == ['""', '""'] or ran.out.splitlines()[1:] == ["", ""]
    assert ran.err.count("reveal() gives nulls") == 1


def test_a_forgotten_person_can_be_remembered_within_the_days(cli: Cli, platform: Settings) -> None:
    ran = cli("forget", "sender", "ann")
    assert ran.code == 0
    assert "`remember sender ann` takes it back" in ran.out
    assert revealed(cli)[0][0] == "ann@b.c"
    assert cli("keys", "--json").document["persons"]["sender"] == {"kept": 2, "in_grace": 1, "forgotten": 0}
    assert cli("remember", "sender", "ann").code == 0
    assert cli("keys", "--json").document["persons"]["sender"] == {"kept": 2, "in_grace": 0, "forgotten": 0}


def test_now_cannot_be_taken_back_and_is_asked_for(cli: Cli, platform: Settings) -> None:
    assert cli("forget", "client", "7", "--now").err.endswith("Hint: Add --yes.\n")
    assert revealed(cli)[0] == ("ann@b.c", '{"hello":"world"}')
    assert "is forgotten: the key is destroyed" in cli("forget", "client", "7", "--now", "--yes").out
    assert revealed(cli) == [("ann@b.c", None), ("bob@b.c", None)]
    ran = cli("remember", "client", "7")
    assert ran.code == 2
    assert "is forgotten: the key was destroyed" in ran.err


def test_a_certificate_is_printed_now_and_again(cli: Cli, platform: Settings) -> None:
    before = cli("forget", "sender", "ann", "--certificate", "--json").document
    assert [(one["place"], one["rows"], one["readable"]) for one in before["found"]] == [("post.letters", 1, 1)]
    assert (before["forgotten_no"], before["is_complete"]) == (None, False)
    ran = cli("forget", "sender", "ann", "--now", "--yes")
    assert "The sender ann is forgotten: the key is destroyed." in ran.out
    assert "Nothing of it can be read any more." in ran.out
    assert "keys rotate" in ran.out
    again = cli("forget", "sender", "ann", "--certificate", "--json").document
    assert [(one["place"], one["rows"], one["readable"]) for one in again["found"]] == [("post.letters", 1, 0)]
    assert (again["forgotten_no"], again["is_complete"]) == (1, True)
    assert "ann" not in again["markdown"]


def test_a_person_is_forgotten_by_the_ref_and_it_says_nothing(cli: Cli, platform: Settings) -> None:
    asked = cli("forget", "sender", "ann", "--ask", "--json").document
    assert asked == {"ref": asked["ref"], "kind": "sender", "dags": ["post.forget"]}
    assert asked["ref"] in cli("forget", "sender", "ann", "--ask").out.split()
    assert revealed(cli)[0][0] == "ann@b.c"
    ran = cli("forget", "--ref", asked["ref"], "--certificate", "--json")
    assert ran.document["found"][0]["readable"] == 1
    assert "ann" not in ran.out
    ran = cli("forget", "--ref", asked["ref"], "--now", "--yes", "--json")
    assert (ran.code, ran.document["is_complete"]) == (0, True)
    assert "ann" not in ran.out
    assert revealed(cli)[0] == (None, None)
    assert cli("forget", "--ref", asked["ref"], "--now", "--yes", "--json").document == ran.document


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["forget", "--ref", "ann"], "--ref ann: no person has it."),
        (["forget", "--ref", "0" * 64], "no person has it"),
        (["forget", "sender", "nobody", "--certificate"], "No record of the sender nobody was encrypted."),
        (["forget", "sendr", "ann"], "Did you mean 'sender'?"),
        (["forget", "sender", ""], "The id is empty."),
        (["remember", "sender", "ann"], "is not about to be forgotten"),
        (["export", "customer", "ann"], "No topic has columns of a 'customer'."),
        (["keys", "backup", "/"], "File exists"),
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Cli, platform: Settings, words: list[str], says: str) -> None:
    ran = cli(*words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_commands_without_a_store_name_its_place(cli: Cli, platform: Settings) -> None:
    platform.keys_file.unlink()
    for words in (["forget", "sender", "ann"], ["keys"], ["keys", "rotate"], ["export", "sender", "ann"]):
        ran = cli(*words)
        assert ran.code == 2
        assert "There is no store of persons' keys" in ran.err
    assert not platform.keys_file.exists()


def test_an_export_has_what_is_of_the_person_and_no_value_of_others(cli: Cli, platform: Settings) -> None:
    [row] = cli("export", "sender", "ann").document["rows"]["post.letters"]
    assert row == {**{name: value for name, value in ANN.items() if name != "nick"}, "_rest": row["_rest"]}
    assert json.loads(row["_rest"]) == {"nick": "annie"}
    rows = cli("export", "client", "7").document["rows"]["post.letters"]
    assert [row["text"] for row in rows] == [{"hello": "world"}, "to 7"]
    assert all(row["mail"].startswith("enc:1:") for row in rows)
    assert (USER, "export", 1) in accesses(platform)


def test_keys_are_rotated_and_backed_up(cli: Cli, platform: Settings, tmp_path: Path) -> None:
    assert cli("keys", "backup", str(tmp_path / "copy")).code == 0
    assert "key of keys 2" in cli("keys", "rotate").out
    assert revealed(cli)[0][0] == "ann@b.c"
    assert (tmp_path / "copy").read_bytes()[:6] == b"SQLite"
    shown = cli("keys")
    assert "sender" in shown.out
    assert str(platform.keys_file) in shown.out


def test_ids_and_values_print_nothing_that_a_terminal_obeys(cli: Cli, platform: Settings) -> None:
    hostile = "[/]\x1b]52;c;cm0=\x07"
    for words in (["forget", "sender", hostile], ["remember", "sender", hostile]):
        ran = cli(*words)
        assert ran.code == 0
        assert "[/]\\u001b]52" in ran.out
        assert "\x1b" not in ran.out
    rows = pa.Table.from_pylist(
        [{"id": 3, "sender": "ann", "receiver": 7, "mail": hostile, "text": None, "_rest": None}]
    )
    write_deltalake(platform.home / "lake" / "post" / "letters", rows, mode="append")
    ran = cli("export", "sender", "ann")
    assert "\\u001b]52" in ran.out
    assert "\x1b" not in ran.out

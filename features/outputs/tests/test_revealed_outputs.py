"""An output decrypts what it is to reveal, and has null for who is forgotten; all other rows stay as they are."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.infra.webhooks.signed import secret
from tests.support.personal_search import found_in
from twofold import matches, to_postgres, to_topic, to_webhook
from twofold.features.outputs import next_step as reading
from twofold.features.outputs.commands.resend import resend_from
from twofold.features.outputs.copy_comparison import compare_copy
from twofold.features.outputs.next_step import Step
from twofold.features.outputs.tests.followed_table import MemoryCopy, key_of
from twofold.features.outputs.tests.followed_webhook import lake_with, queue_of, sender_of
from twofold.features.outputs.tests.revealed_table import RevealedTable, mail_of, shown
from twofold.features.outputs.tests.webhook_receiver import Receiver, receiving
from twofold.features.persons.keys.ciphertext import seal
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.infra.delta.delta_writer import CHANGE
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration, BadSetting, SchemaMismatch
from twofold.tables.output_view import KEY


@pytest.fixture
def people(lake: Lake) -> RevealedTable:
    return RevealedTable(lake)


def changed(steps: list[Step]) -> list[tuple[str, str]]:
    return sorted((row[KEY], row[CHANGE]) for step in steps for row in step.changes.to_pylist())


def accesses(lake: Lake) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(lake.settings.keys_file)) as connection:
        return connection.execute("SELECT purpose, persons FROM access").fetchall()


def test_revealed_columns_are_in_the_clear_and_others_are_not(people: RevealedTable) -> None:
    people.put("ann", "ann to bob")
    people.follow(copy := MemoryCopy())
    assert shown(copy) == {"ann": mail_of("ann"), "ann to bob": mail_of("ann to bob")}
    assert accesses(people.lake) == [("output plant.hours: hours", 2)]
    people.put("bob")
    people.follow(copy)
    assert accesses(people.lake) == [("output plant.hours: hours", 3)], "one line an hour"
    people.output = to_postgres()
    people.follow(copy)
    assert all(str(mail).startswith("enc:1:") for mail in shown(copy).values())


@pytest.mark.parametrize("page", [1, 100])
def test_a_copy_gets_null_for_who_is_forgotten_and_keeps_all_else(
    people: RevealedTable, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", page)
    people.put("ann", "bob", "cat", "ann to bob", "cat to ann", "bob to cat")
    people.follow(copy := MemoryCopy())
    before = dict(copy.kept)
    people.forget("ann")
    steps = people.follow(copy)
    gone = ["ann", "ann to bob", "cat to ann"]
    assert changed(steps) == sorted((key_of(key), "update") for key in gone)
    assert shown(copy) == people.without("ann")
    assert {k: row for k, row in copy.kept.items() if json.loads(k)["k"] not in gone} == {
        k: row for k, row in before.items() if json.loads(k)["k"] not in gone
    }
    assert people.step(copy) is None
    people.forget("bob", "cat")
    people.follow(copy)
    assert set(shown(copy).values()) == {None}


def test_a_key_that_ends_between_the_reads_of_a_step_is_not_missed(
    people: RevealedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step has the values already when the key ends: its position is from before, so they are sent again."""
    people.put("ann", "bob")
    copy = MemoryCopy()
    people.step(copy)
    real = MemoryCopy.send

    def forgotten_meanwhile(self: MemoryCopy, changes: pa.Table, *positions: Any) -> int:
        people.forget("ann")
        return real(self, changes, *positions)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryCopy, "send", forgotten_meanwhile)
        people.step(copy)
    assert shown(copy) == people.without(), "the copy has the mail of a person who is forgotten"
    people.follow(copy)
    assert shown(copy) == people.without("ann")


def test_a_key_that_ends_between_the_number_and_the_rows_is_not_missed(
    people: RevealedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.put("ann", "bob")
    people.follow(copy := MemoryCopy())
    number = KeyStore.last_end

    def then_forgotten(store: KeyStore) -> int:
        found = number(store)
        people.forget("ann")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(KeyStore, "last_end", then_forgotten)
        people.put("bob", mail="new@b.c")
        people.step(copy)
    assert shown(copy) == people.without(), "one step has the changed row alone"
    people.follow(copy)
    assert shown(copy) == people.without("ann")


def test_what_changes_while_persons_are_forgotten_comes_too(people: RevealedTable) -> None:
    people.put("ann", "bob", "cat")
    people.follow(copy := MemoryCopy())
    people.put("ann", "cat", mail="other@b.c")
    people.forget("ann")
    people.put("bob", mail="bob@b.c")
    people.follow(copy)
    assert shown(copy) == {"ann": None, "bob": "bob@b.c", "cat": "other@b.c"}


def test_forgotten_values_are_null_though_the_old_version_is_gone(people: RevealedTable) -> None:
    people.put("ann", "bob")
    people.follow(copy := MemoryCopy())
    people.put("bob", mail="new@b.c")
    people.lake.open(people.name).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    people.forget("ann")
    people.follow(copy)
    assert shown(copy) == {"ann": None, "bob": "new@b.c"}


def test_a_due_key_is_destroyed_by_the_next_step(people: RevealedTable) -> None:
    people.put("ann", "bob")
    people.follow(copy := MemoryCopy())
    with closing(sqlite3.connect(people.lake.settings.keys_file, isolation_level=None)) as connection:
        connection.execute("UPDATE person SET forget_at_ms = 1 WHERE ref IN (SELECT ref FROM person LIMIT 1)")
    people.follow(copy)
    assert sorted(mail is None for mail in shown(copy).values()) == [False, True]
    counts = people.with_keys(lambda store: store.counts())
    assert (counts["customer"].kept, counts["customer"].forgotten) == (1, 1)


@pytest.mark.parametrize("reveal", [(), ("note",)])
def test_what_is_revealed_no_more_is_erased(people: RevealedTable, reveal: tuple[str, ...]) -> None:
    people.output = replace(people.output, reveal=("mail", "note"))
    people.put("ann")
    people.follow(copy := MemoryCopy())
    people.output = replace(people.output, reveal=reveal)
    assert any(step.before and step.before.is_whole for step in people.follow(copy))
    people.output = replace(people.output, reveal=("mail", "note"))
    assert not any(step.before and step.before.is_whole for step in people.follow(copy)), "it shows more"


def test_a_value_of_no_known_person_is_not_revealed(people: RevealedTable) -> None:
    """Its key is that of a day, whose end takes nothing out of a copy."""
    day = Person("_day", "plant.hours 2026-11-28")
    sealed = people.with_keys(lambda store: seal(b'"ann@b.c"', [store.keys_of([day])[day]]))
    people.put("ann")
    people.follow(copy := MemoryCopy())
    people.put("bob", sealed=sealed)
    people.follow(copy)
    assert shown(copy) == {"ann": mail_of("ann"), "bob": None}
    copy.kept[key_of("bob")]["mail"] = "ann@b.c"  # as copies of a home from before have it
    people.forget("ann")
    people.follow(copy)
    assert shown(copy) == {"ann": None, "bob": None}


def test_an_audit_compares_what_is_revealed(people: RevealedTable) -> None:
    people.put("ann", "bob")
    people.follow(copy := MemoryCopy())
    found = compare_copy(people.lake, people.table, copy)
    assert found is not None
    assert (found.rows, found.differing) == (2, 0)
    copy.kept[key_of("ann")]["mail"] = "edited@b.c"
    found = compare_copy(people.lake, people.table, copy)
    assert found is not None
    assert found.differing == 1
    people.forget("ann")
    assert compare_copy(people.lake, people.table, copy) is None, "it has not followed yet"
    people.follow(copy)
    found = compare_copy(people.lake, people.table, copy)
    assert found is not None
    assert found.differing == 0


def test_rows_that_are_sent_again_are_revealed(people: RevealedTable) -> None:
    people.put("ann", "bob")
    people.put("ann", mail="new@b.c")
    people.follow(copy := MemoryCopy())
    copy.kept.clear()
    assert resend_from(copy, people.lake, people.table, 1) == 1
    assert shown(copy) == {"ann": "new@b.c"}


def test_an_output_whose_keys_cannot_be_read_stops_and_sends_nothing(people: RevealedTable) -> None:
    people.put("ann")
    people.lake.settings.key_of_keys_file.rename(people.lake.settings.home / "moved")
    with pytest.raises(BadSetting, match="The key of keys cannot be read"):
        people.step(copy := MemoryCopy())
    assert copy.at is None


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(Receiver()) as one:
        yield one


class Hook:
    """A webhook that reveals, with its queue and its receiver."""

    def __init__(self, lake: Lake, receiver: Receiver) -> None:
        self.people = RevealedTable(lake_with(lake, {"hook": f"{receiver.url} {secret()}"}))
        self.output = self.people.output = to_webhook("hook", begin="all", reveal=["mail"])
        self.receiver, self.now = receiver, 1_000_000.0

    @property
    def queue_file(self) -> Path:
        return queue_of(self.people.lake, self.people.table, self.output).file

    def follow(self) -> None:
        self.people.follow(queue_of(self.people.lake, self.people.table, self.output))

    def send(self) -> list[tuple[str, Any, Any]]:
        """Send all that is due; returns change, mail before and after of each request."""
        self.receiver.requests.clear()
        sender = sender_of(self.people.lake, self.people.table, self.output)
        while sender.step(self.now):
            pass
        changes = [request.change for request in self.receiver.requests]
        sides = [[(change[side] or {}).get("mail") for side in ("before", "after")] for change in changes]
        return sorted((str(c["key"]["k"]), *pair) for c, pair in zip(changes, sides, strict=True))


def test_a_webhook_decrypts_as_it_sends_and_is_called_again_with_null(lake: Lake, receiver: Receiver) -> None:
    hook = Hook(lake, receiver)
    hook.people.put("ann", "bob")
    hook.follow()
    assert found_in([hook.queue_file.parent], [mail_of("ann"), mail_of("bob")]) == {}
    assert hook.send() == [("ann", None, mail_of("ann")), ("bob", None, mail_of("bob"))]
    first = {request.id for request in receiver.requests}
    hook.people.forget("ann")
    hook.follow()
    assert hook.send() == [("ann", None, None)]
    [request] = receiver.requests
    assert request.change["change"] == "update"
    assert request.id not in first
    assert ("webhook plant.hours: hook", 2) in accesses(lake)


def test_what_waits_for_a_receiver_is_null_once_its_person_is_forgotten(lake: Lake, receiver: Receiver) -> None:
    hook = Hook(lake, receiver)
    receiver.answer = lambda request: (500, {}, request.body.decode())
    hook.people.put("ann", "bob")
    hook.follow()
    hook.send()
    assert found_in([hook.queue_file.parent], [mail_of("ann"), mail_of("bob")]) == {}, "answers repeat what was sent"
    hook.people.put("ann", mail="new@b.c")
    hook.people.forget("ann")
    hook.follow()
    receiver.answer = lambda request: (200, {}, "")
    hook.now += 1_000
    sent = hook.send()
    assert [one for one in sent if one[0] == "bob"] == [("bob", None, mail_of("bob"))]
    assert {side for one in sent if one[0] == "ann" for side in one[1:]} == {None}


def test_a_change_whose_key_was_no_json_is_sent(lake: Lake, receiver: Receiver) -> None:
    """Earlier code queued keys with NaN as they are."""
    hook = Hook(lake, receiver)
    hook.people.put("ann")
    hook.follow()
    with closing(sqlite3.connect(hook.queue_file)) as connection, connection:
        connection.execute('UPDATE changes SET body = replace(body, \'"key": {"k":"ann"}\', \'"key": {"k":NaN}\')')
    assert hook.send() == [("NaN", None, mail_of("ann"))]


def test_a_column_that_is_no_text_cannot_be_revealed(people: RevealedTable) -> None:
    people.put("ann")
    people.output = to_postgres(reveal=["closes_at"])
    with pytest.raises(SchemaMismatch, match="reveals closes_at, which is of the type timestamp"):
        people.step(MemoryCopy())


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"reveal": "mail"}, r"reveal='mail'.*expected a list of columns"),
        ({"reveal": ["mail", "mail"]}, "each once"),
        ({"reveal": ["mail"], "columns": ["k"]}, "all columns of reveal= among them"),
        ({"reveal": ["mail"], "where": [matches("mail", ".*@.*")]}, "where= does not test: mail"),
    ],
)
def test_what_cannot_be_revealed_is_refused(parameters: dict[str, Any], says: str) -> None:
    for output in (to_postgres(), to_topic("copies"), to_webhook("hook")):
        with pytest.raises(BadDeclaration, match=says):
            replace(output, **parameters)

"""The store of persons' keys: made once, ended for good, rotated, and killed at each write."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import ROOT
from twofold.features.persons.keys.ended_keys import FORGOTTEN, End, EndedKeys
from twofold.features.persons.keys.key_store import Counts, KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, BadSetting
from twofold.infra.project.settings import Settings

ANN, BOB = Person("customer", "ann"), Person("customer", "bob")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path)
    make_keys(made)
    return made


def secret_of(store: KeyStore, person: Person) -> str | None:
    key = store.keys_of([person])[person]
    return key and key.encrypt(b"probe", b"v")


def test_a_key_is_the_same_after_a_restart(settings: Settings) -> None:
    first = secret_of(KeyStore(settings), ANN)
    assert first is not None
    assert secret_of(KeyStore(settings), ANN) == first
    assert secret_of(KeyStore(settings), BOB) != first


def test_two_open_stores_give_one_key(settings: Settings) -> None:
    one, other = KeyStore(settings), KeyStore(settings)
    assert secret_of(one, ANN) == secret_of(other, ANN)


def test_a_forgotten_person_never_has_a_key_again(settings: Settings) -> None:
    one, other = KeyStore(settings), KeyStore(settings)
    key = one.keys_of([ANN])[ANN]
    assert key is not None
    assert other.find(key.id) is not None
    one.forget(ANN, 0)
    for store in (one, other, KeyStore(settings)):
        assert store.find(key.id) is None
        assert store.keys_of([ANN, BOB])[ANN] is None
        assert store.keys_of([BOB])[BOB] is not None
    with pytest.raises(BadArgument, match="is forgotten"):
        one.remember(ANN)


def test_one_who_was_never_seen_can_be_forgotten(settings: Settings) -> None:
    store = KeyStore(settings)
    store.forget(ANN, 0)
    assert store.keys_of([ANN]) == {ANN: None}


def test_a_key_ends_at_its_time_in_every_process(settings: Settings) -> None:
    clock = [1_000]
    one, other = (KeyStore(settings, now_ms=lambda: clock[0]) for _ in range(2))
    key = other.keys_of([ANN])[ANN]
    assert key is not None
    one.forget(ANN, 2_000)
    assert other.find(key.id) is not None
    clock[0] = 2_000
    assert other.find(key.id) is None
    assert other.keys_of([ANN]) == {ANN: None}
    assert one.end_due() == 1
    state = one.state_of(ANN)
    assert state is not None
    assert state.is_forgotten


def test_who_is_remembered_in_time_keeps_the_key(settings: Settings) -> None:
    clock = [1_000]
    store = KeyStore(settings, now_ms=lambda: clock[0])
    before = secret_of(store, ANN)
    store.forget(ANN, 2_000)
    store.remember(ANN)
    clock[0] = 3_000
    assert store.end_due() == 0
    assert secret_of(store, ANN) == before
    with pytest.raises(BadArgument, match="not about to be"):
        store.remember(ANN)


def test_each_end_has_a_greater_number(settings: Settings) -> None:
    store = KeyStore(settings)
    for person in (ANN, BOB):
        store.forget(person, 0)
    with sqlite3.connect(settings.keys_file) as connection:
        assert sorted(connection.execute("SELECT forgotten_no FROM person").fetchall()) == [(1,), (2,)]


def test_a_store_that_is_put_back_ends_again_what_had_ended(settings: Settings, tmp_path: Path) -> None:
    """A backup from before the end of ann's key, and before bob had one."""
    store = KeyStore(settings)
    key = store.keys_of([ANN])[ANN]
    assert key is not None
    store.backup(tmp_path / "backup")
    store.keys_of([BOB])
    store.forget(ANN, 0)
    store.forget(BOB, 0)
    store.close()
    (tmp_path / "backup").rename(settings.keys_file)
    store = KeyStore(settings)
    assert store.find(key.id) is None
    assert store.keys_of([ANN, BOB]) == {ANN: None, BOB: None}
    assert [state and state.forgotten_no for state in map(store.state_of, (ANN, BOB))] == [1, 2]
    store.forget(Person("customer", "cat"), 0)
    assert store.last_end() == 3, "no number is given out twice"


def test_a_key_whose_end_the_lake_has_ends_though_its_process_was_killed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KeyStore(settings)
    add = EndedKeys.add

    def then_killed(ends: EndedKeys, new: Sequence[End]) -> None:
        add(ends, new)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EndedKeys, "add", then_killed)
        with pytest.raises(KeyboardInterrupt):
            store.forget(ANN, 0)
    assert KeyStore(settings).keys_of([ANN]) == {ANN: None}


def test_the_ends_of_a_home_from_before_come_to_the_lake_once(settings: Settings) -> None:
    KeyStore(settings).forget(ANN, 0)
    shutil.rmtree(settings.lake_uri)
    for _ in range(2):
        store = KeyStore(settings)
        assert EndedKeys(settings).read() == [End(store.ref(ANN), "customer", 1)]
        assert Lake(settings).rows(FORGOTTEN) == 1
    copy = replace(settings, lake=f"{settings.lake_uri}/_copies/plan")
    assert len(EndedKeys(copy).read()) == 1, "a plan's copy of tables has the ends of the lake"


def test_counts_are_by_kind(settings: Settings) -> None:
    store = KeyStore(settings)
    store.keys_of([ANN, BOB, Person("author", "ann")])
    store.forget(ANN, 0)
    store.forget(BOB, 1 << 60)
    assert store.counts() == {"author": Counts(1, 0, 0), "customer": Counts(1, 1, 1)}


def test_a_destroyed_key_is_not_in_the_file(settings: Settings) -> None:
    store, persons = KeyStore(settings), [Person("customer", str(number)) for number in range(300)]
    store.keys_of(persons)
    with sqlite3.connect(settings.keys_file) as connection:
        wrapped = dict(connection.execute("SELECT key_id, wrapped FROM person"))
    keys = {person: wrapped[state.key_id] for person in persons if (state := store.state_of(person)) is not None}
    assert all(key in settings.keys_file.read_bytes() for key in keys.values())
    for person in persons[::10]:
        store.forget(person, 0)
    held = settings.keys_file.read_bytes()
    assert [person.id for person in persons if keys[person] not in held] == [person.id for person in persons[::10]]


def test_the_store_names_no_person(settings: Settings) -> None:
    KeyStore(settings).keys_of([Person("customer", "ann-marie-4711")])
    assert b"ann-marie-4711" not in settings.keys_file.read_bytes()


def test_rotation_keeps_keys_and_makes_backups_useless(settings: Settings, tmp_path: Path) -> None:
    store, other = KeyStore(settings), KeyStore(settings)
    before, old = secret_of(store, ANN), settings.key_of_keys_file.read_text()
    store.backup(tmp_path / "backup")
    assert store.rotate() == 2
    assert settings.key_of_keys_file.read_text() != old
    assert secret_of(store, ANN) == secret_of(other, ANN) == secret_of(KeyStore(settings), ANN) == before
    assert len(settings.key_of_keys_file.read_text().splitlines()) == 1
    with pytest.raises(BadSetting, match="not the key of keys"):
        KeyStore(replace(settings, keys=str(tmp_path / "backup")))


def test_a_key_that_is_rotated_while_it_is_read_is_not_lost(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, store, other = secret_of(KeyStore(settings), ANN), KeyStore(settings), KeyStore(settings)
    refresh = store._refresh

    def rotated_after() -> None:
        refresh()
        other.rotate()

    monkeypatch.setattr(store, "_refresh", rotated_after)
    assert secret_of(store, ANN) == before


def test_a_damaged_key_is_an_error_and_forgets_no_person(settings: Settings) -> None:
    secret_of(KeyStore(settings), ANN)
    with sqlite3.connect(settings.keys_file) as connection:
        connection.execute("UPDATE person SET wrapped = zeroblob(72)")
    with pytest.raises(BadSetting, match="is damaged"):
        secret_of(KeyStore(settings), ANN)


def test_a_backup_is_a_whole_store(settings: Settings, tmp_path: Path) -> None:
    store = KeyStore(settings)
    before = secret_of(store, ANN)
    store.backup(tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert secret_of(KeyStore(replace(settings, keys=str(tmp_path / "backup"))), ANN) == before
    with pytest.raises(BadArgument, match="exists"):
        store.backup(tmp_path / "backup")


def test_the_key_of_keys_can_be_in_the_environment(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, key_of_keys="base64:" + b64encode(bytes(32)).decode())
    make_keys(settings)
    assert secret_of(KeyStore(settings), ANN) == secret_of(KeyStore(settings), ANN)
    assert "AAAA" not in str(settings.shown())
    with pytest.raises(BadSetting, match="cannot be replaced"):
        KeyStore(settings).rotate()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s.keys_file.unlink(), "no store"),
        (lambda s: s.key_of_keys_file.unlink(), "cannot be read"),
        (lambda s: s.keys_file.chmod(0o644), "644"),
        (lambda s: s.key_of_keys_file.chmod(0o640), "640"),
        (lambda s: s.key_of_keys_file.write_text("key = YWJj\n"), "32 bytes"),
        (lambda s: s.key_of_keys_file.write_text(f"key = {b64encode(bytes(32)).decode()}\n"), "not the key of keys"),
        (lambda s: s.key_of_keys_file.write_text(""), "expected the line"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(settings: Settings, damage: object, message: str) -> None:
    damage(settings)  # type: ignore[operator]
    with pytest.raises(BadSetting, match=message) as caught:
        KeyStore(settings)
    assert "YWJj" not in str(caught.value)


def test_a_store_in_the_lake_is_refused(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, keys=str(tmp_path / "lake" / "keys"))
    make_keys(settings)
    with pytest.raises(BadSetting, match="in the lake"):
        KeyStore(settings)


def test_a_store_is_never_made_over_another(settings: Settings) -> None:
    before = secret_of(KeyStore(settings), ANN)
    make_keys(settings)
    assert secret_of(KeyStore(settings), ANN) == before


_KILLED = """
import os, signal, sys
from pathlib import Path
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.infra.project.settings import Settings

left = int(sys.argv[1])

def count(event, arguments):
    # every statement of SQLite, every file that is opened for writing, renamed or synced is a step
    global left
    if event in ("open", "os.rename", "os.remove", "sqlite3.connect") or event == "step":
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

store = KeyStore(Settings.from_environment())
if sys.argv[2] == "forget":
    for name in ("dan", "eve"):
        store.forget(Person("customer", name), 0)  # what the lake needs is imported, each file of which would be a step
sys.addaudithook(count)
store._connection.set_trace_callback(lambda _: sys.audit("step"))
fsync = os.fsync
os.fsync = lambda descriptor: (sys.audit("step"), fsync(descriptor))
if sys.argv[2] == "rotate":
    store.rotate()
elif sys.argv[2] == "forget":
    store.forget(Person("customer", "ann"), 0)
else:
    store.keys_of([Person("customer", "cy")])
"""


@pytest.mark.platform
@pytest.mark.parametrize("action", ["rotate", "forget", "make"])
def test_killed_at_each_step_the_store_is_whole(tmp_path: Path, action: str) -> None:
    """Each step is a process that kills itself there; it takes 40 s, nearly all of it starts of Python."""
    steps, ended = 0, False
    while not ended:
        settings = Settings(home=tmp_path / str(steps))
        make_keys(settings)
        before = {person: secret_of(KeyStore(settings), person) for person in (ANN, BOB)}
        process = subprocess.run(
            [sys.executable, "-c", _KILLED, str(steps), action],
            env={**os.environ, **settings.environment(), "PYTHONPATH": str(ROOT)},
            check=False,
        )
        ended = process.returncode == 0
        assert ended or process.returncode == -signal.SIGKILL
        store = KeyStore(settings)
        after = {person: secret_of(store, person) for person in (ANN, BOB)}
        assert after == before or (action == "forget" and after == {**before, ANN: None})
        assert (action == "forget" and ended) == (after[ANN] is None) or not ended
        assert store.rotate() >= 2
        assert secret_of(KeyStore(settings), BOB) == before[BOB]
        steps += 1
    assert steps > 3

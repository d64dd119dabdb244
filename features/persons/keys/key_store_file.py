"""The file of the store of persons' keys: made once, and read by its owner alone."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from twofold.features.persons.keys.key_of_keys import make_key_of_keys, read_keys_of_keys
from twofold.infra import COMMAND
from twofold.infra.atomic_write import settle
from twofold.infra.errors import BadSetting
from twofold.infra.project.settings import Settings
from twofold.infra.sqlite_file import open_sqlite

SETTING = "TWOFOLD_KEYS"
_INDEX_BYTES = 32
_PATIENCE_S = 60.0
_TABLES = """
CREATE TABLE key_of_keys (no INTEGER NOT NULL, index_key BLOB NOT NULL);
CREATE TABLE person (
    ref BLOB PRIMARY KEY, kind TEXT NOT NULL, key_id BLOB NOT NULL UNIQUE, wrapped BLOB, forget_at_ms INTEGER,
    forgotten_no INTEGER
) WITHOUT ROWID;
CREATE INDEX person_by_due ON person (forget_at_ms) WHERE wrapped IS NOT NULL AND forget_at_ms IS NOT NULL;
CREATE INDEX person_by_end ON person (forgotten_no) WHERE forgotten_no IS NOT NULL;
CREATE TABLE sealed (topic TEXT, column_name TEXT, PRIMARY KEY (topic, column_name)) WITHOUT ROWID;
CREATE TABLE access (at_ms INTEGER NOT NULL, who TEXT NOT NULL, purpose TEXT NOT NULL, persons INTEGER NOT NULL);
"""
_FIELDS = "CREATE TABLE IF NOT EXISTS field (topic TEXT, path TEXT, is_plain INTEGER, PRIMARY KEY (topic, path))"
"""Made in older stores, too."""


def make_keys(settings: Settings) -> None:
    """Makes a store, and a key of keys unless there is one; nothing if there is a store.

    Raises:
        BadSetting: the key of keys cannot be read.
    """
    file = settings.keys_file
    if file.exists():
        return
    make_key_of_keys(settings)
    key_of_keys = read_keys_of_keys(settings)[0]
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = Path(f"{file}.{os.getpid()}.draft")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    with closing(open_keys(draft)) as connection:
        connection.executescript(_TABLES)
        index = key_of_keys.wrap(secrets.token_bytes(_INDEX_BYTES))
        connection.execute("INSERT INTO key_of_keys VALUES (1, ?)", [index])
    try:
        os.link(draft, file)  # unlike a rename, it does not replace what another process was faster to make
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    settle([file])


def open_keys(file: Path) -> sqlite3.Connection:
    """Opens the file of a store, which an older platform may have made."""
    # What was encrypted by a key must not outlive a crash of the machine that the key does not.
    connection = open_sqlite(file, wait_s=_PATIENCE_S, any_thread=True, holds_secrets=True)
    connection.execute(_FIELDS)
    return connection


def require_private(settings: Settings) -> None:
    """Refuses a store that others can read.

    Raises:
        BadSetting: they can, it is in the lake, or it is not there.
    """
    file = settings.keys_file
    if not file.exists():
        raise BadSetting(
            f"There is no store of persons' keys at {file}.",
            hint=f"{SETTING} names it. Restore it from a backup; `{COMMAND} up` makes one where there are no data yet.",
        )
    if (mode := file.stat().st_mode & 0o777) & 0o077:
        raise BadSetting(f"{file} has the mode {mode:o}: other users can read it.", hint=f"chmod 600 {file}.")
    if "://" not in settings.lake_uri and file.resolve().is_relative_to(Path(settings.lake_uri).resolve()):
        raise BadSetting(
            f"{file} is in the lake, whose copies would keep the keys.", hint=f"Set {SETTING} to another place."
        )

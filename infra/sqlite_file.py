"""Opens the SQLite files of the platform: of keys, of the status, of webhooks to be sent, of deliveries received."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def open_sqlite(
    file: Path, *, wait_s: float = 5.0, read_only: bool = False, any_thread: bool = False, holds_secrets: bool = False
) -> sqlite3.Connection:
    """Opens a file, whose transactions begin at a BEGIN and nowhere else.

    Args:
        wait_s: how long a statement waits for another process that holds the file; 0: it fails at once.
        read_only: changes nothing, and makes no file.
        any_thread: other threads than this one may use it, one at a time, by a lock of the caller's.
        holds_secrets: what is removed is overwritten, and neither comes back nor is lost by a crash of the machine.
    """
    uri = f"{file.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(uri, timeout=wait_s, isolation_level=None, check_same_thread=not any_thread, uri=True)
    for pragma in ("secure_delete = ON", "synchronous = EXTRA") if holds_secrets else ():
        connection.execute(f"PRAGMA {pragma}")
    return connection

"""Appends rows to a ledger once, though several processes may write the same."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from infra.errors import WriteConflict
from tables.engine.delta.delta_writer import CommitTag, Writer

_ATTEMPTS = 12


def append_new(writer: Writer, app: str, new: Callable[[], pa.Table]) -> pa.Table:
    """Append the rows that `new` gives, which reads the ledger to know them.

    Args:
        app: who writes; of several that write at once under one name, one does, and the others ask `new` again.

    Returns:
        The rows that were written: none when the ledger has them all, so that it may be asked for again after a crash.

    Raises:
        WriteConflict: others were first each time. Retryable.
    """
    for _ in range(_ATTEMPTS):
        # Before the ledger is read: whoever writes meanwhile takes this number, and this commit is skipped.
        number = writer.next_number(app)
        rows = new()
        if not len(rows) or not writer.append(rows, CommitTag(app=app, version=number)).skipped:
            return rows
    raise WriteConflict(f"{writer.name}: others write as {app}.", hint="Run it again; look for a second driver.")

"""A process that works on one record: value on standard input, place and key in its environment."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress

from twofold.infra.kafka.group_member import Record


class RecordProcess:
    """A command that runs with one record.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(self, command: Sequence[str], record: Record, delivery: int, timeout_s: float) -> None:
        self._timeout_s, self._ends = timeout_s, time.monotonic() + timeout_s
        with tempfile.TemporaryFile() as value:
            value.write(record.value or b"")
            value.seek(0)
            # In a session of its own: Ctrl-C is for the queue, and what it starts can be killed with it.
            self._process = subprocess.Popen(
                command, stdin=value, env={**os.environ, **variables(record, delivery)}, start_new_session=True
            )

    def ended(self) -> str | None:
        """Returns how it has failed, or "" if it has not; None while it runs, for which it has a limited time."""
        code = self._process.poll()
        if code is None and time.monotonic() > self._ends:
            self.kill()
            return f"killed after {self._timeout_s:g} seconds"
        if code is None:
            return None
        return f"signal {-code}" if code < 0 else f"exit code {code}" if code else ""

    def kill(self) -> None:
        """Kills it with all that it has started, unless that left its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def variables(record: Record, delivery: int) -> dict[str, str | bytes]:
    """Returns the variables that describe a record; a key with a zero byte, which none can hold, is in base64."""
    found: dict[str, str | bytes] = {
        "RECORD_TOPIC": record.topic,
        "RECORD_PARTITION": str(record.partition),
        "RECORD_OFFSET": str(record.offset),
        "RECORD_DELIVERY": str(delivery),
    }
    if record.value is None:
        found["RECORD_TOMBSTONE"] = "1"
    if record.key is not None and b"\0" in record.key:
        found["RECORD_KEY_BASE64"] = base64.b64encode(record.key)
    elif record.key is not None:
        found["RECORD_KEY"] = record.key
    return found

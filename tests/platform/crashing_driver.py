"""A stream driver that kills itself at a stage of a micro-batch: `python -m tests.platform.crashing_driver STAGE`.

The platform has no hooks for this: its functions are replaced from outside, in this process only. A stage of ingest is
reached with records that no micro-batch had before; one that an earlier crash interrupted ends first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from infra.settings import Settings
from streaming import driver
from streaming.ingest import Ingest
from tables.decode import Decoder
from tables.lake import QUARANTINE
from tables.refresh import Refresher
from tables.writer import Writer

DOMAIN = "flights"
TABLES = ("flights.delays_by_hour", "flights.airport_weather", "flights.carrier_days")
"""A table with state, one of latest rows, and one that follows another table."""

_new_records = threading.Event()


def before_decoding(settings: Settings) -> None:
    """Nothing of the micro-batch is written."""
    _wrap(Decoder, "decode", before=lambda *_: _die_with_new_records())
    _ingest(settings)


def after_quarantine(settings: Settings) -> None:
    """A topic's bad records are in, its good ones are not."""

    def die(writer: Writer, _: object) -> None:
        if _is_quarantine(writer):
            _die_with_new_records()

    _wrap(Writer, "append", after=die)
    _ingest(settings)


def after_events_of_one_topic(settings: Settings) -> None:
    """One topic's good records are in; of the others nothing, and of a large micro-batch's bad records neither."""
    first = threading.Lock()

    def hold(writer: Writer, *_: object) -> None:
        if _new_records.is_set() and not _is_quarantine(writer) and not first.acquire(blocking=False):
            threading.Event().wait()

    def die(writer: Writer, _: object) -> None:
        if not _is_quarantine(writer):
            _die_with_new_records()

    _wrap(Writer, "append", before=hold, after=die)
    _ingest(settings)


def before_checkpoint(settings: Settings) -> None:
    """Everything is in, and Spark does not know it."""
    _wrap(Ingest, "_note", after=lambda *_: _die_with_new_records())
    _ingest(settings)


def within_append(settings: Settings) -> None:
    """Spark has begun a data file of events and not committed it."""

    def watch(folder: Path, known: set[Path]) -> None:
        while set(folder.glob("*.parquet")) <= known:
            time.sleep(0.001)
        _die()

    def begin(writer: Writer, *_: object) -> None:
        folder = Path(writer.lake.uri(writer.name))
        if _new_records.is_set() and not _is_quarantine(writer):
            threading.Thread(target=watch, args=(folder, set(folder.glob("*.parquet")))).start()

    _wrap(Writer, "_append_spark", before=begin)
    _ingest(settings)


def after_second_commit_of_tables(settings: Settings) -> None:
    """Each of `TABLES` has committed its second micro-batch, and Spark knows of none."""
    commits: Counter[str] = Counter()
    lock = threading.Lock()

    def hold(name: str, written: Any) -> None:
        if name not in TABLES or not written.changed:
            return
        with lock:
            commits[name] += 1
            if all(commits[table] == 2 for table in TABLES):
                _die()
        if commits[name] == 2:
            threading.Event().wait()

    _wrap(Writer, "upsert", after=lambda writer, written: hold(writer.name, written))
    _wrap(Refresher, "publish", after=lambda refresher, written: hold(refresher.table.full_name, written))
    driver.run(settings, DOMAIN)


STAGES: dict[str, Callable[[Settings], None]] = {
    stage.__name__: stage
    for stage in (
        before_decoding,
        after_quarantine,
        after_events_of_one_topic,
        before_checkpoint,
        within_append,
        after_second_commit_of_tables,
    )
}


def _ingest(settings: Settings) -> None:
    planned = settings.checkpoints / DOMAIN / "ingest" / "offsets"
    last = max((int(path.name) for path in planned.glob("*") if path.name.isdigit()), default=-1)

    def light(_: Ingest, __: object, number: int) -> None:
        if number > last:
            _new_records.set()

    _wrap(Ingest, "_batch", before=light)
    driver.drain(settings, DOMAIN, ingest=True, tables=[])


def _wrap(
    owner: type, name: str, *, before: Callable[..., object] | None = None, after: Callable[..., object] | None = None
) -> None:
    """Call `before` with the method's arguments, the method, and `after` with the object and what the method gave."""
    method = getattr(owner, name)

    def wrapped(self: object, *arguments: object, **named: object) -> object:
        if before:
            before(self, *arguments)
        result = method(self, *arguments, **named)
        if after:
            after(self, result)
        return result

    patch.object(owner, name, wrapped).start()


def _is_quarantine(writer: Writer) -> bool:
    return writer.name.endswith(QUARANTINE)


def _die_with_new_records() -> None:
    if _new_records.is_set():
        _die()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


if __name__ == "__main__":
    STAGES[sys.argv[1]](Settings.from_environment())

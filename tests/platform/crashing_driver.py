"""Ends a stream driver at a stage of a micro-batch.

`python -m tests.platform.crashing_driver STAGE` kills its process there; `failing_at` lets what a test runs in its own
process fail there, and go no further.

A stage of ingest is reached with records that no micro-batch had before; one that was interrupted earlier ends first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tests.support.crashes import Died, watched
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import QUARANTINE
from twofold.infra.project.settings import Settings
from twofold.streaming import driver
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.refresh.refresh import Refresher

DOMAIN = "flights"
TABLES = ("flights.delays_by_hour", "flights.airport_weather", "flights.carrier_days")
"""A table with state, one of latest rows, and one that follows another table."""
KEPT = ("flights.flights", *TABLES)
LAST_COMMIT = dict.fromkeys(TABLES, 2) | {"flights.carrier_days": 1}
"""A change-driven table takes all that its inputs bring while they are behind in one refresh."""


class Crash:
    """One end.

    Attributes:
        new_records: set once ingest has records that no earlier micro-batch had.
    """

    def __init__(self, end: Callable[[], NoReturn]) -> None:
        self._end = end
        self._is_dead = threading.Event()
        self.new_records = threading.Event()
        self.replaced = ExitStack()

    def strike(self) -> NoReturn:
        self._is_dead.set()
        self._end()

    def strike_with_new_records(self, *_: object) -> None:
        if self.new_records.is_set():
            self.strike()

    def hold(self) -> NoReturn:
        """Let a thread go no further."""
        self._is_dead.wait()
        raise Died

    def wrap(
        self,
        owner: type,
        name: str,
        *,
        before: Callable[..., object] | None = None,
        after: Callable[..., object] | None = None,
    ) -> None:
        """Call `before` with the method's arguments, the method, and `after` with the object and what that gave."""

        def if_alive(self_: object, *arguments: object) -> None:
            if self._is_dead.is_set():
                raise Died
            if before:
                before(self_, *arguments)

        self.replaced.enter_context(watched([(owner, name)], before=if_alive, after=after))


def before_decoding(crash: Crash) -> None:
    """Nothing of the micro-batch is written."""
    crash.wrap(TopicWriter, "_write", before=crash.strike_with_new_records)


def before_quarantine(crash: Crash) -> None:
    """A topic's good records are in, its bad ones are not."""

    def strike(writer: Writer, *_: object) -> None:
        if _is_quarantine(writer):
            crash.strike_with_new_records()

    crash.wrap(Writer, "append", before=strike)


def after_events_of_one_topic(crash: Crash) -> None:
    """One topic's good records are in; its bad ones are not, and nothing of the others."""
    first = threading.Lock()

    def hold(writer: Writer, *_: object) -> None:
        if crash.new_records.is_set() and not _is_quarantine(writer) and not first.acquire(blocking=False):
            crash.hold()

    def strike(writer: Writer, _: object) -> None:
        if not _is_quarantine(writer):
            crash.strike_with_new_records()

    crash.wrap(Writer, "append", before=hold, after=strike)


def before_checkpoint(crash: Crash) -> None:
    """Everything is in, and Spark does not know it."""
    crash.wrap(Ingest, "_note", after=crash.strike_with_new_records)


def within_append(crash: Crash) -> None:
    """Spark has begun a data file of events and not committed it; only the end of the process stops it there."""

    def watch(folder: Path, known: set[Path]) -> None:
        while set(folder.glob("*.parquet")) <= known:
            time.sleep(0.001)
        crash.strike()

    def begin(writer: Writer, *_: object) -> None:
        folder = Path(writer.lake.uri(writer.name))
        if crash.new_records.is_set() and not _is_quarantine(writer):
            threading.Thread(target=watch, args=(folder, set(folder.glob("*.parquet")))).start()

    crash.wrap(Writer, "_append_spark", before=begin)


def after_commits_of_tables(crash: Crash) -> None:
    """Each of `TABLES` has committed a micro-batch that it does not know of: its second, where it has several."""
    commits: Counter[str] = Counter()
    lock = threading.Lock()

    def hold(name: str, written: Any) -> None:
        if name not in TABLES or not written.changed:
            return
        with lock:
            commits[name] += 1
            if all(commits[table] == last for table, last in LAST_COMMIT.items()):
                crash.strike()
        if commits[name] == LAST_COMMIT[name]:
            crash.hold()

    crash.wrap(Writer, "upsert", after=lambda writer, written: hold(writer.name, written))
    crash.wrap(Refresher, "publish", after=lambda refresher, done: hold(refresher.table.full_name, done.written))


Stage = Callable[[Crash], None]
STAGES: dict[str, Stage] = {
    stage.__name__: stage
    for stage in (
        before_decoding,
        before_quarantine,
        after_events_of_one_topic,
        before_checkpoint,
        within_append,
        after_commits_of_tables,
    )
}


@contextmanager
def failing_at(stage: Stage, settings: Settings) -> Iterator[None]:
    """Ingest fails at the stage, and writes nothing from then on, for as long as the block."""

    def fail() -> NoReturn:
        raise Died(stage.__name__)

    crash = Crash(fail)
    with crash.replaced:
        _watch_for_new_records(crash, settings)
        stage(crash)
        yield


def _watch_for_new_records(crash: Crash, settings: Settings) -> None:
    planned = settings.checkpoints / DOMAIN / "ingest" / "offsets"
    last = max((int(path.name) for path in planned.glob("*") if path.name.isdigit()), default=-1)

    def light(_: Ingest, __: object, number: int) -> None:
        if number > last:
            crash.new_records.set()

    crash.wrap(Ingest, "_batch", before=light)


def _is_quarantine(writer: Writer) -> bool:
    return writer.name.endswith(QUARANTINE)


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


if __name__ == "__main__":
    settings = Settings.from_environment()
    crash, stage = Crash(_kill), STAGES[sys.argv[1]]
    stage(crash)
    if stage is after_commits_of_tables:
        driver.run(settings, DOMAIN, tables=KEPT)
    else:
        _watch_for_new_records(crash, settings)
        driver.drain(settings, DOMAIN, ingest=True, tables=[])

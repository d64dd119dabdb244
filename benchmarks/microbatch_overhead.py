"""What a micro-batch of each table costs, by resource, and the share of it that plans, fences and notes."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import psutil

from benchmarks.measuring.benchmark_platform import broker_process, cpu_s, platform
from benchmarks.measuring.figures import report, spread
from benchmarks.stream_freshness import FIRST_DAY, produce
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.open_table import OpenTable
from twofold.infra.project.settings import Settings
from twofold.streaming.driver import table_query
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.streaming.maintain.change_driven import ChangeDrivenStream
from twofold.streaming.maintain.stateful_query import QueryDrivenStream
from twofold.streaming.maintain.table_stream import TableStream
from twofold.tables.refresh.open_platform import opened
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

BATCHES, COLD, RATE = 12, 3, 2_000
BOOKKEEPING = [
    (Ingest, "_ranges"),
    (Ingest, "_note"),
    (QueryDrivenStream, "_consumed"),
    (TableStream, "_note"),
    (TableStream, "_require_one_definition"),
    (ChangeDrivenStream, "_ends"),
    (Checkpoint, "take"),
    (Writer, "done"),
]


class Clock:
    """Adds up the seconds that named methods take."""

    def __init__(self) -> None:
        self.spent = 0.0

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            started = time.monotonic()
            try:
                return method(*arguments, **named)
            finally:
                self.spent += time.monotonic() - started

        return run


class Meter:
    """Reads what has been used so far: milliseconds of CPU by process, files by kind, opens of Delta tables."""

    def __init__(self, settings: Settings, patches: ExitStack) -> None:
        self._settings = settings
        children = psutil.Process().children(recursive=True)
        jvm = next(p for p in children if any("pyspark-shell" in word for word in p.cmdline()))
        self._processes = {"Python": psutil.Process(), "JVM": jvm, "broker": broker_process(settings)}
        self._opens = 0
        for owner, name in ((Lake, "open"), (OpenTable, "newest")):
            patches.enter_context(patch.object(owner, name, self._counted(getattr(owner, name))))

    def now(self) -> Counter[str]:
        found = Counter({f"CPU {name}, ms": round(1_000 * cpu_s(p)) for name, p in self._processes.items()})
        found["opens of Delta tables"] = self._opens
        for folder, _, names in os.walk(self._settings.home):  # skips what is removed meanwhile
            found.update(kind for name in names if (kind := _kind(Path(folder, name))))
        return found

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            self._opens += 1
            return method(*arguments, **named)

        return run


def _kind(path: Path) -> str | None:
    if "checkpoints" in path.parts and not path.name.startswith("."):
        return "files of checkpoints"
    if "_delta_log" in path.parts:
        return "entries of Delta logs" if path.suffix == ".json" else None
    return "files of data" if path.suffix == ".parquet" else None


def main() -> int:
    """Feed, drain through ingest and every table, and repeat in one warm session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=8_000, help="of a micro-batch of ingest")
    args = parser.parse_args()
    shares: dict[str, list[float]] = {}
    costs: dict[str, list[Counter[str]]] = {}
    with platform("bookkeeping") as settings, opened(settings, "bookkeeping", ["flights"]) as p, ExitStack() as patches:
        clock, steps, day = Clock(), Clock(), FIRST_DAY
        for owner, name in BOOKKEEPING:
            patches.enter_context(patch.object(owner, name, clock.timed(getattr(owner, name))))
        patches.enter_context(patch.object(ChangeDrivenStream, "step", steps.timed(ChangeDrivenStream.step)))
        meter = Meter(settings, patches)
        for batch in range(BATCHES):
            day = produce(settings, RATE, args.records / RATE, day)  # the same flights once more would change no table
            work: list[tuple[str, Ingest | QueryDrivenStream | ChangeDrivenStream]] = [
                ("ingest", Ingest(p.spark, p.lake, p.registry, "flights"))
            ]
            work += [(table.full_name, table_query(p, table)) for table in p.registry.in_order("flights")]
            for name, one in work:
                clock.spent = steps.spent = 0.0
                before = meter.now()
                query = one.start(available_now=True)
                query.awaitTermination()
                total = steps.spent if isinstance(one, ChangeDrivenStream) else _seconds(query)
                if batch >= COLD and total:
                    shares.setdefault(name, []).append(clock.spent / total)
                    spent = Counter({k: n - before[k] for k, n in meter.now().items()})
                    spent["wall, ms"] = round(1_000 * total)
                    costs.setdefault(name, []).append(spent)
    figures: dict[str, object] = {}
    for name, values in shares.items():
        figures[f"{name}, share of the micro-batch"] = spread(values)
        figures[f"{name}, medians"] = {
            kind: median(one[kind] for one in costs[name]) for kind in sorted(costs[name][0])
        }
    claims = {f"{name} <= 15 % (median)": spread(values)["median"] <= 0.15 for name, values in shares.items()}
    return 0 if report("bookkeeping", figures, claims) else 1


def _seconds(query: Any) -> float:
    """Seconds that the micro-batches of a streaming query took."""
    return float(sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000)


if __name__ == "__main__":
    sys.exit(main())

"""The share of a micro-batch that is overhead: planning, fencing and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from benchmarks.measuring.benchmark_platform import platform
from benchmarks.measuring.figures import report, spread
from benchmarks.stream_freshness import FIRST_DAY, produce
from infra.delta.delta_writer import Writer
from streaming.driver import table_query
from streaming.ingest.ingest_query import Ingest
from streaming.maintain.change_driven import ChangeDrivenStream
from streaming.maintain.stateful_query import Maintain
from streaming.maintain.table_stream import TableStream
from tables.refresh.open_platform import opened
from tables.refresh.streaming_checkpoint import Checkpoint

BATCHES, RATE, SECONDS = 12, 2_000, 4.0
BOOKKEEPING = [
    (Ingest, "_ranges"),
    (Ingest, "_note"),
    (Maintain, "_consumed"),
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


def main() -> int:
    """Feed, drain through ingest and every table, and repeat in one warm session."""
    shares: dict[str, list[float]] = {}
    with platform("bookkeeping") as settings, opened(settings, "bookkeeping", ["flights"]) as p, ExitStack() as patches:
        clock, steps, day = Clock(), Clock(), FIRST_DAY
        for owner, name in BOOKKEEPING:
            patches.enter_context(patch.object(owner, name, clock.timed(getattr(owner, name))))
        patches.enter_context(patch.object(ChangeDrivenStream, "step", steps.timed(ChangeDrivenStream.step)))
        for batch in range(BATCHES):
            day = produce(settings, RATE, SECONDS, day)  # the same flights once more would change no table
            work: list[tuple[str, Ingest | Maintain | ChangeDrivenStream]] = [
                ("ingest", Ingest(p.spark, p.lake, p.registry, "flights"))
            ]
            work += [(table.full_name, table_query(p, table)) for table in p.registry.in_order("flights")]
            for name, one in work:
                clock.spent = steps.spent = 0.0
                query = one.start(available_now=True)
                query.awaitTermination()
                total = steps.spent if isinstance(one, ChangeDrivenStream) else _seconds(query)
                if batch >= 3 and total:
                    shares.setdefault(name, []).append(clock.spent / total)
    figures = {f"{name}, share of the micro-batch": spread(values) for name, values in shares.items()}
    claims = {f"{name} <= 15 % (median)": spread(values)["median"] <= 0.15 for name, values in shares.items()}
    return 0 if report("bookkeeping", figures, claims) else 1


def _seconds(query: Any) -> float:
    """Seconds that the micro-batches of a streaming query took."""
    return float(sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000)


if __name__ == "__main__":
    sys.exit(main())

"""Seconds that a stream takes to revise a table's newest rows, with a long and a short history."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring.figures import report, spread
from tests import ROOT
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings

NAME = "plant.by_hour"
SCHEMA = pa.schema(
    [("sensor", pa.string()), ("hour", pa.timestamp("us", tz="UTC")), ("rows", pa.int64()), ("mean", pa.float64())]
)
KEY = ["sensor", "hour"]
SENSORS, LONG, SHORT, ROUNDS = 1_000, 2_400, 240, 20
GROWTH, GAIN = 1.25, 2.0


@dataclass
class Revised:
    """A table of a row for each sensor and hour, of which a stream writes the last two hours, and the next one.

    Args:
        by: as `tidy` takes it.
    """

    home: Path
    hours: int
    by: str | None
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        lake = Lake(Settings(home=self.home))
        lake.ensure(NAME, SCHEMA, statistics=KEY)
        self._writer, self._random = Writer(lake, NAME), np.random.default_rng(0)
        for number, first in enumerate(range(0, self.hours, SHORT)):
            self._writer.append(self._rows(range(first, first + SHORT)), CommitTag(app="history", version=number))
        compact(lake, NAME, self.by)

    def revise(self) -> None:
        """One micro-batch."""
        rows = self._rows(range(self.hours - 2, self.hours + 1))
        began = time.monotonic()
        self._writer.upsert(rows, KEY, CommitTag(app="stream", version=self.hours))
        self.seconds.append(time.monotonic() - began)
        self.hours += 1

    def _rows(self, hours: range) -> pa.Table:
        count = len(hours) * SENSORS
        at = np.repeat(np.array(hours, "timedelta64[h]"), SENSORS) + np.datetime64("2024-01-01", "us")
        names = [f"s{sensor}" for sensor in range(SENSORS)] * len(hours)
        counts, means = self._random.integers(0, 100_000, count), self._random.random(count)
        return pa.table({"sensor": names, "hour": at, "rows": counts, "mean": means}).cast(SCHEMA)


def main() -> int:
    """Revise three tables by turns, after two rounds that do not count."""
    home = ROOT / ".twofold" / "benchmark-revisions"
    shutil.rmtree(home, ignore_errors=True)
    try:
        tables = {
            "short": Revised(home / "short", SHORT, "hour"),
            "long": Revised(home / "long", LONG, "hour"),
            "long, in one file": Revised(home / "compacted", LONG, None),
        }
        for _ in range(2 + ROUNDS):
            for one in tables.values():
                one.revise()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    taken = {name: spread(one.seconds[2:]) for name, one in tables.items()}
    growth = taken["long"]["median"] / taken["short"]["median"]
    gain = taken["long, in one file"]["median"] / taken["long"]["median"]
    figures: dict[str, object] = {"rows, long": LONG * SENSORS, "rows, short": SHORT * SENSORS}
    figures |= {f"{name}, s": seconds for name, seconds in taken.items()}
    figures |= {"ten times the history, ratio": growth, "times faster than in one file": gain}
    claims = {
        f"ten times the history costs at most {GROWTH} x": growth <= GROWTH,
        f">= {GAIN} x faster than in one file": gain >= GAIN,
    }
    return 0 if report("revisions", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())

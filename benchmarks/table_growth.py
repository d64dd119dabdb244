"""Bytes on disk, and seconds of a commit, of a table that is revised every five seconds for an hour of its clock."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.measuring.figures import report, spread, timed
from tests import ROOT
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings

NAME, SCHEMA = (
    "plant.hours",
    pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("value", pa.float64()), ("note", pa.string())]
    ),
)
STEPS, STEP_MS, NEW, RECENT = 720, 5_000, 1_250, 360
MOST, FLAT = 3.5e9, 1.05
_FIRST_MS = 1_800_000_000_000


class Stream:
    """A stream, half of whose rows revise those of the last half hour.

    Attributes:
        now_ms: its clock, which commits get, too.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake, self._writer, self._dice = lake, Writer(lake, NAME), np.random.default_rng(1)
        self.now_ms, self._rows = _FIRST_MS, 0

    def step(self, number: int) -> float:
        """The seconds of one commit, and of what is tidied after it."""
        self.now_ms += STEP_MS
        new = np.arange(self._rows, self._rows + NEW)
        first = max(0, self._rows - RECENT * NEW)
        old = self._dice.choice(np.arange(first, self._rows), min(NEW, self._rows - first), replace=False)
        self._rows += NEW
        rows, version = self._table(np.concatenate([old, new])), self._lake.version(NAME)
        seconds = timed(lambda: self._commit(rows, number))
        for made in range(version + 1, self._lake.version(NAME) + 1):
            self._date(Path(self._lake.uri(NAME), "_delta_log", f"{made:020d}.json"))
        return seconds

    def _commit(self, rows: pa.Table, number: int) -> None:
        self._writer.upsert(rows, ["id"], CommitTag(app="stream", version=number, info={"ends": {"0": number}}))
        if number % 100 == 0:
            compact(self._lake, NAME, "at")

    def _table(self, ids: np.ndarray) -> pa.Table:
        at = pa.array(_FIRST_MS * 1_000 + ids * STEP_MS * 1_000 // NEW).cast(SCHEMA.field("at").type)
        notes = [self._dice.bytes(4).hex() for _ in ids]
        return pa.table({"id": ids, "at": at, "value": self._dice.random(len(ids)), "note": notes}, schema=SCHEMA)

    def _date(self, commit: Path) -> None:
        commit.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{self.now_ms}', commit.read_text(), count=1))


def main() -> int:
    """Revise the table again and again; look at the disk after every tenth commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    home = ROOT / ".twofold" / "benchmark-disk"
    shutil.rmtree(home, ignore_errors=True)
    lake = Lake(Settings(home=home))
    lake.ensure(NAME, SCHEMA, statistics=["id", "at"])
    stream = Stream(lake)
    clock = SimpleNamespace(time_ns=lambda: stream.now_ms * 1_000_000, monotonic=lambda: stream.now_ms / 1_000)
    seconds, disk = list[float](), list[int]()
    try:
        with patch("twofold.infra.delta.trim.time", clock):
            for number in range(1, args.steps + 1):
                seconds.append(stream.step(number))
                if number % 10 == 0:
                    disk.append(sum(file.stat().st_size for file in home.rglob("*") if file.is_file()))
                if number % 100 == 0:
                    print(f"step {number}: {disk[-1] / 1e9:.2f} GB, {seconds[-1]:.2f} s", flush=True)
        live = sum(pa.table(lake.open(NAME).get_add_actions(flatten=True))["size_bytes"].to_pylist())
    finally:
        shutil.rmtree(home, ignore_errors=True)
    sixth = len(seconds) // 6
    late, before = spread(seconds[-sixth:]), spread(seconds[-2 * sixth : -sixth])
    growth, time = disk[-1] / disk[-1 - sixth // 10], late["median"] / before["median"]
    figures: dict[str, object] = {"steps": args.steps, "live, MB": live / 1e6, "disk at the end, GB": disk[-1] / 1e9}
    figures |= {"disk, the most, GB": max(disk) / 1e9, "disk at the end, against a sixth before": growth}
    figures |= {"a commit, s": late, "a commit, against the sixth before": time}
    claims = {
        f"at most {MOST / 1e9:.1f} GB": max(disk) <= MOST,
        f"at the end at most {FLAT} x as much disk as a sixth before": growth <= FLAT,
        f"a commit takes at most {FLAT} x as long as a sixth before": time <= FLAT,
    }
    return 0 if report("disk", figures, claims) else 1


if __name__ == "__main__":
    raise SystemExit(main())

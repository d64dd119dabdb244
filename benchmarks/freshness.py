"""Seconds from the broker's append of a record to its being visible in every table, at a steady rate."""

from __future__ import annotations

import argparse
import bisect
import math
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow.parquet

from benchmarks.figures import percentile, report
from benchmarks.platform import RECORDS_PER_DAY, command, driver, platform, traffic
from infra.settings import Settings
from streaming import progress
from tables.declaration import Table
from tables.lake import Lake
from tables.registry import Registry, load

WARM_S, MEASURED_S = 60, 60
FIRST_DAY = date(2013, 1, 1)
GOALS = {"events": {0.5: 0.7, 0.95: 1.5}, "flights.delays_by_hour": {0.5: 1.5}}
SLOWEST_TABLE_P50_S = 3.0


def produce(settings: Settings, rate: float, seconds: float, first: date = FIRST_DAY) -> date:
    """Send the real flights from a day on, at this rate for so long; the day after the last."""
    days = math.ceil(rate * seconds / RECORDS_PER_DAY)
    arguments, environment = command(settings, *traffic(rate, first, days))
    subprocess.run(arguments, env=environment, stdout=subprocess.DEVNULL, check=True)
    return first + timedelta(days=days)


def appended(lake: Lake, name: str, since: datetime) -> list[tuple[int, float, list[float]]]:
    """Of each commit of an events table: version, when it was visible, when the broker appended its records."""
    found = []
    for commit in lake.commits(name, 0, lake.version(name)):
        if commit.info.get("cause") != "ingest" or not commit.added:
            continue
        visible = _visible(lake, name, commit.version)
        times: list[float] = []
        for added in commit.added:
            column = pyarrow.parquet.read_table(f"{lake.uri(name)}/{added.path}", columns=["_appended_at"])[
                "_appended_at"
            ]
            times += [t.timestamp() for t in column.to_pylist() if t > since]
        found.append((commit.version, visible, times))
    return found


def freshness(lake: Lake, registry: Registry, since: datetime) -> dict[str, list[float]]:
    """Seconds per record, by events and by table; a table shows a record once it has read the record's commit."""
    topics = {name: appended(lake, name, since) for name in registry.topics}
    result = {"events": [visible - t for commits in topics.values() for _, visible, times in commits for t in times]}
    shown: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for table in registry.in_order():
        shown[table.full_name] = _shown(lake, table)
        seconds: list[float] = []
        for source, first_seen in shown[table.full_name].items():
            if source in topics:
                commits = topics[source]
            else:  # a table below a table: follow the records through it
                commits = [
                    (_containing(lake, source, visible), visible, times)
                    for topic, seen in shown[source].items()
                    for version, _, times in topics[topic]
                    if (visible := _first_after(seen, version)) is not None
                ]
            for version, _, times in commits:
                at = _first_after(first_seen, version)
                if at is not None:
                    seconds += [at - t for t in times]
        result[table.full_name] = seconds
    return result


def _shown(lake: Lake, table: Table) -> dict[str, list[tuple[int, float]]]:
    """Input -> (the next version to read, when that was visible), by commit."""
    found: dict[str, list[tuple[int, float]]] = {}
    for commit in lake.commits(table.full_name, 0, lake.version(table.full_name)):
        for source, version in dict(commit.info.get("versions", {})).items():
            found.setdefault(source, []).append((version, _visible(lake, table.full_name, commit.version)))
    return found


def _first_after(seen: list[tuple[int, float]], version: int) -> float | None:
    place = bisect.bisect_right(seen, (version, float("inf")))
    return seen[place][1] if place < len(seen) else None


def _containing(lake: Lake, name: str, visible: float) -> int:
    newest = lake.version(name)
    times = [_visible(lake, name, version) for version in range(newest + 1)]
    return bisect.bisect_left(times, visible)


def _visible(lake: Lake, name: str, version: int) -> float:
    return (Path(lake.uri(name)) / "_delta_log" / f"{version:020d}.json").stat().st_mtime


def main() -> int:
    """Run a driver of the domain, warm it, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=int, default=MEASURED_S)
    parser.add_argument("--tables", nargs="*", default=[], help="keep these only; all of the domain when none is named")
    args = parser.parse_args()
    with platform("freshness") as settings:
        with driver(settings, args.tables):
            since = datetime.now(UTC) + timedelta(seconds=WARM_S)
            produce(settings, args.rate, WARM_S + args.seconds)
            time.sleep(8)
            shares = [p.batch_s for p in progress.read(settings)]
        registry = load()
        found = freshness(Lake(settings), registry, since)
    if args.tables:
        kept = {registry.find_table(name).full_name for name in args.tables}
        found = {name: seconds for name, seconds in found.items() if name == "events" or name in kept}
    rate = len(found["events"]) / args.seconds
    figures: dict[str, object] = {"records/s": rate, "last micro-batches, s": max(shares)}
    claims = {}
    for name, seconds in found.items():
        if not seconds:
            claims[f"{name} was measured"] = False
            continue
        figures[f"{name}, s"] = {
            "records": len(seconds),
            "p50": percentile(seconds, 0.5),
            "p95": percentile(seconds, 0.95),
            "max": max(seconds),
        }
        for share, goal in GOALS.get(name, {0.5: SLOWEST_TABLE_P50_S}).items():
            claims[f"{name} p{share * 100:.0f} <= {goal} s"] = percentile(seconds, share) <= goal
    return 0 if report("freshness", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Seconds from the broker's append of a record to its being visible in every table, at a steady rate."""

from __future__ import annotations

import argparse
import bisect
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow.parquet

from benchmarks.measuring.benchmark_platform import RECORDS_PER_DAY, command, driver, platform, traffic
from benchmarks.measuring.cpu_by_part import Accountant
from benchmarks.measuring.figures import percentile, report
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.streaming.query import progress
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table

WARM_S, MEASURED_S = 60, 60
FIRST_DAY = date(2013, 1, 1)
RATE, CORES = 500, 1.2
"""Records per second that two cores carry with all tables, and the cores that the driver and the broker may take."""
EVENTS_S, CLOSING_S, OTHERS_S = 0.5, 1.5, 3.0
"""Goals for the median: events, tables whose rows close, other tables."""


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
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--seconds", type=int, default=MEASURED_S)
    parser.add_argument("--tables", nargs="*", default=[], help="keep these only; all of the domain when none is named")
    args = parser.parse_args()
    with platform("freshness") as settings:
        with driver(settings, args.tables), Accountant(settings) as accountant:
            since = datetime.now(UTC) + timedelta(seconds=WARM_S)
            with ThreadPoolExecutor(max_workers=1) as pool:
                sending = pool.submit(produce, settings, args.rate, WARM_S + args.seconds)
                time.sleep(WARM_S)
                before = accountant.now()
                sending.result()
                spent, took_s = accountant.now() - before, (datetime.now(UTC) - since).total_seconds()
            time.sleep(8)
            shares = [p.batch_s for p in progress.read(settings)]
        registry = load().restricted_to(["flights"])
        found = freshness(Lake(settings), registry, since)
    if args.tables:
        kept = {registry.find_table(name).full_name for name in args.tables}
        found = {name: seconds for name, seconds in found.items() if name == "events" or name in kept}
    cores = sum(spent.values()) / took_s
    figures: dict[str, object] = {
        "records/s": len(found["events"]) / args.seconds,
        "last micro-batches, s": max(shares),
        "cores": cores,
        "cores by part": {part: seconds / took_s for part, seconds in spent.most_common()},
    }
    claims = {f"less than {CORES} cores": cores < CORES} if args.rate <= RATE else {}
    for name, seconds in found.items():
        if not seconds:
            claims[f"{name} was measured"] = False
            continue
        p50, goal = percentile(seconds, 0.5), _goal_s(registry, name)
        figures[f"{name}, s"] = {
            "records": len(seconds),
            "p50": p50,
            "p95": percentile(seconds, 0.95),
            "max": max(seconds),
        }
        claims[f"{name} p50 <= {goal} s"] = p50 <= goal
    return 0 if report("freshness", figures, claims) else 1


def _goal_s(registry: Registry, name: str) -> float:
    if name == "events":
        return EVENTS_S
    return CLOSING_S if registry.find_table(name).closes_at else OTHERS_S


if __name__ == "__main__":
    sys.exit(main())

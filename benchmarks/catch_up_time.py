"""Seconds and CPU until all tables of `flights` hold a month, or a year, of flights that was sent at once."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from benchmarks.measuring.benchmark_platform import command, driver, platform
from benchmarks.measuring.cpu_by_part import Accountant
from benchmarks.measuring.figures import report
from twofold.infra.delta.lake import Lake
from twofold.infra.kafka.topic_admin import offsets
from twofold.infra.project.settings import Settings
from twofold.streaming.query import progress
from twofold.tables.declare.registry import Registry, load

COLD_S, WARM_S, YEAR_S = 40.0, 20.0, 120.0
"""Goals: a month in a driver that just started, a month in a warmed one, a year; after the last record was sent."""
PATIENCE_S = 600.0
MONTHS = (date(2013, 1, 1), date(2013, 2, 1), date(2013, 3, 1), date(2013, 4, 1))
LAST = date(2014, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What one load took.

    Attributes:
        records: that were sent.
        after_s: seconds from the last acknowledgement to the last table's note that it has all.
        by_table: the same for each table.
        cpu: part of the driver -> seconds of CPU, from the first record on.
        tasks: table -> seconds of CPU of its Spark tasks.
        steps: query -> micro-batches or refreshes.
    """

    records: int
    sending_s: float
    after_s: float
    by_table: Mapping[str, float]
    cpu: Mapping[str, float]
    tasks: Mapping[str, float]
    steps: Mapping[str, float]


def main() -> int:
    """Measure months in one driver, a year in another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=3, help="months, one after the other, in one driver")
    parser.add_argument("--year", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--profile", type=Path, help="a directory for recordings of the JVM's Flight Recorder")
    args = parser.parse_args()
    figures: dict[str, object] = {}
    claims: dict[str, bool] = {}
    with prepared("catch-up", args.profile) as (settings, accountant):
        for number in range(args.months):
            phase = load_at_once(settings, accountant, MONTHS[number], MONTHS[number + 1])
            name, goal = ("month, just started", COLD_S) if number == 0 else (f"month, warmed, {number}", WARM_S)
            figures |= figures_of(name, phase)
            claims[f"{name} <= {goal:.0f} s"] = phase.after_s <= goal
    if args.year:
        with prepared("catch-up-year", args.profile) as (settings, accountant):
            phase = load_at_once(settings, accountant, MONTHS[0], LAST)
            figures |= figures_of("year", phase)
            claims[f"year <= {YEAR_S:.0f} s"] = phase.after_s <= YEAR_S
    return 0 if report("catch_up", figures, claims) else 1


@contextmanager
def prepared(name: str, profile: Path | None) -> Iterator[tuple[Settings, Accountant]]:
    """A platform whose driver has just started and keeps an event log."""
    with platform(name) as settings:
        log = settings.home / "events"
        log.mkdir(parents=True)
        options = [
            "-Dspark.eventLog.enabled=true",
            f"-Dspark.eventLog.dir=file://{log}",
            "-Dspark.eventLog.compress=false",
            "-Dspark.eventLog.rolling.enabled=false",
        ]
        if profile:
            profile.mkdir(parents=True, exist_ok=True)
            options.append(f"-XX:StartFlightRecording=filename={profile.resolve()}/{name}.jfr,settings=profile")
        before = os.environ.get("JAVA_TOOL_OPTIONS")
        os.environ["JAVA_TOOL_OPTIONS"] = " ".join([*filter(None, [before]), *options])
        try:
            with driver(settings, []), Accountant(settings) as accountant:
                yield settings, accountant
        finally:
            os.environ.pop("JAVA_TOOL_OPTIONS")
            if before:
                os.environ["JAVA_TOOL_OPTIONS"] = before


def load_at_once(settings: Settings, accountant: Accountant, start: date, end: date) -> Phase:
    """Send these days as fast as the broker takes them, and wait until every table has them."""
    lake, registry = Lake(settings), load().restricted_to(["flights"])
    cpu, tasks, steps, began = accountant.now(), task_s(settings), taken(settings), time.monotonic()
    arguments, environment = command(settings, "traffic", "flights", "--json", "--start", str(start), "--end", str(end))
    sent = subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    last = datetime.now(UTC)
    records = sum(n for kinds in json.loads(sent.stdout)["acknowledged"].values() for n in kinds.values())
    sending_s = time.monotonic() - began
    done: dict[str, datetime] = {}
    while len(done) < len(registry.tables):
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"Not caught up after {PATIENCE_S:.0f} s: {sorted(registry.tables.keys() - done)}")
        time.sleep(0.2)
        done = caught_up(settings, lake, registry)
    spent = accountant.now() - cpu
    time.sleep(1.0)  # the event log is written behind the work
    by_table = {name: max((at - last).total_seconds(), 0.0) for name, at in done.items()}
    return Phase(
        records=records,
        sending_s=sending_s,
        after_s=max(by_table.values()),
        by_table=by_table,
        cpu=spent,
        tasks=task_s(settings) - tasks,
        steps=taken(settings) - steps,
    )


def taken(settings: Settings) -> Counter[str]:
    """Query -> steps that it has ended so far."""
    return Counter({p.query: p.batch + 1 for p in progress.read(settings, "flights")})


def caught_up(settings: Settings, lake: Lake, registry: Registry) -> dict[str, datetime]:
    """When each table that has all of the log said so; none while ingest has not read all."""
    known = {p.query: p for p in progress.read(settings, "flights")}
    if "ingest" not in known:
        return {}
    broker = offsets(settings, list(registry.topics))
    taken = known["ingest"].offsets
    if any(taken.get(t, {}).get(p, 0) < o.latest for t, parts in broker.items() for p, o in parts.items()):
        return {}
    found: dict[str, datetime] = {}
    for table in registry.in_order():
        p = known.get(table.name)
        above = [source.full_name for source in registry.upstream(table)]
        if p is None or any(name in registry.tables and name not in found for name in above):
            continue
        if all(not waits(lake, name, p.versions.get(name, 0)) for name in above):
            found[table.full_name] = p.updated_at
    return found


def waits(lake: Lake, name: str, version: int) -> bool:
    """Whether a table has changed rows from a version on."""
    return any(commit.changes for commit in lake.commits(name, version - 1, lake.version(name)))


def task_s(settings: Settings) -> Counter[str]:
    """Table -> seconds of CPU of its Spark tasks so far, by the event log."""
    stages: dict[int, str] = {}
    found: Counter[str] = Counter()
    for file in (settings.home / "events").glob("*"):
        for line in file.read_text().splitlines():
            event = json.loads(line) if line.endswith("}") else {}
            if event.get("Event") == "SparkListenerJobStart":
                described = (event.get("Properties") or {}).get("spark.job.description") or "not named"
                stages |= dict.fromkeys(event["Stage IDs"], described.split()[0])
            elif event.get("Event") == "SparkListenerTaskEnd":
                metrics = event.get("Task Metrics") or {}
                seconds = metrics.get("Executor CPU Time", 0) + metrics.get("Executor Deserialize CPU Time", 0)
                found[stages.get(event["Stage ID"], "not named")] += seconds / 1e9
    return found


def figures_of(name: str, phase: Phase) -> dict[str, object]:
    """The figures of a phase, greatest first."""

    def ordered(seconds: Mapping[str, float]) -> dict[str, float]:
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    return {
        f"{name}: records": phase.records,
        f"{name}: seconds to send": phase.sending_s,
        f"{name}: seconds after the last": phase.after_s,
        f"{name}: seconds after the last, by table": ordered(phase.by_table),
        f"{name}: CPU s": sum(phase.cpu.values()),
        f"{name}: CPU s by part": ordered(phase.cpu),
        f"{name}: CPU s of tasks by table": ordered(phase.tasks),
        f"{name}: micro-batches and refreshes": ordered(phase.steps),
    }


if __name__ == "__main__":
    sys.exit(main())

"""Seconds that commands and Airflow runs take on a running platform, warm, with months of real flights in it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import psutil
from deltalake import CommitProperties

from benchmarks.catch_up_time import caught_up
from benchmarks.measuring.benchmark_platform import command, free_ports
from benchmarks.measuring.figures import report, spread
from tests import ROOT
from twofold.demo.run.dag_runs import run_after, run_dag, triggered_runs
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.delta.lake import Lake
from twofold.infra.process import supervisor, supervisord
from twofold.infra.process.process_reaper import tagged_processes
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets

MONTH, REST, LAST = date(2013, 1, 1), date(2013, 2, 1), date(2013, 2, 4)
HALF_YEAR = date(2013, 7, 1)
LATE_SHARE = 0.05
"""Of the records, as in the demo: reported hours late."""
TOPIC, TABLE = "flights.departures", "flights.delays_by_hour"
REPLAYED, MOVED = 88_000, 10
PATIENCE_S = 300.0
GIB = 1 << 30
MEMORY_GIB = 6.0
UP = "up, of a platform that was stopped"


@dataclass(frozen=True)
class Task:
    """Something to time.

    Attributes:
        goal_s: for the median; None: there is none.
        act: what is timed.
        prepare: what is done before each round.
        needs: the day up to which flights must be there.
    """

    name: str
    goal_s: float | None
    act: Callable[[Platform], None]
    prepare: Callable[[Platform], None] = lambda _: None
    needs: date = LAST


@dataclass
class Platform:
    """A platform in a home of its own."""

    settings: Settings
    late_records: int = 0
    lake: Lake = field(init=False)

    def __post_init__(self) -> None:
        self.lake = Lake(self.settings)
        self.registry = load().restricted_to(["flights"])

    def run(self, *arguments: str) -> str:
        """Run `twofold ARGUMENTS`; what it printed.

        Raises:
            RuntimeError: it failed.
        """
        environment = command(self.settings)[1]
        ran = subprocess.run(
            [str(ROOT / "twofold"), *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise RuntimeError(f"twofold {' '.join(arguments)} ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def send(self, start: date, end: date) -> None:
        """Send these days at once, and wait until every table has them."""
        days = ("--start", str(start), "--end", str(end), "--hours", str(LATE_SHARE))
        self.run("traffic", "flights", "--json", *days)
        self.settle()

    def settle(self) -> None:
        """Wait until every table has all that was sent."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := self.registry.tables.keys() - caught_up(self.settings, self.lake, self.registry):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Not caught up after {PATIENCE_S:.0f} s: {sorted(missing)}")
            time.sleep(0.5)

    def memory_gib(self) -> float:
        """Of all processes; what several share counts once."""
        found = 0
        for process in tagged_processes(supervisord.process_tag(self.settings)):
            try:
                found += process.memory_full_info().pss
            except psutil.Error:
                continue
        return found / GIB


def up(platform: Platform) -> None:
    platform.run("up", "flights")


def down(platform: Platform) -> None:
    platform.run("down")


def verify_in_airflow(platform: Platform) -> None:
    """As the demo does: reconcile with verify, every closed row recomputed."""
    with reconciling(platform):
        run_dag(platform.settings, "flights.reconcile", {"verify": True})


def check_in_airflow(platform: Platform) -> None:
    run_dag(platform.settings, "flights.quality")


def check(platform: Platform) -> None:
    platform.run("quality", "--json")


def as_of_now(platform: Platform) -> None:
    platform.run("as-of", TABLE, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}")


def backfill_two_days(platform: Platform) -> None:
    platform.run("backfill", TABLE, "--start", "2013-01-10", "--end", "2013-01-12")


def be_late(platform: Platform) -> None:
    """Have one more departure of January ingested, which the stream drops as late."""
    from kafka import KafkaProducer

    platform.late_records += 1
    number, day = platform.late_records, "2013-01-10"
    record = {
        "flight_id": f"ZZ{number}-{time.time_ns()}/{day}T10:15Z",
        "kind": "departed",
        "carrier": "ZZ",
        "flight": number,
        "tail_number": None,
        "origin": "EWR",
        "destination": "BOS",
        "delay_min": 5,
        "scheduled_at": f"{day}T10:15:00Z",
        "occurred_at": f"{day}T10:20:00Z",
        "reported_at": f"{LAST}T00:00:00Z",
    }
    producer = KafkaProducer(bootstrap_servers=platform.settings.bootstrap_servers)
    producer.send(TOPIC, json.dumps(record).encode(), key=str(record["flight_id"]).encode()).get(30)
    producer.close()
    platform.settle()


def correct_one(platform: Platform) -> None:
    [outcome] = json.loads(platform.run("reconcile", TABLE, "--json"))
    if outcome["changed"] != 1:
        raise RuntimeError(f"One row was to be corrected: {outcome}")


def reconcile_all(platform: Platform) -> None:
    platform.run("reconcile", "--json")


def misread(platform: Platform) -> None:
    """Let ten events be as if they had been decoded wrongly, which streams leave to the batch."""
    platform.lake.open(TOPIC).update(
        updates={"delay_min": "coalesce(delay_min, 0) + 1"},
        predicate=f"_partition = 0 AND _offset < {MOVED}",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps({"cause": "replay"})}),
    )
    platform.run("reconcile", "--json")


def replay_most(platform: Platform) -> None:
    """Of the first offsets of each partition as many as make up the number of records."""
    ends = read_ingested_offsets(platform.lake, platform.registry.find_topic(TOPIC)).ends
    each = REPLAYED // len(ends)
    to = ",".join(f"{partition}:{min(end, each)}" for partition, end in ends.items())
    outcomes = json.loads(platform.run("replay", TOPIC, "--to", to, "--json"))
    changed = next(outcome["changed"] for outcome in outcomes if outcome["table"] == TOPIC)
    if changed != MOVED:
        raise RuntimeError(f"{MOVED} records were to be put right: {changed}")


def rebuild_one(platform: Platform) -> None:
    found = json.loads(platform.run("rebuild", TABLE, "--fresh", "--json"))
    if found["changed"]:
        raise RuntimeError(f"The rebuilt table is another one: {found['markdown']}")


TASKS = (
    Task(UP, 25.0, up, down),
    Task("flights.reconcile with verify, in Airflow", 45.0, verify_in_airflow),
    Task("flights.quality, in Airflow", 20.0, check_in_airflow),
    Task("quality", None, check),
    Task("as-of", 5.0, as_of_now),
    Task("backfill of two days", 4.0, backfill_two_days),
    Task("reconcile of one table that corrects a row", 3.0, correct_one, be_late),
    Task("reconcile of all tables that the same record touches", None, reconcile_all, be_late),
    Task("reconcile with nothing to do", 0.5, reconcile_all),
    Task(f"replay of {REPLAYED:,} records that corrects {MOVED}", 20.0, replay_most, misread, HALF_YEAR),
    Task("rebuild of one table over half a year", 20.0, rebuild_one, needs=HALF_YEAR),
)


@contextmanager
def prepared(home: Path | None) -> Iterator[Platform]:
    """A platform that runs; of a home that is given, all of it but its processes is left for the next time."""
    kafka, controller, airflow, spark = free_ports(4)
    settings = Settings(
        home=home or ROOT / ".twofold" / f"benchmark-commands-{os.getpid()}",
        kafka_port=kafka,
        controller_port=controller,
        airflow_port=airflow,
        spark_port=spark,
    )
    platform = Platform(settings)
    try:
        yield platform
    finally:
        supervisor.stop(settings)
        if home is None:
            shutil.rmtree(settings.home, ignore_errors=True)


def feed(platform: Platform, until: date) -> None:
    """Send what is missing of the days before this one; of the first month the stragglers come late."""
    done = platform.settings.home / "fed"
    reached = date.fromisoformat(done.read_text()) if done.exists() else MONTH
    for start, end in ((MONTH, REST), (REST, LAST), (LAST, HALF_YEAR)):
        if reached < end <= until:
            platform.send(start, end)
            done.write_text(str(end))


def measure(platform: Platform, task: Task, rounds: int) -> list[float]:
    """Seconds of each round."""
    found = []
    for _ in range(rounds):
        task.prepare(platform)
        earlier = time.monotonic()
        task.act(platform)
        found.append(time.monotonic() - earlier)
        print(f"{task.name}: {found[-1]:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


@contextmanager
def reconciling(platform: Platform) -> Iterator[None]:
    """Airflow runs `flights.reconcile` meanwhile, and not before or after: it would correct what is to be timed."""
    client = Client(platform.settings)
    client.pause("flights.reconcile", paused=False)
    try:
        yield
    finally:
        client.pause("flights.reconcile", paused=True)


def let_airflow_finish(platform: Platform) -> None:
    """Have it check what it corrected, and correct nothing more by itself."""
    settings = platform.settings
    earlier = triggered_runs(settings, "flights.quality")
    with reconciling(platform):
        outcomes = run_dag(settings, "flights.reconcile", {"verify": True}).result("look")
        if any(outcome["changed"] for outcome in outcomes):
            run_after(settings, "flights.quality", earlier)


def main() -> int:
    """Start a platform, feed it, time each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="tasks whose names contain one of these")
    parser.add_argument("--home", type=Path, help="keep the data here, and use what is there")
    args = parser.parse_args()
    tasks = [task for task in TASKS if not args.only or any(word in task.name for word in args.only)]
    seconds: dict[str, list[float]] = {}
    with prepared(args.home) as platform:
        up(platform)
        feed(platform, LAST)
        let_airflow_finish(platform)
        memory_gib = platform.memory_gib()
        for task in tasks:
            feed(platform, task.needs)
            seconds[task.name] = measure(platform, task, args.rounds)
    figures: dict[str, object] = {f"{name}, s": spread(found) for name, found in seconds.items()}
    figures["memory of everything that runs, GiB"] = memory_gib
    claims = {
        f"{task.name} <= {task.goal_s:g} s": spread(seconds[task.name])["median"] <= task.goal_s
        for task in tasks
        if task.goal_s is not None
    }
    claims[f"everything that runs takes less than {MEMORY_GIB:g} GiB"] = memory_gib < MEMORY_GIB
    return 0 if report("commands", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Records per CPU second and freshness of the same tables by the platform, by plain Spark and by Flink SQL."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from benchmarks.measuring.benchmark_platform import platform
from benchmarks.measuring.figures import percentile, report, spread
from peers import engine_results, flink_environment, nexmark_log, peer_workload, row_visibility
from peers.domains import domain_of, registry_of
from peers.engine_process import NEXMARK, TABLES, Drain, Task, cpu_s
from peers.engines import ENGINES, FLINK, OWN, PLAIN
from twofold.infra.kafka.topic_admin import ensure_topics
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.tables.refresh.events.topic_specs import specs

_nexmark = registry_of(NEXMARK)
INPUTS = {
    "delays_by_hour": (peer_workload.DEPARTURES,),
    "busiest_routes": (peer_workload.DEPARTURES,),
    "flights": (peer_workload.DEPARTURES, peer_workload.ARRIVALS),
    **{name: tuple(source.full_name for source in _nexmark.upstream(_nexmark.find_table(name))) for name in NEXMARK},
}
MERGED = ("delays_by_hour", "busiest_routes")  # plain Spark writes these by MERGE
GOAL_PLAIN, GOAL_PLAIN_MERGED, GOAL_FLINK = 1.0, 1.5, 0.5
SETTLE_S = 10


def drains(
    engines: Sequence[str], tables: Sequence[str], flights: int, rounds: int
) -> tuple[dict[str, object], dict[str, bool]]:
    """Drain each table by each engine, then all tables at once, and compare the results row by row."""
    figures: dict[str, object] = {}
    claims: dict[str, bool] = {}
    cases = {**{table: [table] for table in tables}, **({"all tables": list(tables)} if len(tables) > 1 else {})}
    filled: set[str] = set()
    with platform("peers") as settings:
        ensure_topics(settings, specs(registry_of(tables)))
        # The platform takes in every topic of the domain, so that one is filled when a table is there to read it.
        for case, wanted in sorted(cases.items(), key=lambda item: len(topics(item[1]))):
            fill(settings, topics(wanted) - filled, flights)
            filled |= topics(wanted)
            measured = {engine: drained(settings, engine, case, wanted, rounds) for engine in engines}
            counts = {**peer_workload.records(0, flights), **nexmark_log.records(flights)}
            records = sum(counts[topic] for topic in topics(wanted))
            rates = {
                engine: [records / drain.cpu_s for drain in of_engine[1:]] for engine, of_engine in measured.items()
            }
            for engine, of_engine in measured.items():
                figures |= {f"{case}, {engine}: {k}": v for k, v in of_drains(records, of_engine).items()}
            figures |= {f"{case}, {name}": ratios for name, ratios in compared(rates).items()}
            claims |= claimed(case, wanted, rates)
            for table in wanted if len(engines) > 1 else ():
                different = differing(settings, engines, table, flights)
                figures[f"{case}: rows of {table}, then rows that differ"] = different
                rows, *others = different.values()
                claims[f"{case}: {table} is equal"] = rows > 0 and not any(others)
    return figures, claims


def drained(settings: Settings, engine: str, case: str, tables: Sequence[str], rounds: int) -> list[Drain]:
    """The rounds of an engine, the first of which does not count; its tables stay."""
    task = Task(
        tables=tables,
        home=home(settings, engine),
        bootstrap=settings.bootstrap_servers,
        rounds=rounds + 1,
    )
    shutil.rmtree(task.home, ignore_errors=True)
    measured = ENGINES[engine].drains(settings, task)
    print(f"{case}, {engine}: {measured}", flush=True)
    return measured


def home(settings: Settings, engine: str) -> Path:
    """Where an engine's drains leave their tables."""
    return settings.home / engine.replace(" ", "-")


def topics(tables: Sequence[str]) -> set[str]:
    """The topics that tables read."""
    return {topic for table in tables for topic in INPUTS[table]}


def fill(settings: Settings, wanted: set[str], flights: int) -> None:
    """Write topics, those of flights by a Spark session that ends before anything is measured."""
    of_nexmark = {topic for topic in wanted if topic.startswith(f"{nexmark_log.DOMAIN}.")}
    if of_nexmark:
        nexmark_log.fill(settings, of_nexmark, flights)
    elif wanted:
        spark = session(settings, "peers-log")
        for topic in sorted(wanted):
            peer_workload.fill(spark, settings, topic, flights)
        spark.stop()


def of_drains(records: int, rounds: Sequence[Drain]) -> dict[str, object]:
    """Figures of one engine and case."""
    cold, *measured = rounds
    return {
        "records": records,
        "records/CPU s": spread([records / drain.cpu_s for drain in measured]),
        "records/s": spread([records / drain.seconds for drain in measured]),
        "records/CPU s, first round": records / cold.cpu_s,
    }


def compared(rates: Mapping[str, Sequence[float]]) -> dict[str, object]:
    """Records per CPU second of the platform as multiples of the others', round by round."""
    return {
        f"twofold against {engine}": spread([own / other for own, other in zip(rates[OWN], rates[engine], strict=True)])
        for engine in (PLAIN, FLINK)
        if OWN in rates and engine in rates
    }


def claimed(case: str, tables: Sequence[str], rates: Mapping[str, Sequence[float]]) -> dict[str, bool]:
    """The goals for a case, by the medians of the ratios."""
    if domain_of(tables[0]) == nexmark_log.DOMAIN:
        return {}  # no goals are set for these yet; that the rows are equal is one
    ratios = {name: spread_["median"] for name, spread_ in compared(rates).items()}  # type: ignore[index]
    goals = {PLAIN: GOAL_PLAIN_MERGED if set(tables) <= set(MERGED) else GOAL_PLAIN, FLINK: GOAL_FLINK}
    return {
        f"{case}: >= {goal} x {engine}'s records/CPU s": ratios[f"twofold against {engine}"] >= goal
        for engine, goal in goals.items()
        if f"twofold against {engine}" in ratios
    }


def differing(settings: Settings, engines: Sequence[str], table: str, flights: int) -> dict[str, int]:
    """Rows of the first engine, rows in which each other one differs; of what the watermark has closed."""
    places = {engine: ENGINES[engine].place(settings, home(settings, engine), table) for engine in engines}
    closed = peer_workload.departed_at(flights) - peer_workload.WATERMARK - timedelta(hours=2)
    if domain_of(table) == nexmark_log.DOMAIN:
        closed = nexmark_log.closed_before(flights)
    found = engine_results.differing(table, f"{closed:%Y-%m-%d %H:%M:%S}", list(places.values()))
    return dict(zip(engines, found.values(), strict=True))


def freshness(engine: str, tables: Sequence[str], rate: int, warm_s: int, seconds: int) -> dict[str, object]:
    """All tables at once, at a steady rate: seconds until rows are visible as they end up, and cores in use."""
    with platform("peers") as settings:
        place = settings.home / "follow"
        task = Task(tables=tables, home=place, bootstrap=settings.bootstrap_servers, rounds=0)
        a_flight = sum(peer_workload.records(0, 1_000_000).values()) / 1_000_000
        warm, measured = (int(rate * s / a_flight) for s in (warm_s, seconds))
        with ENGINES[engine].following(settings, task) as process:
            left = peer_workload.follow(settings, 0, warm, rate)
            since, cpu = time.time(), cpu_s(process)
            left += peer_workload.follow(settings, warm, measured, rate)
            took, used = time.time() - since, cpu_s(process) - cpu
            time.sleep(SETTLE_S)
        figures: dict[str, object] = {"records/s": measured * a_flight / took, "cores": used / took}
        for table in tables:
            at = ENGINES[engine].place(settings, place, table)
            found = row_visibility.seconds(table, at, 0, left, since)
            figures[f"{table}, s"] = {
                "rows": len(found),
                **({name: percentile(found, share) for name, share in (("p50", 0.5), ("p95", 0.95))} if found else {}),
            }
    return figures


def main() -> int:
    """Make Flink's environment, drain, follow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="flights: a departure, mostly a landing; or events of Nexmark"
    )
    parser.add_argument("--rounds", type=int, default=2, help="of each drain, after one that does not count")
    parser.add_argument("--rate", type=int, default=2_000, help="records a second of both topics")
    parser.add_argument("--warm", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--engines", nargs="+", choices=[*ENGINES], default=[*ENGINES])
    parser.add_argument(
        "--tables",
        nargs="+",
        choices=[*TABLES, *NEXMARK],
        default=[*TABLES],
        help="of flights, or of Nexmark, which are drained only",
    )
    parser.add_argument("--only", choices=("drain", "freshness"))
    args = parser.parse_args()
    domains = {domain_of(table) for table in args.tables}
    if len(domains) > 1 or (domains == {nexmark_log.DOMAIN} and args.only == "freshness"):
        parser.error("tables of one domain, please; those of Nexmark are drained only")
    if domains == {nexmark_log.DOMAIN}:
        args.only = "drain"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process that was started ends, too
    if FLINK in args.engines:
        flink_environment.ensure()
    figures: dict[str, object] = {"flights": args.records}
    claims: dict[str, bool] = {}
    if args.only != "freshness":
        drained, claims = drains(args.engines, args.tables, args.records, args.rounds)
        figures |= drained
    if args.only != "drain":
        for engine in args.engines:
            found = freshness(engine, args.tables, args.rate, args.warm, args.seconds)
            print(f"freshness, {engine}: {found}", flush=True)
            figures |= {f"at {args.rate:,}/s, {engine}: {name}": value for name, value in found.items()}
    return 0 if report("peers", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Seconds of a reconcile with a long and a short ledger of corrections, and of one without work."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring.figures import report, spread, timed
from benchmarks.refresh.reconcile_time import History, declared
from tests import ROOT
from twofold.batch.ledgers.causes import RECORD
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, EVIDENCE
from twofold.batch.pending_work import nothing_to_do
from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.tables.declare.registry import load
from twofold.tables.refresh.open_platform import Platform, ensure_domain

LONG, SHORT = 10_000_000, 10_000
COMMITS = 100_000
GROWTH = 1.1
_TABLES, _OF_A_RUN = 5, 1_000
_FIRST_US = 1_600_000_000_000_000


def corrections(first: int, rows: int) -> dict[str, pa.Table]:
    """Rows of the ledgers as many runs over several tables would have left them, one millisecond after the other."""
    ids = np.arange(first, first + rows)
    runs = ids // _OF_A_RUN
    names = pa.array([f"late-{20200101 + run // 10:08d}T000000.{run % 10:06d}Z" for run in np.unique(runs)])
    keys = pa.array([f'{{"sensor": "s{n * 7 % 1_000_003}", "hour": "2013-01-01T10:00:00+00:00"}}' for n in ids])
    records = pa.StructArray.from_arrays(
        [
            pa.array(["plant.measured"] * rows),
            pa.array(np.zeros(rows), pa.int32()),
            pa.array(ids),
            pa.array(np.full(rows, 9_000_000)),
        ],
        fields=list(RECORD),
    )
    head = {
        "table": pa.array(["plant.by_hour", *(f"plant.t{n}" for n in range(1, _TABLES))]).take(
            pa.array(runs % _TABLES)
        ),
        "run": names.take(pa.array(runs - runs[0])),
        "recorded_at": pa.array(_FIRST_US + ids * 1_000, pa.timestamp("us", "UTC")),
    }
    version, one = pa.array(runs), pa.array(np.ones(rows, np.int64))
    evidence = {name: records.field(n) for n, name in enumerate(("source", "partition", "offset", "late_by_ms"))}
    return {
        CORRECTIONS: pa.table(
            {
                **head,
                "key": keys,
                "change": pa.array(["update"] * rows),
                "before": keys,
                "after": keys,
                "cause": pa.array(["late"] * rows),
                "version": version,
                "fingerprint": pa.array(["f00d"] * rows),
                "evidence": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), records),
                "inputs": pa.array(["{}"] * rows),
                "records": one,
                "latest_ms": one,
            }
        ),
        EVIDENCE: pa.table(
            {
                **head,
                **evidence,
                "event_ms": pa.array(ids),
                "scope": keys,
                "start_ms": pa.array(ids),
                "end_ms": pa.array(ids + 1),
            }
        ),
    }


def fill(lake: Lake, rows: int) -> None:
    """Let the ledgers hold so many corrections and as many records, tidied as their writers tidy them."""
    at_once = max(rows // 100, _OF_A_RUN)
    for number, first in enumerate(range(0, rows, at_once)):
        for name, table in corrections(first, at_once).items():
            schema = pa.schema(lake.open(name).schema())
            Writer(lake, name).append(table.select(schema.names).cast(schema), CommitTag(app="history", version=number))
    for name in (CORRECTIONS, EVIDENCE):
        compact_without_history(lake, name)


def pass_by(lake: Lake, name: str, commits: int) -> None:
    """So many commits of ingest in which nothing was late, as the log describes them."""
    log, first = Path(lake.uri(name), "_delta_log"), lake.version(name) + 1
    stats = json.dumps({"numRecords": 1, "maxValues": {"_late_by_ms": 0}})
    add = {"path": "a.parquet", "size": 1, "dataChange": True, "stats": stats}
    info = {"timestamp": 1, "userMetadata": json.dumps({"cause": "ingest"})}
    text = json.dumps({"commitInfo": info}) + "\n" + json.dumps({"add": add})
    for version in range(first, first + commits):
        (log / f"{version:020d}.json").write_text(text)


def main() -> int:
    """Reconcile two equal histories by turns, after a round that does not count; then let commits pass by one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=int, default=LONG, help="corrections of the long ledger")
    parser.add_argument("--commits", type=int, default=COMMITS, help="since the last work")
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    home = ROOT / ".twofold" / "benchmark-ledgers"
    shutil.rmtree(home, ignore_errors=True)
    registry = load(declared(home))
    spark = session(Settings(home=home, driver_memory="4g"), "benchmark")
    try:
        histories = []
        for name, rows in (("long", args.long), ("short", SHORT)):
            lake = Lake(Settings(home=home / name))
            ensure_domain(spark, lake, registry, "plant")
            table = registry.find_table("by_hour")
            histories.append(History(Platform(spark, lake, registry), table, days=10, new=50_000, late=50))
            histories[-1].make()
            print(f"{name}: ledgers of {rows:,} filled in {timed(partial(fill, lake, rows)):.0f} s", flush=True)
        taken: list[list[float]] = [[], []]
        for number, turn in zip(range(1 + args.rounds), count()):
            for one, seconds in zip(histories, taken, strict=True):
                one.go_on(3, turn)
                seconds.append(timed(one.reconcile))
            print(f"round {number}:", [round(seconds[-1], 2) for seconds in taken], flush=True)
        lake, tables = histories[1].platform.lake, [histories[1].table]
        pass_by(lake, "plant.measured", args.commits)
        first = timed(lambda: nothing_to_do(lake, registry, tables))
        idle = []
        for _ in range(5):
            pass_by(lake, "plant.measured", 99)
            idle.append(timed(lambda: nothing_to_do(lake, registry, tables)))
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    long_s, short_s = (spread(seconds[1:]) for seconds in taken)
    growth = long_s["median"] / short_s["median"]
    figures: dict[str, object] = {"corrections, long": args.long, "corrections, short": SHORT}
    figures |= {"long ledger, s": long_s, "short ledger, s": short_s, "ratio": growth}
    figures |= {"commits since the last work": args.commits, "the first look at them, s": first}
    figures |= {"nothing to do, s": spread(idle)}
    claims = {
        f"a ledger {args.long // SHORT:,} times as long costs at most {GROWTH} x": growth <= GROWTH,
        "nothing to do < 0.5 s": spread(idle)["median"] < 0.5,
    }
    return 0 if report("ledgers", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())

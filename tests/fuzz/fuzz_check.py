"""Runs a world of cases through ingest, streams and reconcile, and holds every table against DuckDB."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tests.changelog import assert_ledger_explains
from tests.fuzz.flights_oracle import Oracle, judged
from tests.fuzz.fuzz_cases import CLOSING_MIN, START, Reconciling, Schedule, Sent, log_of, owners
from twofold.infra.instants import from_epoch_ms
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Answers(Protocol):
    """What an engine of its own says of a log."""

    def expected(self, table: str, before: datetime) -> pa.Table:
        """The rows that are final before an instant."""

    def is_final(self, table: str, before: datetime) -> str:
        """That, as a condition of DuckDB on the table's columns."""

    def faults(self, world: World) -> list[str]:
        """What else is wrong, as the records that rows name."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A domain that random cases can be put to.

    Attributes:
        log_of: cases -> every record in the order of the log.
        owners: cases -> every name in the records of a case, and the number of the case.
        oracle: the records, and the world that has ingested them -> what its tables must hold.
    """

    domain: str
    registry: Registry
    log_of: Callable[[Sequence[Any]], list[Sent]]
    owners: Callable[[Sequence[Any]], dict[str, int]]
    oracle: Callable[[Sequence[Sent], World], Answers]


FLIGHTS = Subject(domain="flights", registry=load(), log_of=log_of, owners=owners, oracle=lambda log, _: Oracle(log))


@dataclass
class Verdict:
    """What was wrong in a world: cases by number, and what no case can be blamed for."""

    faults: list[str] = field(default_factory=list)
    blamed: set[int] = field(default_factory=set)

    def add(self, fault: str, examples: pa.Table, known: dict[str, int]) -> None:
        self.faults.append(f"{fault} {examples.slice(0, 3).to_pylist()}")
        texts = (value for row in examples.to_pylist() for value in row.values() if isinstance(value, str))
        self.blamed |= {known[text] for text in texts if text in known}


def run(
    spark: SparkSession,
    cases: Sequence[Any],
    schedule: Schedule,
    tables: Sequence[str] = (),
    subject: Subject = FLIGHTS,
) -> Verdict:
    """Whether these tables, or all of the domain, are right in the end.

    Args:
        tables: full names, with all that they read.
    """
    log = subject.log_of(cases)
    with tempfile.TemporaryDirectory() as home:
        world = begun(spark, Settings(home=Path(home)), subject)
        meanwhile = replace(world, settings=replace(world.settings, small_rows=schedule.small_rows))
        names = list(tables) or [t.full_name for t in subject.registry.in_order(subject.domain)]
        unexplained: list[str] = []
        for number, part in enumerate(schedule.parts(log)):
            world.append(part)
            if number in schedule.restarts:
                meanwhile.maintain(names)
            for reconciling in (r for r in schedule.reconciles if r.after == number):
                unexplained += _reconcile(meanwhile, reconciling, names)
        verdict = ended(world, cases, tables, subject)
        verdict.faults += unexplained
    return verdict


def begun(spark: SparkSession, settings: Settings, subject: Subject = FLIGHTS) -> World:
    """A world without records, whose streams take each micro-batch of ingest by itself."""
    return World(spark, replace(settings, shuffle_partitions=1, max_files=1), subject.domain, subject.registry)


def ended(world: World, cases: Sequence[Any], tables: Sequence[str] = (), subject: Subject = FLIGHTS) -> Verdict:
    """Whether these tables, or all, are right once the streams have taken in the whole log and a reconcile has run."""
    log, verdict, known = subject.log_of(cases), Verdict(), subject.owners(cases)
    names = list(tables) or [t.full_name for t in subject.registry.in_order(subject.domain)]
    world.maintain(names)
    unexplained = [f"unexplained: {o}" for o in world.reconcile(names, verify=True) if o.unexplained]
    watermarks = [from_epoch_ms(ms) for name in names if (ms := world.watermark_ms(name))]
    before, oracle = min(watermarks, default=START + timedelta(minutes=CLOSING_MIN)), subject.oracle(log, world)
    for name in names:
        found = judged(world, name, oracle.expected(name, before), before, oracle.is_final)
        if not found.equal:
            fault = f"{name}: {found.missing} missing, {found.extra} extra, {found.changed} changed of {found.rows}"
            verdict.add(fault, found.examples, known)
    verdict.faults += unexplained
    if not tables:
        verdict.faults += oracle.faults(world)
    verdict.faults += [f"twice: {o}" for o in world.reconcile(names) if o.changed or o.files_written]
    try:
        assert_ledger_explains(world, names)
    except AssertionError as wrong:
        verdict.faults.append(f"the ledger does not explain {wrong}")
    return verdict


def _reconcile(world: World, reconciling: Reconciling, names: Sequence[str]) -> Iterator[str]:
    chosen = names if reconciling.table is None else [names[reconciling.table % len(names)]]
    for _ in range(1 + reconciling.twice):
        yield from (f"unexplained: {o}" for o in world.reconcile(chosen) if o.unexplained)

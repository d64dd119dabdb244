"""TPC-H's queries, verbatim, kept up to date over copies of its tables, equal DuckDB's answers after each change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.tiers import this_run
from tests.kinds.tpch import killed_streams
from tests.kinds.tpch.tpch_database import Change, TpchDatabase
from tests.kinds.tpch.tpch_declarations import QUERIES, Source, column_names, declared, name_of, records, take_in
from tests.support.crashes import run_until_killed
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.worlds]

IS_FUZZ = this_run.tier == "fuzz"
SCALE = 0.01 if IS_FUZZ else 0.001
FEW: dict[Source, list[int]] = {
    # A group, a limit over a join, EXISTS, one row for all, a group of a group, a scalar subquery, NOT EXISTS.
    "captured": [1, 3, 4, 6, 13, 15, 22],
    "plain": [1, 4, 13],
}
_ERROR = 2e-6
"""Of a quotient: Spark gives decimals of six digits, where DuckDB gives doubles."""


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("source", ["captured", "plain"])
def test_every_answer_equals_that_of_duckdb_after_each_change(
    spark: SparkSession, settings: Settings, tmp_path: Path, source: Source
) -> None:
    """Twelve tables take in a snapshot and two transactions: half a minute; in a fuzz thirty, and a kill in each."""
    database = TpchDatabase(SCALE)
    numbers = list(QUERIES) if IS_FUZZ else FEW[source]
    world = World(spark, settings, "tpch", declared(tmp_path, database, source, numbers))
    wrong = []
    for version, change in enumerate((TpchDatabase.everything, updates, refresh_functions), 1):
        said = records(source, change(database), version)
        world.append({name: values for name, values in said.items() if f"tpch.{name}" in world.registry.topics})
        if IS_FUZZ:
            run_until_killed(settings, killed_streams.__name__, str(tmp_path), str(3 * version))
        take_in(world)
        faults = {number: difference(world, database, number) for number in numbers}
        wrong += [f"version {version}, query {n}: {fault}" for n, fault in faults.items() if fault]
    if IS_FUZZ:
        outcomes = world.reconcile(world.all_tables, verify=True)
        wrong += [f"{o.table}: {o.unexplained} unexplained" for o in outcomes if o.unexplained]
    assert not wrong, "\n".join(wrong)


def updates(database: TpchDatabase) -> list[Change]:
    """Discounts, dates, names, balances: no order comes or goes, so that each input is seen to count by itself."""
    return [
        *database.updated("lineitem", "l_discount = 0.06, l_receiptdate = l_commitdate - 1", "l_orderkey % 7 = 3"),
        *database.updated("customer", "c_name = c_name || ' jr', c_mktsegment = 'BUILDING'", "c_custkey % 5 = 1"),
        *database.updated("customer", "c_acctbal = c_acctbal + 5000", "c_custkey % 11 = 2"),
    ]


def refresh_functions(database: TpchDatabase) -> list[Change]:
    """The two of the benchmark: new orders come, old ones go."""
    return database.new_orders() + database.old_orders_deleted()


def difference(world: World, database: TpchDatabase, number: int) -> str:
    """What the live table of a query has otherwise than DuckDB's answer; empty where it has the same."""
    names, answer = database.answer(number)
    names = column_names(names)
    live = world.rows(f"tpch.{name_of(number)}").select(names).to_pylist()
    key = QUERIES[number].key
    found = {tuple(row[c] for c in key): [row[c] for c in names] for row in live}
    expected = {tuple(row[names.index(c)] for c in key): list(row) for row in answer}
    assert len(expected) == len(answer), "the key identifies a row"
    if len(live) != len(answer) or found.keys() != expected.keys():
        return f"{len(live)} rows instead of {len(answer)}; {sorted(map(str, found.keys() ^ expected.keys()))[:5]}"
    unlike = [(found[k], expected[k]) for k in expected if not equal(found[k], expected[k])]
    return "" if not unlike else f"{len(unlike)} rows differ, for example {unlike[0]}"


def equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=_ERROR)
        if isinstance(a, float | int | Decimal) and isinstance(b, float | int | Decimal)
        else a == b
        for a, b in zip(one, other, strict=True)
    )

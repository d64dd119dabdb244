"""TPC-H in DuckDB: its data, its queries, and changes of its rows in the order of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.duckdb_extensions import with_extension

KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "part": ("p_partkey",),
    "supplier": ("s_suppkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
"""Table -> its primary key."""

_TIE_BREAKS = {3: "l_orderkey", 10: "c_custkey"}
"""Query -> what its order lacks: as published, its LIMIT may cut between equal rows."""


@dataclass(frozen=True)
class Change:
    """One row of a table as a change left it, or as it was before it was deleted."""

    table: str
    operation: str
    row: dict[str, Any]


class TpchDatabase:
    """The tables, without the orders that are held back to be inserted later.

    Args:
        scale: the scale factor; 0.001 has 6,000 lineitems.
    """

    def __init__(self, scale: float) -> None:
        self._connection = with_extension("tpch")
        self._connection.execute(f"CALL dbgen(sf = {scale})")
        for table, key in (("lineitem", "l_orderkey"), ("orders", "o_orderkey")):
            self._connection.execute(f"CREATE TABLE later_{table} AS FROM {table} WHERE {key} % 16 = 1")
            self._connection.execute(f"DELETE FROM {table} WHERE {key} % 16 = 1")

    def columns(self, table: str) -> dict[str, str]:
        """Column -> its type in DuckDB."""
        return {name: kind for name, kind, *_ in self._connection.execute(f"DESCRIBE {table}").fetchall()}

    def query(self, number: int) -> str:
        """The text of a query, its order total."""
        found = self._connection.execute("SELECT query FROM tpch_queries() WHERE query_nr = ?", [number]).fetchone()
        assert found
        text = str(found[0]).strip().rstrip(";")
        return text.replace("\nLIMIT", f", {_TIE_BREAKS[number]}\nLIMIT") if number in _TIE_BREAKS else text

    def answer(self, number: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns and rows of a query now."""
        result = self._connection.execute(self.query(number))
        return [name for name, *_ in result.description], result.fetchall()

    def everything(self) -> list[Change]:
        """Every row, as a snapshot reads it."""
        return [change for table in KEYS for change in self._changes(table, "snapshot", f"FROM {table}")]

    def new_orders(self) -> list[Change]:
        """The first refresh function: orders that were held back come, with their lineitems."""
        return self._inserted("orders") + self._inserted("lineitem")

    def old_orders_deleted(self) -> list[Change]:
        """The second refresh function: orders go, with their lineitems."""
        lines = self._changes("lineitem", "delete", "DELETE FROM lineitem WHERE l_orderkey % 13 = 5 RETURNING *")
        return lines + self._changes("orders", "delete", "DELETE FROM orders WHERE o_orderkey % 13 = 5 RETURNING *")

    def updated(self, table: str, assignments: str, where: str) -> list[Change]:
        """Rows that an UPDATE changes."""
        return self._changes(table, "update", f"UPDATE {table} SET {assignments} WHERE {where} RETURNING *")

    def _inserted(self, table: str) -> list[Change]:
        return self._changes(table, "insert", f"INSERT INTO {table} FROM later_{table} RETURNING *")

    def _changes(self, table: str, operation: str, statement: str) -> list[Change]:
        result = self._connection.execute(statement)
        names = [name for name, *_ in result.description]
        return [Change(table, operation, dict(zip(names, row, strict=True))) for row in result.fetchall()]


def batches(changes: Sequence[Change]) -> Iterator[tuple[str, list[Change]]]:
    """The changes by table, each table's in their order."""
    for table in KEYS:
        if of_table := [change for change in changes if change.table == table]:
            yield table, of_table

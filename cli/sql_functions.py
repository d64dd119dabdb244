"""The functions of `./twofold sql` for tables of changes: which mark they have passed, and their rows at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.sql_query import Analyst
    from infra.delta.lake import Lake
    from tables.declare.registry import Registry

_AT_LSN = """
    CREATE MACRO at_lsn(name, lsn) AS TABLE
    FROM query_table(name) WHERE valid_from_lsn < lsn AND (valid_to_lsn IS NULL OR valid_to_lsn >= lsn)
"""


def define_functions(analyst: Analyst, lake: Lake, load: Callable[[], Registry]) -> None:
    """Define `complete_through(tables)`, the LSN of the newest mark that all of them have passed, and `at_lsn`.

    `at_lsn(table, lsn)` is the rows of a history that the database had at a mark.

    Args:
        load: reads the declarations, when the first query needs them.
    """

    def complete_through(names: Sequence[str]) -> int:
        from batch.capture.complete_through import complete_through

        registry = load()
        return complete_through(lake, registry, [registry.find_table(name) for name in names]).lsn

    analyst.define("complete_through", complete_through, "VARCHAR[]", "BIGINT")
    analyst.connection.execute(_AT_LSN)

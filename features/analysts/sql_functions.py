"""Defines the functions of `twofold sql`: the mark passed by tables, rows at a mark, values of persons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from rich.markup import escape

from twofold.cli.console import err
from twofold.infra.errors import BadSetting, CaptureFailed, ConnectUnreachable, DatabaseUnreachable

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.features.analysts.sql_query import Analyst
    from twofold.infra.delta.lake import Lake
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.records.cover import Reader
    from twofold.tables.declare.registry import Registry

_AT_LSN = """
    CREATE MACRO at_lsn(name, lsn) AS TABLE
    FROM query_table(name) WHERE valid_from_lsn < lsn AND (valid_to_lsn IS NULL OR valid_to_lsn >= lsn)
"""


def define_functions(analyst: Analyst, lake: Lake, load: Callable[[], Registry]) -> None:
    """Defines `complete_through(tables)`, the LSN of the newest mark that all of them have passed, `at_lsn`, `reveal`.

    `at_lsn(table, lsn)` returns the rows of a history as they were in the database at a mark. `reveal(column)` decrypts
    columns of persons for who can read their keys; without the key a value is null.

    Args:
        load: reads the declarations, when the first query needs them.
    """

    def complete_through(names: Sequence[str]) -> int:
        from twofold.features.capture.complete_through import complete_through

        registry = load()
        tables = [registry.find_table(name) for name in names]
        mark = complete_through(lake, registry, tables)
        _ask_database(lake.settings, registry, {s.full_name for table in tables for s in registry.upstream(table)})
        return mark.lsn

    analyst.define("complete_through", complete_through, "VARCHAR[]", "BIGINT")
    analyst.connection.execute(_AT_LSN)
    opened = cache(partial(_open_reader, lake.settings))

    def reveal(column: pa.ChunkedArray) -> pa.Array:
        import pyarrow as pa

        reader = opened()
        return reader.reveal(column, analyst.statements) if reader else pa.nulls(len(column), pa.string())

    analyst.define_by_column("reveal", reveal)


def _open_reader(settings: Settings) -> Reader | None:
    """Opens the keys; prints a warning if this user cannot."""
    from twofold.tables.declare.records.cover import find_cover

    try:
        return find_cover().reader(settings, "sql")
    except BadSetting as error:
        err.print(f"[yellow]![/] reveal() gives nulls: {escape(error.message)}", soft_wrap=True)
        return None


def _ask_database(settings: Settings, registry: Registry, topics: Collection[str]) -> None:
    """Refuses topics that lack changes according to the database; prints a warning if it does not answer.

    Raises:
        CaptureFailed: names the topic and the remedy.
    """
    from twofold.features.capture.captured_topic import captures
    from twofold.features.capture.debezium_connector import state

    try:
        states = [state(settings, capture) for capture in captures(registry) if capture.topic in topics]
    except (ConnectUnreachable, DatabaseUnreachable) as error:
        what = "The database was not asked whether it has lost changes since:"
        err.print(f"[yellow]![/] {what} {escape(error.message)}", soft_wrap=True)
        return
    lost = next((state for state in states if state.fault), None)
    if lost is not None:
        raise CaptureFailed(f"{lost.topic}: {lost.fault}.", hint=lost.hint, topic=lost.topic)

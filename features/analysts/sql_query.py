"""DuckDB over the Delta tables: `domain.table`, and the bare name where that is unique."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.features.analysts.analytics_file import attach, create_macros, folders_of
from twofold.features.analysts.table_views import (
    MORE_MEMORY,
    confine,
    connect,
    create_bare_views,
    create_view,
    require_views,
)
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, TwofoldError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from twofold.infra.delta.lake import Lake

_VARIABLE = re.compile(r"\s*SET\s+VARIABLE\s+(\"[^\"]*\"|\w+)\s*(=|\bTO\b)", re.IGNORECASE)
_EXPLAINED = re.compile(r"\s*EXPLAIN\s+(ANALYZE\b\s*)?(\([^)]*\)\s*)?", re.IGNORECASE)


class Analyst:
    """A read-only DuckDB session whose views are the Delta tables, each at its newest version when it is queried.

    The views go through DuckDB's Delta reader, which honours deletion vectors, column mapping and file statistics.
    Views of events show only the records, without the heartbeats of idle topics. It reads files of the lake, and the
    rows that plans keep, and no others.
    """

    def __init__(
        self, lake: Lake, *, only: Sequence[str] | None = None, files: Sequence[Path] = (), pinned: bool = False
    ) -> None:
        """Registers the tables.

        Args:
            only: full names of those that are needed; all by default.
            files: others that may be read.
            pinned: each table keeps the version that it has now.

        Raises:
            MissingTool: the package with DuckDB's Delta reader is not installed.
        """
        settings = lake.settings
        self.connection = connect(memory_mb=settings.query_memory_mb)
        create_macros(self.connection, settings.lake_uri)
        attach(self.connection, settings)
        confine(self.connection, folders_of(settings), files)
        self.names: list[str] = []
        self.pinned: dict[str, int] | None = {} if pinned else None
        self._lake = lake
        self._raised: TwofoldError | None = None
        self.statements = 0
        self.add(lake.names() if only is None else only)

    def add(self, names: Sequence[str]) -> None:
        """Registers tables that are not registered yet; leaves out one whose first commit is not finished."""
        missing = [name for name in dict.fromkeys(names) if name not in self.names]
        if self.pinned is not None:
            self.pinned |= {name: self._lake.version(name) for name in missing}
        versions = self.pinned or {}
        added = [name for name in missing if create_view(self.connection, self._lake, name, versions.get(name))]
        self.names = sorted([*self.names, *added])
        create_bare_views(self.connection, self.names, added)

    def define(self, name: str, function: Callable[[Any], Any], parameter: str, result: str) -> None:
        """Lets queries call a function of one value; `run` raises its errors."""

        def called(value: Any) -> Any:
            try:
                return function(value)
            except TwofoldError as error:
                self._raised = error
                raise

        self.connection.create_function(name, called, [parameter], result)

    def define_by_column(self, name: str, function: Callable[[pa.ChunkedArray], pa.Array]) -> None:
        """Lets queries call a function of a column of texts, also of nulls, each time again."""
        from duckdb.func import FunctionNullHandling, PythonUDFType

        def called(column: Any) -> Any:  # DuckDB evaluates annotations
            return function(column)

        arrow, with_nulls = PythonUDFType.ARROW, FunctionNullHandling.SPECIAL
        self.connection.create_function(
            name, called, ["VARCHAR"], "VARCHAR", type=arrow, null_handling=with_nulls, side_effects=True
        )

    def run(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Runs statements, and returns the result of the last one, not fetched yet.

        Raises:
            BadArgument: DuckDB cannot run it, or it would write.
            TwofoldError: as a defined function raises it.
        """
        import duckdb

        self._raised = None
        self.statements += 1
        try:
            self._require_reading(sql)
            return self.connection.execute(sql)
        except duckdb.Error as error:
            if self._raised is not None:
                raise self._raised from error
            raise BadArgument(f"DuckDB: {error}", hint=self._hint(error)) from error

    def _require_reading(self, sql: str) -> None:
        """Refuses statements that do more than query, explained ones among them."""
        for statement in self.connection.extract_statements(sql):
            kind, query = statement.type.name, statement.query
            if kind == "SELECT":
                require_views(self.connection, query)
            elif kind == "EXPLAIN" and (explained := _EXPLAINED.match(query)):
                self._require_reading(query[explained.end() :])
            elif kind == "SET" and (variable := _VARIABLE.match(query)):
                require_views(self.connection, f"SELECT {query[variable.end() :]}")
            else:
                raise BadArgument(
                    f"{kind.replace('_', ' ')}: the tables are only read here.",
                    hint="What analysts may run is SELECT, WITH, DESCRIBE, SUMMARIZE, EXPLAIN and SET VARIABLE.",
                )

    def read_by(self, sql: str) -> dict[str, int]:
        """Returns the pinned tables that a query names, by full or bare name, with their versions."""
        import duckdb

        starts = [at for at, _ in duckdb.tokenize(sql)]
        spans = (sql[at:end].split() for at, end in zip(starts, [*starts[1:], None], strict=True))
        words = {span[0].strip('"').lower() for span in spans if span}
        return {name: at for name, at in (self.pinned or {}).items() if name.split(".", 1)[1].lower() in words}

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Returns all rows of a query."""
        return self.run(sql).fetchall()

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Turns Ctrl-C in the block into a KeyboardInterrupt that ends the query; DuckDB raises a RuntimeError."""
        try:
            yield
        except RuntimeError as error:
            if str(error) != "Query interrupted":
                raise
            self.connection.interrupt()  # or its threads go on, and closing the connection waits for them
            raise KeyboardInterrupt from error

    def _hint(self, error: duckdb.Error) -> str | None:
        import duckdb

        if isinstance(error, duckdb.OutOfMemoryException):
            return MORE_MEMORY
        if not isinstance(error, duckdb.CatalogException):
            return None
        if not self.names:
            return f"There is no table yet: {COMMAND} up starts the streams."
        return f"The tables are {', '.join(self.names)}."

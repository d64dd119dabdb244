"""Serves the views for analysts, and what commands say of rows, by the Model Context Protocol; it only reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from twofold.features.analysts.analytics_file import folders_of, open_analytics
from twofold.features.analysts.table_views import confine, require_views
from twofold.infra.errors import BadArgument
from twofold.infra.process.twofold_command import run_command
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.json_values import to_plain_json

if TYPE_CHECKING:
    from mcp.server import MCPServer

MOST_ROWS = 200
MOST_BYTES = 1_000_000
"""Of the rows of an answer, as JSON."""
_OTHER_MB = 1_000
"""Memory of the server besides that of queries: code, threads, the rows of an answer."""
LONGEST_S = 60.0
"""A query, or a command, that takes longer is ended: who asks by an assistant does not see it run."""
_ABOUT = (
    "Twofold's Delta tables, which streams keep fresh and batches correct. Begin with `dictionary`: tables, columns, "
    "what each holds. `query` is DuckDB's SQL over TABLE, TABLE_final (closed rows), TABLE_with_corrections, "
    "freshness, versions('domain.table') and at_version('domain.table', n). Times are UTC. Nothing can be changed."
)


def make_server(settings: Settings) -> MCPServer[Any]:
    """Builds the server; its tools are those of `_Tools`."""
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    server: MCPServer[Any] = MCPServer("twofold", instructions=_ABOUT)
    tools = _Tools(settings)
    for tool in (tools.dictionary, tools.query, tools.why, tools.late, tools.plans):
        server.tool(annotations=ToolAnnotations(read_only_hint=True))(tool)
    return server


def serve(settings: Settings) -> None:
    """Serves standard input and output until they end; what a query allocates beyond its limit ends the query.

    The limit is one of the process, since DuckDB does not count the texts that functions make.
    """
    import resource

    most = (settings.query_memory_mb + _OTHER_MB) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    make_server(settings).run()


class _Tools:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def dictionary(self, table: str = "") -> dict[str, Any]:
        """Lists tables with what their columns hold: of one table by its full name, or without a name of all."""
        rows = self._rows("FROM dictionary WHERE ? IN ('', \"table\")", [table], most=None)
        tables: dict[str, Any] = {}
        for row in rows:
            about = {"description": row["table_description"], "owner": row["owner"], "columns": {}}
            columns = tables.setdefault(row["table"], about)["columns"]
            columns[row["column"]] = f"{row['type']}: {row['description'] or 'not described'}"
        return tables

    def query(self, sql: str) -> dict[str, Any]:
        """Runs one SELECT of DuckDB's SQL, for a minute at most; the first 200 rows, or 1 MB, and if there are more."""
        rows = self._rows(sql, [], most=MOST_ROWS + 1)
        sizes = accumulate(len(json.dumps(row)) for row in rows[:MOST_ROWS])
        kept = sum(size <= MOST_BYTES for size in sizes)
        if rows and not kept:
            raise _refusal(f"The first row has more than {MOST_BYTES:,} bytes; left(column, 1000) shortens a text.")
        return {"rows": rows[:kept], "more": len(rows) > kept}

    def why(self, table: str, key: dict[str, str]) -> dict[str, Any]:
        """Returns the history of one row, by all columns of its key: what wrote it, what caused corrections."""
        return self._said("why", table, *(f"{column}={value}" for column, value in key.items()))

    def late(self, table: str) -> dict[str, Any]:
        """Lists the late records of a table, or of each table of a domain: what each changed."""
        return self._said("late", table)

    def plans(self, plan: str = "") -> dict[str, Any]:
        """Lists the rewrites of history that are planned; or says what one of them, by its id, would change."""
        return self._said("plans", *([plan] if plan else []))

    def _rows(self, sql: str, values: Sequence[object], *, most: int | None) -> list[dict[str, Any]]:
        """Runs a query on the file of now, which may have been replaced since the last one."""
        import duckdb

        try:
            opened = open_analytics(self._settings)
        except BadArgument as error:
            raise _refusal(f"{error.message} {error.hint}") from None
        with opened as analytics:
            confine(analytics, folders_of(self._settings))
            timer = threading.Timer(LONGEST_S, analytics.interrupt)
            timer.start()
            try:
                statements = analytics.extract_statements(sql)
                kinds = [statement.type.name for statement in statements]
                if kinds != ["SELECT"]:
                    raise _refusal(f"Expected one SELECT; found {', '.join(kinds) or 'nothing'}.")
                require_views(analytics, statements[0].query)
                result = analytics.execute(sql, list(values))
                columns = [column[0] for column in result.description or ()]
                rows = result.fetchall() if most is None else result.fetchmany(most)
            except duckdb.InterruptException:
                raise _refusal(f"The query took longer than {LONGEST_S:g} s, and was ended.") from None
            except (duckdb.OutOfMemoryException, MemoryError):
                raise _refusal("The query took more memory than it may.") from None
            except duckdb.Error as error:
                raise _refusal(f"DuckDB: {error}") from None
            except BadArgument as error:
                raise _refusal(f"{error.message} {error.hint}") from None
            finally:
                timer.cancel()
        return [{name: to_plain_json(value) for name, value in zip(columns, row, strict=True)} for row in rows]

    def _said(self, *words: str) -> dict[str, Any]:
        """Runs a command with --json, and returns what it printed as `answer`."""
        if wrong := [word for word in words if word.startswith("-")]:
            raise _refusal(f"{wrong[0]!r} begins with a dash; expected a name or a value.")
        said = run_command(*words, "--json", settings=self._settings, limit_s=LONGEST_S)
        if said.code is None:
            raise _refusal(f"{words[0]} took longer than {LONGEST_S:g} s, and was ended.")
        if said.fault:
            raise _refusal(" ".join(filter(None, (said.fault, said.hint))))
        return {"answer": said.document}


def _refusal(message: str) -> Exception:
    from mcp.server.mcpserver.exceptions import ToolError

    return ToolError(message)

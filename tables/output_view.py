"""The rows of a table that an output has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.duckdb_session import query
from twofold.infra.errors import SchemaMismatch
from twofold.quality import rules
from twofold.quality.record_checks import broken
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from twofold.tables.declare.output import Output
    from twofold.tables.declare.table import Table

Show = Callable[[pa.ChunkedArray], pa.Array]
KEY = "_key"
"""The column of a view that has the primary key as JSON."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The columns and rows of an output, as functions of its table's.

    Attributes:
        key: the table's primary key.
        columns: None: all.
        where: rules that a row keeps.
        closes_at: a row is in the view once this column's time has passed; None: rows as they are.
        reveal: columns with values of persons that are decrypted.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...] | None
    where: tuple[rules.Rule, ...]
    closes_at: str | None
    reveal: tuple[str, ...] = ()

    @classmethod
    def declared(cls, table: Table, output: Output) -> View:
        """Returns the view of a declared output."""
        return cls(
            key=tuple(table.primary_key),
            columns=None if output.columns is None else tuple(output.columns),
            where=tuple(output.where),
            closes_at=table.closes_at if output.when == "closed" else None,
            reveal=tuple(output.reveal),
        )

    @classmethod
    def parsed(cls, definition: str) -> View:
        """Returns the view of a definition."""
        values = json.loads(definition)
        return cls(
            key=tuple(values["key"]),
            columns=None if values["columns"] is None else tuple(values["columns"]),
            where=tuple(getattr(rules, kind)(*arguments) for kind, arguments in values["where"]),
            closes_at=values["closes_at"],
            reveal=tuple(values.get("reveal", ())),
        )

    @property
    def definition(self) -> str:
        """The view as JSON, from which it can be had again."""
        where = [[rule.kind, rule.arguments] for rule in self.where]
        facts = {"key": self.key, "columns": self.columns, "where": where, "closes_at": self.closes_at}
        return json.dumps({**facts, "reveal": self.reveal} if self.reveal else facts, sort_keys=True)

    def schema(self, table: pa.Schema) -> pa.Schema:
        """Returns the columns of the view of a table with these columns.

        Raises:
            SchemaMismatch: the table lacks columns.
        """
        self.reads(table)
        chosen = table.names if self.columns is None else self.columns
        return pa.schema([(KEY, pa.string()), *((name, table.field(name).type) for name in chosen)])

    def reads(self, table: pa.Schema) -> list[str]:
        """Lists the columns of a table that the view is made of.

        Raises:
            SchemaMismatch: the table lacks columns, or one that is revealed is no string.
        """
        tested = [name for rule in self.where for name in rule.columns]
        closes_at = [self.closes_at] if self.closes_at else []
        wanted = [*self.key, *(self.columns or table.names), *tested, *self.reveal, *closes_at]
        if missing := [name for name in wanted if name not in table.names]:
            raise SchemaMismatch(
                f"An output reads {', '.join(missing)}, which its table lacks.",
                hint=f"The table has {', '.join(table.names)}; change columns= or where= of the output.",
            )
        for field in map(table.field, self.reveal):
            if field.type != pa.string():
                raise SchemaMismatch(
                    f"An output reveals {field.name}, which is of the type {field.type}; expected a string.",
                    hint="A value of a person is a string as long as it is encrypted; change reveal= of the output.",
                )
        return list(dict.fromkeys(wanted))

    def rows(self, rows: pa.Table, closed_ms: int | None, show: Show | None = None) -> pa.Table:
        """Returns the rows of the view.

        Args:
            rows: of the table.
            closed_ms: rows that close after it are left out, of a view of closed rows.
            show: decrypts a column that is revealed; None: it stays as it is.
        """
        schema = self.schema(rows.schema)
        if self.where:
            rows = rows.filter(pc.is_null(broken(rows, self.where)))
        kept = "true"
        if self.closes_at:
            at = rows.schema.field(self.closes_at).type
            kept = "false" if closed_ms is None else f"{DUCKDB.name(self.closes_at)} <= {DUCKDB.moment(at, closed_ms)}"
        columns = DUCKDB.names(schema.names[1:])
        found = query(f"SELECT {self.key_sql} AS {KEY}, {columns} FROM rows WHERE {kept}", rows=rows)
        found = found.cast(schema)
        if show is not None and len(found):
            for name in self.reveal:
                found = found.set_column(schema.get_field_index(name), schema.field(name), show(found[name]))
        return found

    def page(self, rows: pa.RecordBatchReader, number: int, of: int) -> pa.Table:
        """Returns the rows of the table whose keys belong to a page, before the view filters them."""
        digits = f"substr(md5({self.key_sql}), 1, 8)"
        return query(f"SELECT * FROM rows WHERE ('0x' || {digits})::BIGINT % {of} = {number}", rows=rows)

    @property
    def key_sql(self) -> str:
        """The key as JSON, in DuckDB's SQL; what is no number is a text, as `to_plain_json` writes it."""
        values = {name: f"to_json({DUCKDB.name(name)})" for name in self.key}
        fields = ", ".join(
            f"{DUCKDB.literal(name)}: CASE WHEN {value}::VARCHAR IN ('NaN', 'Infinity', '-Infinity') "
            f"THEN to_json({value}::VARCHAR) ELSE {value} END"
            for name, value in values.items()
        )
        return f"to_json({{{fields}}})::VARCHAR"

"""Writes the declarations of captured tables: a topic of the changes, and a copy of each table."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import out
from twofold.cli.parsing import require_name
from twofold.cli.writing.scaffold import description_lines
from twofold.cli.writing.template_files import template
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from twofold.features.capture.table_catalog import CatalogColumn

LINE = 120
TYPES = {
    "smallint": "int",
    "integer": "int",
    "bigint": "long",
    "real": "double",
    "double precision": "double",
    "boolean": "boolean",
    "money": "decimal(19,2)",
    "numeric": "string",
    "text": "string",
    "character": "string",
    "character varying": "string",
    "citext": "string",
    "name": "string",
    "uuid": "string",
    "interval": "string",
    "date": "date",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    "time without time zone": "long",
    "json": "json",
    "jsonb": "json",
    "bytea": "binary",
    "text[]": "array<string>",
    "character varying[]": "array<string>",
    "uuid[]": "array<string>",
    "integer[]": "array<int>",
    "bigint[]": "array<long>",
}
"""Type of PostgreSQL -> declared type; `docs/how-to/capture-a-database.md` describes each."""
_TABLE = re.compile(r"([a-z_][a-z0-9_]*)\.([a-z_][a-z0-9_]*)\Z")
_SIZED = re.compile(r"\((\d+)(?:,(-?\d+))?\)")
_MOST_DIGITS = 38


@dataclass(frozen=True, kw_only=True)
class CapturedTable:
    """The declaration of a captured table.

    Attributes:
        columns: column -> declared type.
        not_null: columns outside of the key that are NOT NULL in the database.
        left_out: column -> its type, for those that cannot be declared; their values are kept in `_rest`, except those
            of virtual columns.
    """

    table: str
    columns: Mapping[str, str]
    key: Sequence[str]
    not_null: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the copy; that of the topic ends with `_changes`."""
        return self.table.partition(".")[2]


def capture(
    tables: Annotated[list[str], typer.Argument(metavar="SCHEMA.TABLE...", help="Tables of the captured database.")],
    domain: Annotated[str, typer.Option(help="The folder under tables/.")],
) -> None:
    """Write for each table a topic of its changes, TABLE_changes, and a copy of it, TABLE.

    Columns, types, key and nullability are read from the catalog of the captured database, which must run.
    """
    for captured in write_captures(Settings.from_environment(), tables, domain=domain, root=project().sources):
        place = f"tables/{domain}/{captured.name}"
        out.print(f"Wrote {place}_changes.py and {place}.py: {len(captured.columns)} columns.", soft_wrap=True)
        for name, kind in captured.left_out.items():
            out.print(f"[yellow]![/] {escape(f'{captured.table}: {name} ({kind}) is left out.')}", soft_wrap=True)
    out.print(f"[dim]Next:[/] {COMMAND} check; {COMMAND} up captures them.")


def write_captures(settings: Settings, tables: Sequence[str], *, domain: str, root: Path) -> list[CapturedTable]:
    """Writes the topic and the copy of each of these tables below `root`, all or none.

    Raises:
        BadArgument: the database has no such table, it has no primary key that can be declared, there is no such
            domain, or a name is taken or cannot be used.
        DatabaseUnreachable: retryable.
    """
    from twofold.features.capture.captured_table import unfit_names
    from twofold.features.capture.table_catalog import columns_of
    from twofold.tables.declare.registry import load

    if not (root / "tables" / domain).is_dir():
        raise BadArgument(f"There is no domain {domain!r}.", hint=f"`{COMMAND} new domain {domain}` makes it.")
    for table in tables:
        if not _TABLE.match(table):
            raise BadArgument(f"{table!r}: expected a table as `schema.name`, in lower case.")
    captured = [captured_table(table, columns_of(settings, table)) for table in dict.fromkeys(tables)]
    registry = load(root / "tables")
    texts: dict[Path, str] = {}
    for capture in captured:
        for name, text in {f"{capture.name}_changes": topic_text(capture), capture.name: copy_text(capture)}.items():
            require_name(name, domain, registry)
            path = root / "tables" / domain / f"{name}.py"
            if path in texts or path.exists():
                raise BadArgument(f"{path} exists already.", hint="Remove the file, or use another domain.")
            texts[path] = text
    for _, mistake in unfit_names([f"{domain}.{capture.name}_changes" for capture in captured]):
        raise BadArgument(mistake.message, hint=mistake.hint)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return captured


def captured_table(table: str, columns: Sequence[CatalogColumn]) -> CapturedTable:
    """Builds the declaration of a table with these columns.

    Raises:
        BadArgument: the table does not exist, or its primary key is missing or of an unsuitable type.
    """
    if not columns:
        raise BadArgument(f"The database has no table {table}.", hint="Create it there, or write `schema.name` of one.")
    types = {column.name: declared_type(column) for column in columns}
    key = [column.name for column in sorted(columns, key=lambda c: c.key or 0) if column.key is not None]
    if not key:
        raise BadArgument(f"{table} has no primary key, by which its changes name a row.", hint="Add one to the table.")
    unfit = [
        name for name in key if types[name] in (None, "double", "json", "binary") or "array" in (types[name] or "")
    ]
    if unfit:
        kinds = ", ".join(f"{c.name} {c.type}" for c in columns if c.name in unfit)
        raise BadArgument(f"The primary key of {table} has {kinds}; expected a single exact value.")
    return CapturedTable(
        table=table,
        columns={name: kind for name, kind in types.items() if kind},
        key=key,
        not_null=[c.name for c in columns if c.not_null and types[c.name] and c.key is None],
        left_out={c.name: "computed when read" if c.is_virtual else c.type for c in columns if not types[c.name]},
    )


def declared_type(column: CatalogColumn) -> str | None:
    """Returns the declared type of a column, or None if it cannot be declared."""
    from twofold.tables.declare.parameter_checks import COLUMN

    is_nameable = COLUMN.match(column.name) and not keyword.iskeyword(column.name)
    if column.is_virtual or not is_nameable or column.name.startswith("cdc_"):
        return None
    if column.kind in ("e", "r", "m") and not column.type.endswith("[]"):
        return "string"
    bare, sized = _SIZED.sub("", column.type), _SIZED.search(column.type)
    if bare == "numeric" and sized:
        digits, scale = int(sized[1]), int(sized[2] or 0)
        return f"decimal({digits},{scale})" if 0 <= scale <= digits <= _MOST_DIGITS else "string"
    return TYPES.get(bare)


def topic_text(table: CapturedTable) -> str:
    """Writes the source of the topic's file."""
    columns = "\n".join(f'        "{name}": "{kind}",' for name, kind in table.columns.items())
    words = description_lines(table.columns)
    key = _listed(table.key)
    return template("captured_topic.py").substitute(table=table.table, descriptions=words, columns=columns, key=key)


def copy_text(table: CapturedTable) -> str:
    """Writes the source of the copy's file."""
    others = [name for name in table.columns if name not in table.key]
    rules = [f'not_null("{name}")' for name in table.not_null]
    parameters = {"checks": f"[{', '.join(rules)}]"} if rules else {}
    arguments = {"": f"{table.name}_changes", "key": _listed(table.key), "columns": _listed(others)}
    return template("captured_copy.py").substitute(
        table=table.table,
        name=table.name,
        per=", ".join(table.key),
        imports=", ".join(["latest_rows", *(["not_null"] if rules else []), "table"]),
        parameters=_arguments(parameters, "@table()", 0),
        arguments=_arguments(arguments, "    return latest_rows()", 4),
    )


def _listed(names: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _arguments(arguments: Mapping[str, str], around: str, indent: int) -> str:
    """Formats the arguments of a call like the formatter: in one line, or one per line if that is too long."""
    written = [f"{name}={value}" if name else value for name, value in arguments.items()]
    if len(around) + len(text := ", ".join(written)) <= LINE:
        return text
    margin = " " * (indent + 4)
    lines = [f"{margin}{arg}," if len(margin + arg) < LINE else f"{margin}{_opened(arg, margin)}," for arg in written]
    return "\n" + "\n".join(lines) + "\n" + " " * indent


def _opened(argument: str, margin: str) -> str:
    """Formats a list that is too long for one line, an item per line."""
    head, items = argument[:-1].split("[", 1)
    return f"{head}[\n" + "".join(f"{margin}    {item},\n" for item in items.split(", ")) + f"{margin}]"

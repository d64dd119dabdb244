"""Commands that explain the history of a row, and list late records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.markup import escape

from twofold.cli.commands.run_commands import TableOrDomain
from twofold.cli.console import Json, make_table, out, print_json
from twofold.cli.parsing import parse_key, parse_time
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import NOTHING, shown, shown_duration
from twofold.status.words import CAUSES, CHANGES

if TYPE_CHECKING:
    from twofold.batch.late_records import LateRecord
    from twofold.batch.ledgers.row_history import Record, RowHistory, RowVersion
    from twofold.tables.declare.table import Table

MOST_RECORDS = 6
MOST_LATE = 40


def why(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table, by full or bare name.")],
    key: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE...", help="The row: every column of the key.")],
    as_json: Json = False,
) -> None:
    """Show the history of one row: what wrote it, in order, and which records caused each correction.

    For example: twofold why delays_by_hour origin=JFK hour=2013-01-05T14:00
    """
    import pyarrow as pa

    from twofold.batch.ledgers.row_history import read_history
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    lake = Lake(Settings.from_environment())
    declared = load().find_table(table)
    schema = pa.schema(lake.open(declared.full_name).schema())
    history = read_history(lake, declared, parse_key(key, declared.primary_key, schema))
    if not history.versions and history.now is None:
        raise BadArgument(
            f"{history.table} has no row {_key(history.key)}, and never had one since version {history.since}.",
            hint=f'`{COMMAND} sql "FROM {history.table} LIMIT 5"` shows some.',
        )
    history, why_not = _in_archive(history, lake.settings)
    if as_json:
        print_json(history)
        return
    _print_history(history)
    if why_not:
        out.print(f"[dim]{why_not}[/]")


def late(
    table: TableOrDomain,
    since: Annotated[
        str | None, typer.Option(help="Only records examined since then, 2013-01-05 or 2013-01-05T06:00, UTC.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the late records of TABLE, or of each table of DOMAIN: what each changed, and which changed nothing.

    A record is listed when the stream may have dropped it; many still reach an open row and change nothing. With
    DOMAIN, --json prints a list, and tables that have no rows yet are left out.
    """
    from twofold.batch.late_records import late_records
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.open_platform import Platform

    settings = Settings.from_environment()
    first = parse_time(since, "--since") if since else None
    registry = load()
    lake, declared = Lake(settings), registry.chosen([table])
    declared = [listed for listed in declared if lake.exists(listed.full_name)] or declared
    documents = []
    for listed in declared:
        records = late_records(Platform(_no_session, lake, registry), listed, first)
        if as_json:
            documents.append({"table": listed.full_name, "watermark": listed.watermark, "records": records})
        else:
            _print_late(listed, records)
    if as_json:
        print_json(documents if table in registry.domains else documents[0])


def _in_archive(history: RowHistory, settings: Settings) -> tuple[RowHistory, str]:
    """Adds the archived segments to the records of a history; also returns why they are unknown, else an empty text."""
    from twofold.batch.ledgers.row_history import in_archive
    from twofold.infra.archive.archive_catalog import open_archive
    from twofold.infra.errors import BrokerUnreachable

    topics = {r.source for entry in history.versions for r in entry.records if r.offset is not None}
    if not topics:
        return history, ""
    try:
        return in_archive(history, open_archive(settings, sorted(topics))), ""
    except BrokerUnreachable:
        return history, "The broker does not answer, so the archived segments of the records are not known."


def _no_session() -> NoReturn:
    raise RuntimeError("looking at what was late needs no Spark")


def _print_history(history: RowHistory) -> None:
    out.print(f"[bold]{escape(history.table)}[/]  {escape(_key(history.key))}")
    out.print()
    if history.since:
        out.print(f"[dim]The log no longer holds the history before version {history.since}.[/]")
    for number, entry in enumerate(history.versions, 1):
        _print_version(number, entry, history)
    if history.closed:
        reached = f"the watermark had reached {shown(history.closes_at)}"
        out.print(f"[bold]Closed[/]  {shown(history.closed.at)}, version {history.closed.version}: {reached}.")
    if history.now is None:
        out.print("[bold]Now[/]  the row does not exist.")
        return
    rest = {column: value for column, value in history.now.items() if column not in history.key}
    out.print("[bold]Now[/]  " + escape(_values(rest)), soft_wrap=True)


def _print_version(number: int, entry: RowVersion, history: RowHistory) -> None:
    by = escape(CAUSES.get(entry.by, entry.by))
    by = f"[bold red]{by}[/]" if entry.by == "unknown" else by
    place = f"version {entry.version}" if entry.version is not None else "no new version"
    out.print(f"[bold]{number}. {shown(entry.at)}[/]  {place}: {CHANGES[entry.change]} by {by}")
    for column, was, became in _columns(entry, history.key):
        arrow = f"{was} [bold]→[/] {became}" if entry.change == "update" else (became if entry.after else was)
        out.print(f"     {escape(column)}: {arrow}", soft_wrap=True)
    facts = []
    if entry.batch is not None:
        facts.append(f"micro-batch {entry.batch}")
    if entry.run:
        facts.append(f"run {entry.run}")
    if entry.inputs:
        facts.append("read " + ", ".join(f"{source} at version {v}" for source, v in entry.inputs.items()))
    if entry.fingerprint:
        from twofold.tables.refresh.acceptance import is_same

        same = "as declared now" if is_same(entry.fingerprint, history.definition) else "[red]not as declared now[/]"
        commit = f", git commit {entry.commit}" if entry.commit else ""
        facts.append(f"definition {entry.fingerprint} ({same}{commit})")
    if entry.watermark:
        facts.append(f"watermark {shown(entry.watermark)}")
    if facts:
        out.print(f"     [dim]{'; '.join(facts)}[/]", soft_wrap=True)
    for record in entry.records[:MOST_RECORDS]:
        out.print(f"     because of {escape(_record(record))}", soft_wrap=True)
    if len(entry.records) > MOST_RECORDS:
        out.print(f"     [dim]and of {len(entry.records) - MOST_RECORDS:,} more; --json lists all.[/]")
    out.print()


def _columns(entry: RowVersion, key: Mapping[str, object]) -> list[tuple[str, str, str]]:
    before, after = entry.before or {}, entry.after or {}
    return [
        (column, escape(_text(before.get(column))), escape(_text(after.get(column))))
        for column in dict.fromkeys([*before, *after])
        if column not in key
    ]


def _record(record: Record) -> str:
    if record.offset is None:
        return f"a change of {record.source}"
    place = f"{record.source}, partition {record.partition}, offset {record.offset}"
    place += f", late by {_duration(record.late_by_ms)}" if record.late_by_ms is not None else ""
    return place + (f", in the archived segment {record.segment}" if record.segment else "")


def _duration(ms: int | None) -> str:
    return NOTHING if ms is None else shown_duration(ms / 1_000)


def _key(key: Mapping[str, object]) -> str:
    return " ".join(f"{column}={_text(value)}" for column, value in key.items())


def _values(values: Mapping[str, object]) -> str:
    return ", ".join(f"{column}={_text(value)}" for column, value in values.items())


def _text(value: object) -> str:
    """Formats a value of a row in JSON form; instants are in UTC, without their offset."""
    if value is None:
        return "null"
    return value.removesuffix("+00:00") if isinstance(value, str) else str(value)


def _print_late(table: Table, records: Sequence[LateRecord]) -> None:
    from twofold.batch.late_records import counts

    if not records:
        why_none = (
            f"no record was {table.watermark} or more behind the newest"
            if table.closes_at
            else "its stream closes no row, so it reads every record"
        )
        out.print(f"No late records for {table.full_name}: {why_none}.")
        return
    rows = [
        (
            r.source,
            r.partition,
            str(r.offset) if r.offset is not None else NOTHING,
            r.event_at,
            _duration(r.late_by_ms),
            r.fate,
            escape("; ".join(_key(key) for key in r.rows[:3])) + (" ..." if len(r.rows) > 3 else ""),
        )
        for r in sorted(records, key=lambda r: r.fate != "corrected")[:MOST_LATE]
    ]
    columns = ["topic", "partition", "offset", "happened", "late by", "what became of it", "rows"]
    out.print(make_table(None, columns, rows, right=["partition", "offset"], whole=["what became of it"]))
    if len(records) > MOST_LATE:
        out.print(f"[dim]The first {MOST_LATE} of {len(records):,}; --json lists all.[/]")
    history = ", ".join(f"{number:,} {fate}" for fate, number in counts(records))
    behind = f" were {table.watermark} or more behind the newest" if table.closes_at else " made reconcile look"
    out.print(f"{len(records):,} record{'' if len(records) == 1 else 's'}{behind}: {history}.")

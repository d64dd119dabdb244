"""Commands that show what there is: all declarations, and one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import Json, make_table, out, print_json, result_cell
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import NOTHING, shown, shown_age, shown_duration
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from twofold.batch.ledgers.audit_history import LastAudit
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import Registry
    from twofold.tables.declare.table import Table
    from twofold.tables.declare.topic import Topic

WIDE = 110
SAMPLES = 2
COMMITS = 5


def tables(
    domain: Annotated[str | None, typer.Argument(metavar="[DOMAIN]", help="Only this domain.")] = None,
    as_json: Json = False,
) -> None:
    """List every topic and table with its strategy, its inputs and its number of rows."""
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    registry, lake = load(), Lake(Settings.from_environment())
    if domain is not None:
        registry.require_domain(domain)
    _list(registry, lake, domain, as_json)


def _list(registry: Registry, lake: Lake, domain: str | None, as_json: bool) -> None:
    topics = [_topic_line(topic, lake) for topic in registry.topics.values() if domain in (None, topic.domain)]
    derived = [_table_line(table, registry, lake) for table in registry.in_order(domain)]
    there = [name for name in lake.names() if domain in (None, name.split(".")[0])]
    removed = [{"name": name, "rows": lake.rows(name)} for name in registry.removed(there)]
    if as_json:
        print_json({"topics": topics, "tables": derived, "removed": removed})
        return
    _print_lines("Topics", "topic", ["partitions", "key", "event_time", "events", "quarantined", "description"], topics)
    _print_lines("Tables", "table", ["strategy", "inputs", "key", "rows", "description"], derived)
    if removed:
        lines = [(table["name"], table["rows"]) for table in removed]
        out.print(make_table("Removed", ["table", "rows"], lines, right=["rows"]))
        out.print("[dim]No file declares these tables any more; their rows stay.[/]")
    out.print(f"[dim]{COMMAND} show TABLE shows all about one of them.[/]")


def show(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="A table or a topic, by full or bare name; or a domain.")
    ],
    as_json: Json = False,
) -> None:
    """Show one table: declaration, columns with newest rows, rules, versions, freshness."""
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    settings = Settings.from_environment()
    registry, lake = load(), Lake(settings)
    try:
        declared = registry.find(name)
    except BadArgument:
        if name in registry.domains:
            _list(registry, lake, name, as_json)
            return
        if name in registry.removed(lake.names()):
            raise BadArgument(
                f"{name} was removed: no file declares it any more. Its {lake.rows(name):,} rows stay as they are.",
                hint=f'`{COMMAND} sql "FROM {name}"` reads them; a file tables/{name.replace(".", "/")}.py revives it.',
            ) from None
        raise
    page = _page(declared, registry, lake, settings)
    if as_json:
        print_json(page)
        return
    _print_page(page)


def _print_lines(title: str, what: str, facts: list[str], lines: Sequence[Mapping[str, object]]) -> None:
    if out.width < WIDE:
        facts = [fact for fact in facts if fact != "description"]
    heads = {"event_time": "event time", "inputs": "reads", "description": "what it is"}
    rows = [(line["name"], *(_listed(line[fact]) for fact in facts)) for line in lines]
    columns = [what, *(heads.get(fact, fact) for fact in facts)]
    numbers = ["partitions", "events", "quarantined", "rows"]
    out.print(make_table(title, columns, rows, right=numbers, spare=["partitions", "key", "event time", "strategy"]))


def _listed(names: object) -> str:
    return ", ".join(names) if isinstance(names, list) else shown(names)


def _topic_line(topic: Topic, lake: Lake) -> dict[str, object]:
    return {
        "name": topic.full_name,
        "description": topic.description,
        "partitions": topic.partitions,
        "key": topic.message_key,
        "event_time": topic.event_time,
        "events": _rows(lake, topic.full_name),
        "quarantined": _rows(lake, f"{topic.full_name}_quarantine"),
    }


def _table_line(table: Table, registry: Registry, lake: Lake) -> dict[str, object]:
    return {
        "name": table.full_name,
        "description": table.description,
        "strategy": registry.strategy(table),
        "inputs": list(table.inputs),
        "key": list(table.primary_key),
        "rows": _rows(lake, table.full_name),
    }


def _rows(lake: Lake, full_name: str) -> int | None:
    return lake.rows(full_name) if lake.exists(full_name) else None


@dataclass(frozen=True, kw_only=True)
class Page:
    """The facts that `show` prints about a topic or a table."""

    name: str
    description: str
    declaration: Mapping[str, object]
    columns: Sequence[Mapping[str, str]]
    rules: Sequence[str]
    rows: int | None
    freshness_s: float | None
    updated_at: datetime | None
    audit: LastAudit | None
    commits: Sequence[Mapping[str, object]]
    newest: Sequence[Mapping[str, object]]


def _page(declared: Topic | Table, registry: Registry, lake: Lake, settings: Settings) -> Page:
    from twofold.status.catalog import entry_of
    from twofold.status.fold import Facts
    from twofold.streaming.query.progress import read
    from twofold.tables.declare.topic import Topic

    name, facts = declared.full_name, Facts(lake)
    entry, rows = entry_of(declared, registry, facts), facts.rows(name)
    query = "ingest" if isinstance(declared, Topic) else declared.name
    running = [p for p in read(settings, declared.domain) if p.query == query]
    return Page(
        name=name,
        description=entry.description,
        declaration=entry.declaration,
        columns=entry.columns,
        rules=entry.rules,
        rows=rows,
        freshness_s=running[0].freshness_s if running else None,
        updated_at=running[0].updated_at if running else None,
        audit=facts.audits().get(name),
        commits=[] if rows is None else _commits(lake, name),
        newest=[] if rows is None else _newest(lake, name, declared.event_time),
    )


def _told(column: Mapping[str, str]) -> str:
    """Formats the description of a column, and its input columns unless it is the input column of its name."""
    of = column.get("made of", "")
    is_own = of.rpartition(".")[2] == column["name"] and "," not in of
    return "; of ".join(filter(None, [column.get("description", ""), "" if is_own else of]))


def _commits(lake: Lake, name: str) -> list[dict[str, object]]:
    return [
        {
            "version": commit.get("version"),
            "committed_at": datetime.fromtimestamp(int(commit["timestamp"]) / 1_000, UTC),
            "operation": commit.get("operation"),
            "by": "delta-rs"
            if "delta-rs" in str(commit.get("engineInfo", commit.get("clientVersion", "")))
            else "Spark",
        }
        for commit in lake.open(name).history(COMMITS)
    ]


def _newest(lake: Lake, name: str, event_time: str | None) -> list[dict[str, object]]:
    """Reads the last rows by event time, or any; of a topic's events only records, without heartbeats."""
    import pyarrow as pa

    from twofold.infra.duckdb_session import query

    table = lake.open(name)
    is_of_events = "_late_by_ms" in [field.name for field in table.schema().fields]
    scanned = table.scan(predicate="_offset IS NOT NULL" if is_of_events else None)
    order = f"ORDER BY {DUCKDB.name(event_time)} DESC" if event_time else ""
    rows = pa.RecordBatchReader.from_stream(scanned)
    newest: list[dict[str, object]] = query(f"FROM rows {order} LIMIT {SAMPLES}", rows=rows).to_pylist()
    return newest


def _described(audit: LastAudit) -> str:
    """Formats the extent and the findings of the newest audit."""
    share = "all" if audit.of == 1 else f"part {audit.turn + 1} of {audit.of}"
    outcome = f"{audit.unexplained:,} that nothing explains" if audit.unexplained else "all right"
    since = f"; every row since {shown(audit.all_since)}" if audit.all_since and audit.of > 1 else ""
    return f"{shown(audit.at)}, {share}, {audit.rows:,} rows, {outcome}{since}"


def _print_page(page: Page) -> None:
    out.print(f"[bold]{page.name}[/]  {escape(page.description)}")
    rows = "not computed yet" if page.rows is None else f"{page.rows:,}"
    age = NOTHING
    if page.updated_at:
        age = f"last micro-batch {shown_age(page.updated_at, datetime.now(UTC))} ago"
        if page.freshness_s is not None:
            age += f", its rows visible {shown_duration(page.freshness_s)} after the broker had them"
    facts = {**page.declaration, "rows": rows, "freshness": age}
    if page.audit:
        facts["audited"] = _described(page.audit)
    facts["file"] = f"tables/{page.name.replace('.', '/')}.py"
    width = max(len(fact) for fact in facts)
    out.print()
    for fact, value in facts.items():
        out.print(f"  [dim]{fact:<{width}}[/]  {escape(_listed(value))}")
    out.print()
    samples = [{name: result_cell(value) for name, value in row.items()} for row in page.newest]
    heads = ["column", "type", *(["newest row"] + ["the one before"] * (len(samples) - 1) if samples else [])]
    lines = [(c["name"], c["type"], *(sample.get(c["name"], "") for sample in samples)) for c in page.columns]
    out.print(make_table("Columns", heads, lines))
    told = {column["name"]: _told(column) for column in page.columns}
    for name, text in told.items():
        if text:
            out.print(f"  [dim]{name}[/]  {escape(text)}")
    if any(told.values()):
        out.print()
    if page.rules:
        out.print("[bold]Rules[/]")
        for rule in page.rules:
            out.print(f"  {escape(rule)}")
        out.print()
    if page.commits:
        out.print(
            make_table(
                "Last versions",
                ["version", "committed (UTC)", "operation", "by"],
                [(c["version"], shown(c["committed_at"]), c["operation"], c["by"]) for c in page.commits],
                right=["version"],
            )
        )

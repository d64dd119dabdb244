"""Commands that audit tables and topics, certify versions and acknowledge losses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.commands.run_commands import From, Partitions, To, parse_selection, table_names
from twofold.cli.console import Json, make_table, out, print_json
from twofold.cli.parsing import require_share
from twofold.infra import COMMAND
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twofold.batch.audit.completeness import Certificate
    from twofold.batch.audit.table_audit import AuditReport
    from twofold.batch.audit.topic_audit import TopicReport


def audit(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE or TOPIC]...", help="All tables when none is named; a topic: all its records."),
    ] = None,
    share: Annotated[float, typer.Option(help="The share of the rows to check; another part each day.")] = 0.05,
    everything: Annotated[bool, typer.Option("--all", help="Check all rows.")] = False,
    first: From = None,
    last: To = None,
    partitions: Partitions = None,
    as_json: Json = False,
) -> None:
    """Recompute a share of the closed rows, and compare the log with events and quarantine.

    Every record of a TOPIC is decoded again, from the archive and the broker, and compared with the ingested one;
    copies in the archive and on the broker must be equal, and every missing offset must have a reason. If there is no
    fault, a certificate is kept, which `certify TOPIC` checks later without the log. --from, --to and --partitions
    check a part of one TOPIC, for which no certificate is kept.

    If a TABLE is computed from a captured table, the share of its rows is also compared with the database. A share of
    the rows of the copies that its outputs keep is compared with the TABLE.

    It finds damage that no late record explains; nothing is repaired. Fails if rows differ or records are missing; with
    --json it only reports it, in `passed`.
    """
    from twofold.tables.declare.registry import running_domains

    audited_share = 1.0 if everything else require_share(share, "--share")
    settings = Settings.from_environment()
    tables, topics = _told_apart(names) if names else (running_domains(settings), [])
    if first or last or partitions:
        _require_one_topic(tables, topics)
    spans = {topic: parse_selection(topic, first, last, partitions)[1] for topic in topics}
    from twofold.batch.audit.table_audit import audit as run

    report = run(settings, tables, spans, share=audited_share)
    if as_json:
        print_json(dataclasses.asdict(report) | {"passed": report.passed, "logs": [_log(log) for log in report.logs]})
        return
    if tables or not topics:
        _print_report(report)
    _print_logs(report.logs)
    report.raise_if_wrong()


def certify(
    name: Annotated[str, typer.Argument(metavar="TABLE or TOPIC", help="By full or bare name.")],
    version: Annotated[int | None, typer.Option(help="Of its Delta versions; the newest without.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Show the offsets of the log that are in a version of TABLE, and check that each is there exactly once.

    Events and quarantine of a TOPIC are checked against the certificate of an audit, without the log. Fails if an
    offset is missing or there twice, or a block of records differs; with --json it only reports it.
    """
    settings = Settings.from_environment()
    tables, topics = _told_apart([name])
    if topics:
        _check_certificate(settings, topics[0], version, as_json)
        return
    from twofold.batch.audit.completeness import certify as run
    from twofold.infra.delta.lake import Lake
    from twofold.infra.errors import LogGap
    from twofold.tables.declare.registry import load

    registry = load()
    certificate = run(Lake(settings), registry, registry.find_table(tables[0]), version)
    if as_json:
        facts = {"faults": certificate.faults, "is_complete": certificate.is_complete}
        print_json(dataclasses.asdict(certificate) | facts)
        return
    _print_certificate(certificate)
    if not certificate.is_complete:
        raise LogGap(
            f"{certificate.table}, version {certificate.version}: {'; '.join(certificate.faults)}.",
            hint=f"`{COMMAND} reconcile` processes late records; `{COMMAND} audit` says more of events and quarantine.",
        )


def _check_certificate(settings: Settings, name: str, version: int | None, as_json: bool) -> None:
    from twofold.batch.audit.topic_audit import check_certificate
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.open_platform import opened

    topic = load().find_topic(name)
    with opened(settings, "certify", [topic.domain]) as platform:
        report = check_certificate(platform, topic, version)
    if as_json:
        print_json(_log(report))
        return
    _print_logs([report])
    report.raise_if_wrong()


def _require_one_topic(tables: Sequence[str], topics: Sequence[str]) -> None:
    from twofold.infra.errors import BadArgument

    if tables or len(topics) != 1:
        raise BadArgument(
            "--from, --to and --partitions are of one TOPIC.", hint="Name one topic, and audit tables without them."
        )


def _log(report: TopicReport) -> dict[str, object]:
    return dataclasses.asdict(report) | {"passed": report.passed, "faults": report.faults}


def _told_apart(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates names into tables or domains, and topics; returns full names, each once.

    Raises:
        BadArgument: a name is neither.
    """
    from twofold.infra.errors import BadArgument
    from twofold.tables.declare.registry import load

    registry, tables, topics = load(), [], []
    for name in dict.fromkeys(names):
        try:
            topics.append(registry.find_topic(name).full_name)
        except BadArgument:
            tables.append(name)
    return table_names(tables), topics


def _print_logs(logs: Sequence[TopicReport]) -> None:
    if not logs:
        return
    rows = [
        (
            log.topic,
            log.against,
            f"{log.records:,}",
            f"{log.blocks:,}",
            f"[bold red]{len(log.differing):,}[/]" if log.differing else "0",
            " and ".join(map(str, log.versions)),
            shown_duration(log.seconds),
        )
        for log in logs
    ]
    columns = ["topic", "held against", "records", "blocks", "differing", "versions", "took"]
    out.print(make_table(None, columns, rows, right=["records", "blocks", "differing"], spare=["versions"]))
    counts = ["archive alone", "both", "broker alone", "unlike", "in transactions", "lost", "missing"]
    sides = [
        (
            log.topic,
            *(f"{n:,}" for n in (log.sides.archive_alone, log.sides.both, log.sides.broker_alone)),
            f"{len(log.sides.unlike):,}",
            *(f"{n:,}" for n in (log.sides.in_transactions, log.sides.lost)),
            f"{sum(end - start for _, start, end in log.sides.missing):,}",
        )
        for log in logs
        if log.sides
    ]
    if sides:
        out.print(make_table("Who has the log", ["topic", *counts], sides, right=counts, spare=["in transactions"]))


def acknowledge(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic: flights.departures, or its bare name.")],
    because: Annotated[str, typer.Option(help="What was lost, and who knows of it; kept in the ledger.")],
    as_json: Json = False,
) -> None:
    """Record that the loss of records of TOPIC is known: audits and status no longer fail for it.

    They stay in ledger.gaps, and every audit and certificate still counts them.
    """
    settings = Settings.from_environment()
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.events import lost_offsets
    from twofold.tables.refresh.open_platform import opened

    declared = load().find_topic(topic)
    with opened(settings, "acknowledge", []) as platform:
        session = platform.spark if settings.engine == "spark" else None
        acknowledged = lost_offsets.acknowledge(platform.lake, declared.full_name, because, session)
    if as_json:
        print_json(acknowledged)
        return
    for gap in acknowledged:
        out.print(escape(str(gap)), soft_wrap=True)
    out.print(
        f"{len(acknowledged)} acknowledged." if acknowledged else f"{declared.full_name} has no gap that waits for it."
    )


def _print_report(report: AuditReport) -> None:
    columns = ["table", "share", "rows", "buckets", "differing", "excused", "unexplained", "took"]
    rows = [
        (t.table, "[bold red]skipped[/]", *[None] * 6)
        if t.skipped
        else (t.table, _share(t.turn, t.of), *(getattr(t, name) for name in columns[2:-1]), shown_duration(t.seconds))
        for t in report.tables
    ]
    out.print(make_table(None, columns, rows, right=columns[2:]))
    if blank := [t.table for t in report.tables if not t.buckets and not t.skipped]:
        out.print(f"Nothing was compared of {', '.join(blank)}: no row is closed, or none is in this share.")
    if excused := [t.table for t in report.tables if t.excused]:
        out.print(
            f"Excused rows of {', '.join(excused)} were touched since their last reconcile: the next one looks at them."
        )
    columns = ["topic", "offsets", "events", "quarantined", "in transactions", "lost", "missing", "repeated", "waiting"]
    counts = ["records", "events", "quarantined", "in_transactions", "lost", "missing", "repeated"]
    topics = [
        (topic.topic, *(sum(getattr(p, count) for p in topic.partitions) for count in counts), topic.waiting)
        for topic in report.topics
    ]
    out.print(make_table(None, columns, topics, right=columns[1:], spare=["in transactions"]))
    if report.comparisons:
        columns = ["of", "compared with", "rows", "differing", "columns left out"]
        others = [(c.subject, c.other, c.rows, c.differing, ", ".join(c.left_out)) for c in report.comparisons]
        out.print(make_table(None, columns, others, right=["rows", "differing"], spare=["columns left out"]))
    if any(topic.waiting is None for topic in report.topics):
        out.print("No broker answered: events and quarantine were held against what ingest says of itself.")


def _share(turn: int, of: int) -> str:
    return "all" if of == 1 else f"{turn + 1} of {of}"


def _print_certificate(certificate: Certificate) -> None:
    columns = ["topic", "partition", "offsets", "events", "quarantined", "in transactions", "lost", "each once"]
    rows = [
        (
            topic.topic,
            p.partition,
            escape(f"[{p.start}, {p.end})"),
            p.events,
            p.quarantined,
            p.in_transactions,
            p.lost,
            "[green]yes[/]" if p.is_complete else "[bold red]no[/]",
        )
        for topic in certificate.topics
        for p in topic.partitions
    ]
    title = f"{certificate.table}, version {certificate.version}: {certificate.rows:,} rows"
    out.print(make_table(title, columns, rows, right=columns[3:7], spare=["in transactions"]))
    taken = ", ".join(f"{name} up to version {version}" for name, version in certificate.inputs.items())
    out.print(f"Included:  {taken or 'nothing'}. Definition {certificate.fingerprint or 'unknown'}.")
    for topic in certificate.topics:
        if topic.duplicates:
            out.print(f"{topic.topic}: {topic.duplicates:,} events repeat another one.")
    for late in certificate.late:
        if late.dropped:
            out.print(f"{late.table} leaves out {late.dropped:,} late records of {late.topic}, as it declares.")

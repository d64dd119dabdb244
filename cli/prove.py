"""Commands that prove: that no row was damaged, and that every record of the log went where it belongs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.arguments import require_share
from cli.screen import Json, make_table, out, print_json, shown_span
from cli.work import TableNames, _full_names
from infra.settings import Settings

if TYPE_CHECKING:
    from batch.audit import Report
    from tables.completeness import Certificate


def audit(
    tables: TableNames = None,
    share: Annotated[float, typer.Option(help="The share of the rows to look at; it goes round with the days.")] = 0.05,
    everything: Annotated[bool, typer.Option("--all", help="Look at all rows.")] = False,
    as_json: Json = False,
) -> None:
    """Recompute a share of the closed rows and hold the log against events and quarantine.

    It finds what no late record announces. Differences are reported and fail the command; nothing is repaired.
    """
    wanted = 1.0 if everything else require_share(share, "--share")
    settings = Settings.from_environment()
    names = _full_names(tables or ())
    from batch.audit import audit as run

    report = run(settings, names, share=wanted)
    if not as_json:
        _print_report(report)
    report.raise_if_wrong()
    if as_json:
        print_json(dataclasses.asdict(report))


def certify(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table: flights.delays_by_hour, or its bare name.")],
    version: Annotated[int | None, typer.Option(help="Of its Delta versions; the newest without.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Show which offsets of the log went into a version of TABLE, each checked to be there once.

    Fails when an offset is missing or there twice; with --json it only tells so, in `is_complete`.
    """
    settings = Settings.from_environment()
    from infra.errors import LogGap
    from tables.completeness import certify as run
    from tables.lake import Lake
    from tables.registry import load

    registry = load()
    certificate = run(Lake(settings), registry, registry.find_table(table), version)
    if as_json:
        facts = {"faults": certificate.faults, "is_complete": certificate.is_complete}
        print_json(dataclasses.asdict(certificate) | facts)
        return
    _print_certificate(certificate)
    if not certificate.is_complete:
        raise LogGap(
            f"{certificate.table}, version {certificate.version}: {'; '.join(certificate.faults)}.",
            hint="`./twofold audit` says more of what is wrong with events and quarantine.",
        )


def _print_report(report: Report) -> None:
    columns = ["table", "share", "rows", "buckets", "differing", "excused", "unexplained", "took"]
    rows = [
        (t.table, _share(t.turn, t.of), t.rows, t.buckets, t.differing, t.excused, t.unexplained, shown_span(t.seconds))
        for t in report.tables
    ]
    out.print(make_table(None, columns, rows, right=columns[2:]))
    columns = ["topic", "records", "events", "quarantined", "missing", "repeated", "waiting"]
    out.print(
        make_table(
            None,
            columns,
            [
                (
                    topic.topic,
                    sum(p.records for p in topic.partitions),
                    sum(p.events for p in topic.partitions),
                    sum(p.quarantined for p in topic.partitions),
                    sum(p.missing for p in topic.partitions),
                    sum(p.repeated for p in topic.partitions),
                    topic.waiting,
                )
                for topic in report.topics
            ],
            right=columns[1:],
        )
    )
    if any(topic.waiting is None for topic in report.topics):
        out.print("No broker answered: events and quarantine were held against what ingest says of itself.")


def _share(turn: int, of: int) -> str:
    return "all" if of == 1 else f"{turn + 1} of {of}"


def _print_certificate(certificate: Certificate) -> None:
    columns = ["topic", "partition", "offsets", "records", "events", "quarantined", "each once"]
    rows = [
        (
            topic.topic,
            p.partition,
            escape(f"[{p.start}, {p.end})"),
            p.records,
            p.events,
            p.quarantined,
            "[green]yes[/]" if p.is_complete else "[bold red]no[/]",
        )
        for topic in certificate.topics
        for p in topic.partitions
    ]
    title = f"{certificate.table}, version {certificate.version}: {certificate.rows:,} rows"
    out.print(make_table(title, columns, rows, right=columns[3:6]))
    taken = ", ".join(f"{name} up to version {version}" for name, version in certificate.inputs.items())
    out.print(f"Taken in: {taken or 'nothing'}. Definition {certificate.fingerprint or 'unknown'}.")
    for topic in certificate.topics:
        if topic.duplicates:
            out.print(f"{topic.topic}: {topic.duplicates:,} events repeat another one.")

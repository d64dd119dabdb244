"""Commands that run streams and batch work: reconcile, backfill, replay, redrive, quality."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.console import NOTHING, Json, make_table, out, print_json, shown, shown_span
from cli.parsing import parse_partitions, parse_position, parse_time, require_order
from infra.offset_ranges import Ranges
from infra.settings import Settings

if TYPE_CHECKING:
    from batch.ledgers.run_result import RunResult
    from batch.offset_selection import OffsetSelection
    from quality.check_result import Verdict
    from tables.declare.topic import Topic
    from tables.refresh.row_diff import Difference

MOST_DIFFERENCES = 20
MEANINGS = {
    "touched": "rows of the inputs that arrived late, were replayed or were corrected since the last reconcile",
    "scopes": "groups of rows that depend on them, recomputed and compared",
    "pending": "scopes with rows that the stream still revises; they are processed again once these are closed",
    "unexplained": "rows that differ from their recomputation though no such row explains it",
}

Domain = Annotated[str, typer.Argument(metavar="DOMAIN", help="A folder under tables/, such as flights.")]
TableNames = Annotated[
    list[str] | None, typer.Argument(metavar="[TABLE or DOMAIN]...", help="All tables when none is named.")
]
TableOrDomain = Annotated[
    str,
    typer.Argument(metavar="TABLE or DOMAIN", help="A table, by full or bare name; or a domain: each of its tables."),
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic: flights.departures, or its bare name.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="First offset: 1200, or by partition 0:1200,2:80; or the broker's append time: 2013-01-05T06:30 (UTC).",
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="POSITION", help="First offset after the range, or an append time, as above."),
]
ApprovedBy = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who approved it, for the ledger of runs. Default: the current user.")
]
Partitions = Annotated[
    str | None, typer.Option("--partitions", metavar="NUMBERS", help="Only these partitions: 0,2. All without.")
]


def stream(domain: Domain, tables: TableNames = None) -> None:
    """Run the stream driver of DOMAIN until it is stopped; it ingests all topics and maintains these tables.

    The supervisor runs this for every domain; by hand it is useful with a platform started by `up --no-streams`.
    """
    settings = Settings.from_environment()
    _require_domain(domain)
    from streaming.driver import run

    run(settings, domain, tables=full_names(tables or (), domain) or None)


def ingest_once(domain: Domain) -> None:
    """Ingest the records of the topics of DOMAIN into their events tables, then stop."""
    settings = Settings.from_environment()
    _require_domain(domain)
    from streaming.driver import drain

    drain(settings, domain, ingest=True, tables=[])


def maintain_once(domain: Domain, tables: TableNames = None) -> None:
    """Bring the tables of DOMAIN up to date with what was ingested, then stop."""
    settings = Settings.from_environment()
    _require_domain(domain)
    from streaming.driver import drain

    drain(settings, domain, ingest=False, tables=full_names(tables or (), domain) or None)


def backfill(
    table: TableOrDomain,
    start: Annotated[
        str | None, typer.Option(help="First instant: 2013-01-05 or 2013-01-05T06:00, UTC. All rows without a range.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="First instant after the range, UTC.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute the rows of TABLE, or of each table of DOMAIN, in a time range and publish the differences.

    Without a range all rows are recomputed, which also accepts a changed definition.
    """
    first = parse_time(start, "--start") if start else None
    last = parse_time(end, "--end") if end else None
    if first and last:
        require_order(first, last)
    settings = Settings.from_environment()
    from tables.declare.registry import load

    names = [found.full_name for found in load().chosen([table])]
    from batch.rewrite.backfill import backfill as run

    print_outcomes([run(settings, name, first, last) for name in names], as_json)


def reconcile(
    tables: TableNames = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also recompute all closed rows and list those that nothing explains.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Verify, then overwrite the rows that nothing explains, once approved.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do not ask.")] = False,
    digest: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="With --repair: only if exactly the rows differ that have this digest."),
    ] = None,
    approved_by: ApprovedBy = None,
    as_json: Json = False,
) -> None:
    """Correct the rows that late records changed, and no others.

    A difference that no late record explains is listed and fails the command; it is never repaired silently.

    Where nothing was touched it takes less than a second and starts no Spark.
    """
    from tables.declare.registry import running_domains

    settings = Settings.from_environment()
    names = table_names(tables) if tables else running_domains(settings)
    approve = _approval(yes, digest, approved_by, as_json) if repair else None
    from batch.reconcile import reconcile as run

    print_outcomes(run(settings, names, verify=verify, repair=approve), as_json)


def _approval(
    yes: bool, digest: str | None, approved_by: str | None, as_json: bool
) -> Callable[[RunResult], str | None]:
    """Asks a person about each table and returns who approved; refused here where there is no terminal to ask in."""
    from infra.errors import BadArgument

    if not yes and (as_json or not sys.stdin.isatty()):
        raise BadArgument(
            "--repair overwrites rows that nothing explains and needs approval.",
            hint="Run it in a terminal, which shows the rows and asks; or add --yes.",
        )

    def approve(outcome: RunResult) -> str | None:
        if not as_json:
            _print_unexplained(outcome)
        if digest is not None and outcome.digest != digest:
            return None
        agreed = yes or typer.confirm(f"Overwrite {outcome.unexplained} rows of {outcome.table}?")
        return (approved_by or getuser()) if agreed else None

    return approve


def print_differences(title: str, differences: Sequence[Difference]) -> None:
    """Rows that differ, column by column."""
    rows = [
        (_joined(d.key), d.change, column, _value(d.before, column), _value(d.should, column))
        for d in differences[:MOST_DIFFERENCES]
        for column in dict.fromkeys([*d.before, *d.should])
    ]
    out.print(make_table(title, ["row", "to be right", "column", "is", "should be"], rows))


def _print_unexplained(outcome: RunResult) -> None:
    print_differences(f"{outcome.table}: rows that nothing explains", outcome.differences)
    if outcome.unexplained > MOST_DIFFERENCES:
        out.print(f"[dim]The first {MOST_DIFFERENCES} of {outcome.unexplained:,}.[/]")


def _joined(key: Mapping[str, object]) -> str:
    return escape(" ".join(f"{column}={value}" for column, value in key.items()))


def _value(values: Mapping[str, object], column: str) -> str:
    return escape(str(values[column])) if column in values else NOTHING


def quality(tables: TableNames = None, as_json: Json = False) -> None:
    """Check the live tables against their rules and build the Data Docs.

    Fails when a rule is broken; with --json it only reports it, in `passed`.
    """
    from tables.declare.registry import load, running_domains

    settings = Settings.from_environment()
    wanted = tables or running_domains(settings)
    names = full_names(wanted)
    from batch.quality_check import quality as run

    verdicts = run(settings, names)
    if as_json:
        print_json([_verdict(verdict) for verdict in verdicts])
        return
    _print_verdicts(verdicts)
    for verdict in verdicts:
        verdict.raise_if_failed()
    load().require_sound(wanted)


def replay(
    topic: TopicName,
    first: From = None,
    last: To = None,
    partitions: Partitions = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="Read only what is archived, nothing through the broker.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print which offsets it would read, or why it cannot yet.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Decode a range of TOPIC again with today's code and publish the differences, also in downstream tables.

    Without --from it starts at the earliest record, without --to it ends at the last ingested one. Archived
    records are read directly from tiered storage, bypassing the broker. A range that cannot be read completely yet is
    refused, with the offset up to which it could be read.
    """
    settings = Settings.from_environment()
    declared, span = parse_selection(topic, first, last, partitions, archived=archived)
    from batch.rewrite.replay import readable
    from batch.rewrite.replay import replay as run

    if dry_run:
        _print_ranges(declared.full_name, readable(settings, declared.full_name, span), as_json)
        return
    print_outcomes(run(settings, declared.full_name, span), as_json)


def _print_ranges(topic: str, ranges: Ranges, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "ranges": ranges})
        return
    for partition, (start, end) in ranges.items():
        out.print(escape(f"{topic}, partition {partition}: [{start}, {end})"))
    out.print(f"{sum(end - start for start, end in ranges.values()):,} offsets.")


def redrive(
    topic: TopicName,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only records with a reason that contains this.")
    ] = None,
    first: From = None,
    last: To = None,
    partitions: Partitions = None,
    as_json: Json = False,
) -> None:
    """Decode quarantined records of TOPIC again with today's code: good ones become events, also for downstream tables.

    Records that still fail stay in quarantine, with today's reasons.
    """
    settings = Settings.from_environment()
    declared, span = parse_selection(topic, first, last, partitions)
    from batch.rewrite.redrive import redrive as run

    print_outcomes(run(settings, declared.full_name, span, reason), as_json)


def parse_selection(
    name: str, first: str | None, last: str | None, partitions: str | None, *, archived: bool = False
) -> tuple[Topic, OffsetSelection]:
    """A topic, by full or bare name, and the selected records."""
    from batch.offset_selection import OffsetSelection
    from tables.declare.registry import load

    topic = load().find_topic(name)
    span = OffsetSelection(
        start=parse_position(first, "--from", topic.partitions),
        end=parse_position(last, "--to", topic.partitions),
        partitions=parse_partitions(partitions, "--partitions", topic.partitions),
        archived=archived,
    )
    return topic, span


def _require_domain(domain: str) -> None:
    from tables.declare.registry import load

    load().require_domain(domain)


def full_names(names: Sequence[str], domain: str | None = None) -> list[str]:
    """Full names of tables, each once, after those that it reads; with `domain`, all of that domain."""
    from infra.errors import BadArgument
    from tables.declare.registry import load

    if not names:
        return []
    found = [table.full_name for table in load().chosen(names)]
    if domain and (foreign := [name for name in found if not name.startswith(f"{domain}.")]):
        raise BadArgument(f"{foreign[0]} is not a table of the domain {domain}.")
    return found


def table_names(names: Sequence[str]) -> list[str]:
    """Full names of tables, each once; a domain stays one, since tables of it may be left out for their mistakes."""
    from tables.declare.registry import load

    domains = [name for name in names if name in load().domains]
    return [*domains, *full_names([name for name in names if name not in domains])]


def print_outcomes(outcomes: Sequence[RunResult], as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(outcome) | {"changed": outcome.changed} for outcome in outcomes])
        return
    if not outcomes:
        out.print("Nothing to do.")
        return
    counts = ["touched", "scopes", "pending", "inserted", "updated", "deleted", "unexplained"]
    columns = ["table", "cause", *counts, "version", "took"]
    rows = [
        (o.table, o.cause, *(getattr(o, count) for count in counts), _versions(o), shown_span(o.seconds))
        for o in outcomes
    ]
    out.print(make_table(None, columns, rows, right=columns[2:]))
    for count, meaning in MEANINGS.items():
        if any(getattr(o, count) for o in outcomes):
            out.print(f"[dim]{count}: {meaning}[/]")
    for o in outcomes:
        if o.waits_until:
            out.print(
                f"{o.table}: what is pending waits until the stream's watermark has passed {shown(o.waits_until)}."
            )
    changed = sum(outcome.changed for outcome in outcomes)
    compared = [outcome.compared for outcome in outcomes if outcome.compared is not None]
    scopes = sum(outcome.scopes for outcome in outcomes)
    if compared:
        out.print(f"{sum(compared):,} rows were compared with their recomputation.")
    elif scopes:
        out.print(f"{scopes:,} scopes were compared with their recomputation; --verify compares all rows.")
    if changed:
        out.print(f"{changed:,} rows changed.")
    elif compared or scopes:
        out.print("Nothing changed: what was compared was right.")
    else:
        out.print("Nothing to correct: no late record, and no input that changed. --verify compares all rows.")


def _versions(outcome: RunResult) -> str | int | None:
    if outcome.version_before == outcome.version_after:
        return outcome.version_after
    return f"{outcome.version_before} → {outcome.version_after}"


def _verdict(verdict: Verdict) -> dict[str, object]:
    rules = [
        {"rule": str(r.rule), "rows": r.rows, "failing": r.failing, "observed": r.observed, "passed": r.passed}
        for r in verdict.rules
    ]
    return {**verdict.as_json(), "rules": rules, "report": verdict.report, "results": verdict.results}


def _print_verdicts(verdicts: Sequence[Verdict]) -> None:
    rows = [
        (verdict.table, rule.rule, rule.rows, rule.failing, "[green]kept[/]" if rule.passed else "[bold red]broken[/]")
        for verdict in verdicts
        for rule in verdict.rules
    ]
    columns = ["table", "rule", "rows", "failing", ""]
    out.print(
        make_table(None, columns, [(t, escape(str(r)), *rest) for t, r, *rest in rows], right=["rows", "failing"])
    )
    for report in dict.fromkeys(verdict.report for verdict in verdicts if verdict.report):
        out.print(f"Data Docs: {report}", soft_wrap=True)

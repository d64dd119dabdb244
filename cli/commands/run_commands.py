"""Commands that run streams and batch work: reconcile, backfill, replay, redrive, quality."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import Json, make_table, out, print_json
from twofold.cli.parsing import parse_partitions, parse_position, parse_time, require_order
from twofold.cli.run_view import (
    Preview,
    RewriteMode,
    Why,
    plan_rewrite,
    print_outcomes,
    print_published,
    publish_now,
    run_rewrite,
    show_plan,
)
from twofold.infra.errors import BadArgument
from twofold.infra.offset_ranges import Ranges
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from twofold.batch.offset_selection import OffsetSelection
    from twofold.quality.check_result import Verdict
    from twofold.tables.declare.topic import Topic


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
    from twofold.streaming.driver import run

    run(settings, domain, tables=full_names(tables or (), domain) or None)


def ingest_once(domain: Domain) -> None:
    """Ingest the records of the topics of DOMAIN into their events tables, then stop."""
    settings = Settings.from_environment()
    _require_domain(domain)
    from twofold.streaming.driver import drain

    drain(settings, domain, ingest=True, tables=[])


def maintain_once(domain: Domain, tables: TableNames = None) -> None:
    """Bring the tables of DOMAIN up to date with what was ingested, then stop."""
    settings = Settings.from_environment()
    _require_domain(domain)
    from twofold.streaming.driver import drain

    drain(settings, domain, ingest=False, tables=full_names(tables or (), domain) or None)


def backfill(
    table: TableOrDomain,
    start: Annotated[
        str | None, typer.Option(help="First instant: 2013-01-05 or 2013-01-05T06:00, UTC. All rows without a range.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="First instant after the range, UTC.")] = None,
    preview: Preview = False,
    why: Why = "",
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
    from twofold.tables.declare.registry import load

    chosen = load().chosen([table])
    from twofold.batch.rewrite.backfill import backfill_range, recompute

    ranges = {declared.full_name: backfill_range(declared, first, last) for declared in chosen}
    command = ["backfill", table, *(["--start", str(start), "--end", str(end)] if first and last else [])]
    run_rewrite(
        settings,
        list(ranges),
        lambda platform: [recompute(platform, declared, ranges[declared.full_name]) for declared in chosen],
        "backfill",
        command,
        RewriteMode(preview, why, as_json),
    )


def reconcile(
    tables: TableNames = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also recompute all closed rows and list those that nothing explains.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Then plan to overwrite the rows that nothing explains, and ask.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: publish the plan, do not ask.")] = False,
    preview: Annotated[bool, typer.Option("--preview", help="With --repair: keep the plan, do not ask.")] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only list the tables that may have work, and those below them.")
    ] = False,
    why: Why = "",
    approved_by: ApprovedBy = None,
    as_json: Json = False,
) -> None:
    """Correct the rows that late records changed, and no others.

    A difference that no late record explains is listed and fails the command; it is never repaired silently.

    If nothing was touched it takes less than a second and starts no Spark.
    """
    from twofold.tables.declare.registry import running_domains

    settings = Settings.from_environment()
    names = table_names(tables) if tables else running_domains(settings)
    if pending:
        from twofold.batch.pending_work import pending_tables

        listed = pending_tables(settings, names)
        print_json(listed) if as_json else out.print("\n".join(listed) or "Nothing to do.", markup=False)
        return
    if repair and not (yes or preview) and (as_json or not sys.stdin.isatty()):
        raise BadArgument(
            "--repair overwrites rows that nothing explains and needs approval.",
            hint="Run it in a terminal, which shows the rows and asks; or add --preview, or --yes.",
        )
    from twofold.batch.reconcile import reconcile as run

    outcomes = run(settings, names, verify=verify and not repair)
    if repair:
        rewrite = RewriteMode(preview=preview, why=why, as_json=as_json)
        _repair(settings, names, ["reconcile", *(tables or ()), "--repair"], rewrite, yes=yes, approved_by=approved_by)
        return
    from twofold.batch.ledgers.corrected_rows import with_corrected_rows

    print_outcomes(with_corrected_rows(settings, outcomes), as_json)


def _repair(
    settings: Settings,
    names: Sequence[str],
    command: Sequence[str],
    rewrite: RewriteMode,
    *,
    yes: bool,
    approved_by: str | None,
) -> None:
    """Plans to overwrite the rows that nothing explains, shows the plan, and publishes it if confirmed."""
    from twofold.batch.reconcile import reconcile_tables
    from twofold.tables.declare.registry import load

    chosen, as_json = load().chosen(names), rewrite.as_json
    plan = plan_rewrite(
        settings,
        [table.full_name for table in chosen],
        lambda platform: reconcile_tables(platform, chosen, repair=True),
        "repair",
        command,
        rewrite.why,
    )
    if not (yes and as_json):
        show_plan(plan, as_json)
    if plan.changes and (yes or (not rewrite.preview and typer.confirm("Publish it?"))):
        outcomes = publish_now(settings, plan, approved_by)
        if as_json:
            print_outcomes(outcomes, as_json)
        else:
            print_published(plan, outcomes)


def quality(tables: TableNames = None, as_json: Json = False) -> None:
    """Check the live tables against their rules; build the Data Docs if Great Expectations is installed.

    Fails when a rule is broken; with --json it only reports it, in `passed`.
    """
    from twofold.tables.declare.registry import load, running_domains

    settings = Settings.from_environment()
    wanted = tables or running_domains(settings)
    names = full_names(wanted)
    from twofold.batch.quality_check import quality as run

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
    preview: Preview = False,
    why: Why = "",
    as_json: Json = False,
) -> None:
    """Decode a range of TOPIC again with today's code and publish the differences, also in downstream tables.

    Without --from it starts at the earliest record, without --to it ends at the last ingested one. Archived
    records are read directly from tiered storage, bypassing the broker. A range that cannot be read completely yet is
    refused, with the offset up to which it could be read.
    """
    settings = Settings.from_environment()
    declared, span = parse_selection(topic, first, last, partitions, archived=archived)
    from twofold.batch.rewrite.replay import decode, readable

    if dry_run:
        from twofold.tables.refresh.open_platform import opened

        with opened(settings, "replay", [declared.domain]) as platform:
            _print_ranges(declared.full_name, readable(platform, declared, span), as_json)
        return
    command = ["replay", declared.full_name, *_selection_arguments(first, last, partitions, archived=archived)]
    run_rewrite(
        settings,
        [declared.full_name],
        lambda platform: decode(platform, declared, span),
        "replay",
        command,
        RewriteMode(preview, why, as_json),
    )


def _selection_arguments(
    first: str | None, last: str | None, partitions: str | None, *, archived: bool = False
) -> list[str]:
    """Returns the options that select records, as they were given."""
    options = {"--from": first, "--to": last, "--partitions": partitions}
    given = [text for option, value in options.items() if value for text in (option, value)]
    return [*given, *(["--archived"] if archived else [])]


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
    preview: Preview = False,
    why: Why = "",
    as_json: Json = False,
) -> None:
    """Decode quarantined records of TOPIC again with today's code: good ones become events, also for downstream tables.

    Records that still fail stay in quarantine, with today's reasons.
    """
    settings = Settings.from_environment()
    declared, span = parse_selection(topic, first, last, partitions)
    from twofold.batch.rewrite.redrive import redrive as decode_quarantined

    chosen = [*(["--reason", reason] if reason else []), *_selection_arguments(first, last, partitions)]
    run_rewrite(
        settings,
        [declared.full_name],
        lambda platform: decode_quarantined(platform, declared, span, reason),
        "replay",
        ["redrive", declared.full_name, *chosen],
        RewriteMode(preview, why, as_json),
    )


def parse_selection(
    name: str, first: str | None, last: str | None, partitions: str | None, *, archived: bool = False
) -> tuple[Topic, OffsetSelection]:
    """Parses a topic, by full or bare name, and a selection of its records."""
    from twofold.batch.offset_selection import OffsetSelection
    from twofold.tables.declare.registry import load

    topic = load().find_topic(name)
    span = OffsetSelection(
        start=parse_position(first, "--from", topic.partitions),
        end=parse_position(last, "--to", topic.partitions),
        partitions=parse_partitions(partitions, "--partitions", topic.partitions),
        archived=archived,
    )
    return topic, span


def _require_domain(domain: str) -> None:
    from twofold.tables.declare.registry import load

    load().require_domain(domain)


def full_names(names: Sequence[str], domain: str | None = None) -> list[str]:
    """Returns full names of tables, each once and after its inputs; with `domain`, all must be of that domain."""
    from twofold.tables.declare.registry import load

    if not names:
        return []
    names_of = [table.full_name for table in load().chosen(names)]
    if domain and (foreign := [name for name in names_of if not name.startswith(f"{domain}.")]):
        raise BadArgument(f"{foreign[0]} is not a table of the domain {domain}.")
    return names_of


def table_names(names: Sequence[str]) -> list[str]:
    """Returns full names of tables, each once; a domain stays a name, since faulty tables of it may be left out."""
    from twofold.tables.declare.registry import load

    domains = [name for name in names if name in load().domains]
    return [*domains, *full_names([name for name in names if name not in domains])]


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

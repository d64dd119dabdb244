"""Commands that run the platform: setup, settings, up, down, status, doctor."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.panel import Panel

from twofold.cli.console import Json, err, make_table, out, print_json, step
from twofold.cli.outputs_table import outputs_table
from twofold.infra import COMMAND, DOCS
from twofold.infra.errors import LogGap, TwofoldError
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import NOTHING, shown_age, shown_bytes, shown_duration

if TYPE_CHECKING:
    from twofold.infra.process.doctor import Finding
    from twofold.status.parts.snapshot import QueryState, Snapshot, TableState, TopicState
    from twofold.status.symptoms.symptom import Symptom
    from twofold.tables.declare.registry import Registry


def up(
    domains: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DOMAIN]...",
            help="Run these domains, with those that they read, and no others, from now on; at first, all.",
        ),
    ] = None,
    airflow: Annotated[bool, typer.Option("--airflow/--no-airflow", help="With Airflow.")] = True,
    streams: Annotated[bool, typer.Option("--streams/--no-streams", help="With a stream driver per domain.")] = True,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="With a Spark server; without, each command starts a JVM.")
    ] = True,
    show_passwords: Annotated[bool, typer.Option(help="Print passwords, not the files that have them.")] = False,
) -> None:
    """Start the platform: broker, streams, Spark server, Airflow; if declared, databases, receiver of webhooks, copies.

    Safe to repeat: running processes are left alone; a stream whose declarations changed is restarted. A declaration
    with a mistake is left out and named here and by `status`; all others run. The stream of a domain that is no longer
    chosen is stopped, as are a database and its capture that no chosen domain needs; the domain's data stays. Captured
    tables that the database does not have yet are named; at a terminal it waits for them.
    """
    from twofold.cli.platform_start import start_platform
    from twofold.cli.services import SERVICES

    wanted = {"airflow": airflow, "stream": streams, "outputs": streams, "spark": spark}
    without = [name for name, is_wanted in wanted.items() if not is_wanted]
    settings, registry = start_platform(Settings.from_environment(), domains or (), without=without)
    out.print()
    print_addresses(settings, registry, without=without, with_passwords=show_passwords)
    _print_not_run(registry)
    for service in SERVICES:
        service.last(settings, registry)


def setup() -> None:
    """Fetch the JVM jars that the project needs, and archive their classes, into a cache that projects share.

    The first `up` fetches the jars, too. With the archive, JVMs start in two thirds of the time.
    """
    from subprocess import SubprocessError

    from twofold.cli.services import needed
    from twofold.infra.process.service import jars_of
    from twofold.infra.project import jars
    from twofold.infra.spark import class_data_sharing
    from twofold.tables.declare.registry import running

    settings = Settings.from_environment()
    with step(f"JVM jars in {settings.jars}") as fetching:
        jars.ensure(settings, jars_of(needed(settings, running(settings))), fetching.count)
    try:
        with step("An archive of their classes"):
            class_data_sharing.ensure(settings)
    except (TwofoldError, SubprocessError, OSError) as error:
        err.print(f"[yellow]![/] JVMs will start more slowly: {escape(str(error))}", soft_wrap=True)


def settings(as_json: Json = False) -> None:
    """Show each setting, and where its value comes from: the environment, the project's file, the home, its default."""
    from twofold.infra.project.project import project
    from twofold.infra.project.settings import given_settings

    given, shown = given_settings(os.environ), Settings.from_environment(of_any_home=True).shown()
    origins = {name: given[name].origin if name in given else "default" for name in shown}
    if as_json:
        print_json({name: {"value": shown[name], "from": origins[name]} for name in shown})
        return
    rows = [[name, escape(shown[name]) or NOTHING, escape(origins[name])] for name in shown]
    out.print(make_table(f"{project().folder}", ["setting", "value", "from"], rows))


def down() -> None:
    """Stop everything that `up` started; data stays."""
    from twofold.infra.process import supervisor

    settings = Settings.from_environment()
    running = len(supervisor.state(settings))
    with step(f"Stop {running} processes" if running else "Look for processes that a crash left"):
        supervisor.stop(settings)


def status(as_json: Json = False) -> None:
    """Show processes, topics, queries and tables: lag, retention, freshness, late, quarantined, corrected.

    Fails when records are lost and not acknowledged; with --json it only reports it, in `gaps`.
    """
    from twofold.status.observer import Observer
    from twofold.status.symptoms.diagnosis import symptoms_of
    from twofold.tables.declare.registry import running

    settings = Settings.from_environment()
    registry = running(settings)
    now = Observer(settings, registry).snapshot(thorough=True)
    if as_json:
        print_json({**vars(now), "symptoms": symptoms_of(now)})
        return
    print_status(now)
    for symptom in symptoms_of(now):
        out.print(f"{_mark(symptom)} {escape(symptom.text)} [dim]{escape(symptom.command)}[/]", soft_wrap=True)
    _print_not_run(registry)
    if now.open_gaps:
        topics = ", ".join(dict.fromkeys(gap.topic for gap in now.open_gaps))
        raise LogGap(
            f"Records of {topics} are lost.",
            hint=f"{DOCS}/how-to/lost-records.md says what to do; `{COMMAND} acknowledge` records that it is known.",
        )


def doctor(as_json: Json = False) -> None:
    """Check the machine, and say what is wrong with the platform, and what to do; exit code 1 when something is.

    It is 0 when something is merely unknown, such as the state of a platform that is down.
    """
    from twofold.cli.services import needed
    from twofold.infra.process.doctor import examine
    from twofold.status.observer import Observer
    from twofold.status.symptoms.diagnosis import symptoms_of
    from twofold.tables.declare.registry import running

    settings = Settings.from_environment()
    registry = running(settings)
    findings = examine(settings, needed(settings, registry))
    symptoms = symptoms_of(Observer(settings, registry).snapshot(thorough=True, save=False))
    if as_json:
        print_json({"findings": findings, "symptoms": symptoms})
    else:
        _print_findings(findings, symptoms)
    if any(not finding.ok for finding in findings) or any(symptom.severity != "unknown" for symptom in symptoms):
        raise typer.Exit(1)


def print_addresses(
    settings: Settings, registry: Registry, *, without: Collection[str] = (), with_passwords: bool = False
) -> None:
    """Prints the addresses of the platform's services, without those of these names, and the next commands."""
    from twofold.cli.services import SERVICES

    lines: list[tuple[str, str]] = []
    for service in reversed(SERVICES):
        if service.name not in without:
            lines += service.addresses(settings, registry, with_passwords)
    lines += [
        ("Spark", f"{COMMAND} spark"),
        *(("Query", f'{COMMAND} sql "FROM {table.full_name} LIMIT 5"') for table in registry.in_order()[-1:]),
        ("Watch", f"{COMMAND} status"),
        ("Stop", f"{COMMAND} down"),
    ]
    body = "\n".join(f"[dim]{name:<9}[/]{escape(text)}" for name, text in lines)
    out.print(Panel(body, title="Twofold is running", expand=False))


def _print_not_run(registry: Registry) -> None:
    if others := registry.not_run:
        every = " ".join([*registry.domains, *others])
        out.print(f"[dim]Not run: {', '.join(others)}. `{COMMAND} up {every}` runs all.[/]", soft_wrap=True)


def print_status(now: Snapshot) -> None:
    """Prints the snapshot as tables."""
    if now.processes:
        out.print(
            make_table(
                "Processes",
                ["process", "state", "pid", "up", "starts", ""],
                [
                    (
                        p.name,
                        _coloured(p.state),
                        str(p.pid) if p.pid else None,
                        shown_duration(p.uptime_s),
                        p.starts,
                        "" if p.state == "RUNNING" else escape(p.detail),
                    )
                    for p in now.processes
                ],
                right=["pid", "up", "starts"],
            )
        )
    out.print(
        make_table(
            "Topics",
            ["topic", "partition", "earliest", "latest", "ingested", "lag", "quarantined"],
            [line for topic in now.topics for line in _topic_lines(topic)],
            right=["partition", "earliest", "latest", "ingested", "lag", "quarantined"],
            spare=["earliest", "ingested"],
        )
    )
    if any(p.latest for topic in now.topics for p in topic.partitions):
        _print_retention(now)
    if now.captures:
        _print_captures(now)
    if now.outputs:
        out.print(outputs_table(now.outputs))
    if now.gaps:
        _print_gaps(now)
    if now.queries:
        _print_queries(now)
    out.print(
        make_table(
            "Tables",
            ["table", "strategy", "rows", "late records", "corrected rows", "version", "audited"],
            [(t.name, t.strategy, t.rows, t.late, t.corrections, t.version, _audited(t, now.at)) for t in now.tables],
            right=["rows", "late records", "corrected rows", "version", "audited"],
            whole=["strategy"],
            spare=["version", "strategy"],
        )
    )
    for name in now.removed:
        out.print(f"[dim]{name} was removed: no file declares it, its rows stay.[/]")


def _audited(table: TableState, now: datetime) -> str:
    """Formats the age of the last audit, and the number of rows that nothing explains."""
    if table.audit is None:
        return "never"
    age = shown_age(table.audit.at, now)
    return f"{age}, [bold red]{table.audit.unexplained:,} wrong[/]" if table.audit.unexplained else age


def _print_queries(now: Snapshot) -> None:
    numbers = ["rows in", "rows out", "took", "freshness", "behind", "since last"]
    for domain in dict.fromkeys(query.domain for query in now.queries):
        out.print(
            make_table(
                f"Queries of {domain}",
                ["query", "watermark (UTC)", "held by", *numbers],
                [_query_line(query, now.at) for query in now.queries if query.domain == domain],
                right=numbers,
                whole=["watermark (UTC)"],
                spare=["rows out", "rows in", "took", "since last", "held by"],
            )
        )


def _topic_lines(topic: TopicState) -> list[tuple[object, ...]]:
    lines: list[tuple[object, ...]] = []
    for n, p in enumerate(topic.partitions):
        name, quarantined = (topic.name, topic.quarantined) if n == 0 else ("", "")
        lines.append((name, str(p.partition), p.earliest, p.latest, p.next, p.lag, quarantined))
    return lines


def _print_retention(now: Snapshot) -> None:
    lines = [
        (
            topic.name if n == 0 else "",
            str(p.partition),
            p.earliest_local,
            p.tiered,
            shown_bytes(topic.archive_bytes) if n == 0 else "",
            NOTHING if p.leaves_in_s is None else shown_duration(p.leaves_in_s),
        )
        for topic in now.topics
        for n, p in enumerate(topic.partitions)
    ]
    columns = ["topic", "partition", "on broker from", "archived up to", "archive", "oldest waiting leaves in"]
    out.print(make_table("Retention", columns, lines, right=columns[1:]))


def _print_captures(now: Snapshot) -> None:
    lines = [
        (
            capture.topic,
            capture.table,
            f"[bold red]{capture.state.lower()}[/]" if capture.fault else "[green]running[/]",
            capture.slot,
            shown_bytes(capture.retained_bytes),
            NOTHING if capture.waiting is None else capture.waiting,
        )
        for capture in now.captures
    ]
    columns = ["topic", "captured table", "capture", "slot", "log kept for it", "to encrypt"]
    out.print(make_table("Captures", columns, lines, right=columns[4:]))


def _print_gaps(now: Snapshot) -> None:
    lines = [
        (
            gap.topic,
            str(gap.partition),
            escape(f"[{gap.start}, {gap.end})"),
            gap.end - gap.start,
            gap.recorded_at,
            "[bold red]not acknowledged[/]" if gap.is_open else escape(gap.because or ""),
        )
        for gap in now.gaps
    ]
    columns = ["topic", "partition", "offsets", "records", "recorded (UTC)", "acknowledged because"]
    out.print(make_table("Lost records", columns, lines, right=["partition", "records"]))


def _query_line(query: QueryState, now: datetime) -> tuple[object, ...]:
    return (
        query.query,
        f"{query.watermark:%Y-%m-%d %H:%M}" if query.watermark else None,
        query.held_back_by and query.held_back_by.removeprefix(f"{query.domain}."),
        query.rows_in,
        query.rows_out,
        shown_duration(query.batch_s),
        shown_duration(query.freshness_s),
        query.behind,
        shown_age(query.updated_at, now),
    )


def _coloured(state: str) -> str:
    colour = {"RUNNING": "green", "STARTING": "yellow", "STOPPING": "yellow"}.get(state, "red")
    return f"[{colour}]{state.lower()}[/]"


def _print_findings(findings: Sequence[Finding], symptoms: Sequence[Symptom]) -> None:
    rows = [
        ("[green]✓[/]" if f.ok else "[bold red]✗[/]", f.name, escape(f.found), escape(f.expected)) for f in findings
    ]
    out.print(make_table(None, ["", "what", "found", "expected"], rows))
    hints = [f"[bold red]✗[/] {escape(f.name)}: {escape(f.hint)}" for f in findings if not f.ok]
    hints += [f"{_mark(each)} {escape(each.text)}\n  {escape(each.hint)}" for each in symptoms]
    for hint in hints or ["Nothing is wrong."]:
        out.print(hint, soft_wrap=True)


def _mark(symptom: Symptom) -> str:
    return {"failed": "[bold red]✗[/]", "degraded": "[yellow]![/]", "unknown": "[dim]?[/]"}[symptom.severity]

"""Commands that run the platform: up, down, status, doctor."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.panel import Panel

from cli.capture_start import capture_programs, captures_tables, ensure_captures
from cli.console import (
    NOTHING,
    Json,
    make_table,
    out,
    print_fault,
    print_json,
    shown_age,
    shown_bytes,
    shown_span,
    step,
)
from infra.errors import LogGap, ProcessFailed
from infra.settings import ROOT, Settings

if TYPE_CHECKING:
    from cli.platform_status import QueryState, Snapshot, TableState, TopicState
    from infra.doctor import Finding
    from infra.process.supervisor import Program
    from streaming.progress import Progress
    from tables.engine.declarations.registry import Registry

STREAM_READY_S = 180.0
MOST_STARTS = 3


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
) -> None:
    """Start the platform: broker, database with its capture where one is declared, streams, Spark server, Airflow.

    Safe to repeat: what runs already is left alone; a stream whose declarations changed is restarted. A declaration
    with a mistake is left out and named here and by `status`; all others run.
    """
    settings = Settings.from_environment()
    registry = start_platform(settings, domains or (), airflow=airflow, streams=streams, spark=spark)
    out.print()
    print_addresses(settings, registry, airflow=airflow)
    _print_not_run(registry)


def down() -> None:
    """Stop everything that `up` started; data stays."""
    from infra.process import supervisor

    settings = Settings.from_environment()
    running = len(supervisor.state(settings))
    with step(f"Stop {running} processes" if running else "Look for processes that a crash left"):
        supervisor.stop(settings)


def status(as_json: Json = False) -> None:
    """Show processes, topics, queries and tables: lag, retention, freshness, late, quarantined, corrected.

    Fails when records are lost and not acknowledged; with --json it only reports it, in `gaps`.
    """
    from cli.platform_status import Observer
    from tables.engine.declarations.registry import running

    settings = Settings.from_environment()
    registry = running(settings)
    now = Observer(settings, registry).take(with_retention=True)
    if as_json:
        print_json(now)
        return
    print_status(now)
    _print_not_run(registry)
    if now.open_gaps:
        topics = ", ".join(dict.fromkeys(gap.topic for gap in now.open_gaps))
        raise LogGap(
            f"Records of {topics} are lost.",
            hint="docs/how-to/lost-records.md says what to do; `./twofold acknowledge` records that it is known.",
        )


def doctor(as_json: Json = False) -> None:
    """Check the machine, the declarations and the streams; exit code 1 when something is wrong."""
    from cli.platform_status import capture_findings, declarations, streams
    from infra.doctor import examine
    from tables.engine.declarations.registry import running

    settings = Settings.from_environment()
    registry = running(settings)
    findings = [
        *examine(settings, captures=captures_tables(registry)),
        declarations(registry),
        streams(settings, registry),
        *capture_findings(settings, registry),
    ]
    if as_json:
        print_json(findings)
    else:
        _print_findings(findings)
    if any(not finding.ok for finding in findings):
        raise typer.Exit(1)


def start_platform(
    settings: Settings,
    domains: Sequence[str] = (),
    *,
    airflow: bool = True,
    streams: bool = True,
    spark: bool = True,
    prepare_database: Callable[[Settings], None] | None = None,
) -> Registry:
    """Have the platform running and ready; what it runs.

    Args:
        domains: those that it runs from now on; none: those of before, all at first.
        prepare_database: called once the captured database answers, before its tables are captured.

    Raises:
        BadArgument: an unknown domain; before anything is started.
        PortTaken: before anything is started.
        ProcessFailed: a process does not become ready; names its log.
    """
    from infra import jars
    from infra.chosen_domains import choose_domains
    from infra.process import supervisor
    from tables.engine.declarations.registry import load, running

    if domains:
        declared = load()
        known = [declared.require_domain(domain) for domain in domains]
        choose_domains(settings, declared.restricted_to(known).domains)
    registry = running(settings)
    for fault in registry.faults.values():
        print_fault(fault, "It is left out; all else runs.")
    if not supervisor.is_running(settings):
        # What a crash left behind would hold our ports.
        supervisor.stop(settings)
    spark = spark and settings.supervises_spark
    _require_ports(settings, airflow=airflow, spark=spark, captures=captures_tables(registry))
    with step("Java and its jars"):
        jars.ensure(settings)
    fresh = not supervisor.is_running(settings)
    programs = [*_broker(settings), *capture_programs(settings, registry)]
    if spark:
        programs.append(_spark(settings))
    with ThreadPoolExecutor(max_workers=1) as executor:
        warm = None
        if fresh:
            # The broker and Spark start while Airflow's database is made, and Airflow while the broker starts.
            supervisor.start(settings, programs)
            warm = executor.submit(_wait_spark, settings) if spark else None
        if airflow:
            with step("Airflow's database"):
                programs += _airflow(settings)
            if fresh:
                supervisor.start(settings, programs)
        with step(f"Kafka broker at {settings.bootstrap_servers}"):
            _wait_broker(settings)
        with step("Topics as declared"):
            _ensure_topics(settings, registry)
        ensure_captures(settings, registry, prepare_database)
        if streams:
            programs += [_stream(settings, domain) for domain in registry.domains]
        supervisor.start(settings, programs)
        # A broker whose definition changed was replaced just now, as was a Spark server.
        _wait_broker(settings)
        for domain in registry.domains if streams else ():
            with step(f"Stream of the domain {domain}"):
                _wait_stream(settings, registry, domain)
        for failed in [p for domain in registry.domains if streams for p in _failed(settings, registry, domain)]:
            out.print(f"[bold red]✗[/] {failed.domain}.{failed.query} has failed; all else runs.", soft_wrap=True)
            out.print(f"  {escape(failed.error)}", soft_wrap=True)
        if spark:
            with step(f"Spark server at 127.0.0.1:{settings.spark_port}"):
                (warm or executor.submit(_wait_spark, settings)).result()
        if airflow:
            with step("Airflow"):
                _wait_airflow(settings)
    return registry


def print_addresses(settings: Settings, registry: Registry, *, airflow: bool = True) -> None:
    """Where to go from here."""
    lines = []
    if airflow:
        from infra.airflow.airflow_processes import USER, base_url, password

        lines += [("Airflow", base_url(settings)), ("", f"user {USER}, password {password(settings)}")]
    if captures_tables(registry) and settings.supervises_database:
        from infra.capture import postgres_server

        lines += [
            ("Database", f"127.0.0.1:{settings.database_port}, database {postgres_server.DATABASE}"),
            ("", f"user {postgres_server.USER}, password {postgres_server.password(settings)}"),
        ]
    lines += [
        ("Kafka", settings.bootstrap_servers),
        ("Spark", "./twofold spark"),
        *(("Query", f'./twofold sql "FROM {table.full_name} LIMIT 5"') for table in registry.in_order()[-1:]),
        ("Watch", "./twofold status"),
        ("Stop", "./twofold down"),
    ]
    body = "\n".join(f"[dim]{name:<9}[/]{escape(text)}" for name, text in lines)
    out.print(Panel(body, title="Twofold is running", expand=False))


def _print_not_run(registry: Registry) -> None:
    others = sorted({name.partition(".")[0] for name in registry.elsewhere})
    if others:
        every = " ".join([*registry.domains, *others])
        out.print(f"[dim]Not run: {', '.join(others)}. `./twofold up {every}` runs all.[/]", soft_wrap=True)


def stream_program_name(domain: str) -> str:
    """What the supervisor calls the stream driver of a domain."""
    return f"stream-{domain.replace('_', '-')}"


def _require_ports(settings: Settings, *, airflow: bool, spark: bool, captures: bool) -> None:
    """Refuse ports that others hold; those of our own running processes are ours."""
    from infra.process import supervisor
    from infra.process.ports import require_free
    from infra.server_ports import server_ports

    ours = {process.name for process in supervisor.state(settings) if process.pid is not None}
    for port in server_ports(settings, airflow=airflow, spark=spark, captures=captures):
        if port.program not in ours:
            require_free(port.number, port.setting, port.server)


def _broker(settings: Settings) -> list[Program]:
    from infra.kafka import broker

    if not settings.supervises_broker:
        return []
    broker.prepare(settings)
    return [broker.program(settings)]


def _wait_broker(settings: Settings) -> None:
    from infra.kafka.broker import wait_ready

    wait_ready(settings)


def _ensure_topics(settings: Settings, registry: Registry) -> None:
    from infra.kafka.topic_admin import ensure_topics
    from tables.engine.events.topic_specs import specs

    ensure_topics(settings, specs(registry))


def _stream(settings: Settings, domain: str) -> Program:
    """The stream driver; its definition changes with the domain's declarations, so that `up` restarts it then."""
    from infra.process.supervisor import Program

    declared = hashlib.sha256()
    for path in sorted((ROOT / "tables" / domain).glob("*.py")):
        declared.update(path.read_bytes())
    return Program(
        name=stream_program_name(domain),
        command=[sys.executable, "-m", "cli", "stream", domain],
        environment={**settings.environment(), "DECLARATIONS": declared.hexdigest()[:12]},
        stage=1,
        start_s=5,
        stop_wait_s=60,
    )


def _spark(settings: Settings) -> Program:
    from infra.spark.connect_server import program

    return program(settings)


def _wait_spark(settings: Settings) -> None:
    from infra.spark.connect_server import wait_warm

    wait_warm(settings)


def _airflow(settings: Settings) -> list[Program]:
    from infra.airflow.airflow_processes import prepare, programs

    prepare(settings)
    return programs(settings)


def _wait_airflow(settings: Settings) -> None:
    from infra.airflow.airflow_api import wait_ready

    wait_ready(settings)


def _wait_stream(settings: Settings, registry: Registry, domain: str) -> None:
    """Return when the driver runs and has created the tables of its domain, or has reported why it cannot."""
    from infra.process import supervisor
    from tables.engine.declarations.code_fingerprint import fingerprint, recorded
    from tables.engine.delta.lake import Lake

    lake = Lake(settings)
    tables = registry.in_order(domain)
    declared = [d.full_name for d in registry.domain_topics(domain)] + [d.full_name for d in tables]
    # The driver refuses these, and reports why.
    changed = {
        t.full_name for t in tables if lake.exists(t.full_name) and recorded(lake, t) not in (None, fingerprint(t))
    }

    name, deadline = stream_program_name(domain), time.monotonic() + STREAM_READY_S
    while True:
        process = next((p for p in supervisor.state(settings) if p.name == name), None)
        if process and process.state == "RUNNING":
            failed = {f"{p.domain}.{p.query}" for p in _failed(settings, registry, domain)}
            if all(d in failed or (d not in changed and lake.exists(d)) for d in declared):
                return
        if time.monotonic() > deadline or (process and process.starts > MOST_STARTS):
            state = f"{process.state}, started {process.starts} times" if process else "not supervised"
            raise ProcessFailed(f"The stream of {domain} is {state}.", hint=f"See {settings.logs / f'{name}.log'}.")
        time.sleep(0.3)


def _failed(settings: Settings, registry: Registry, domain: str) -> list[Progress]:
    """Declared queries that have failed since the domain's driver was started: an older error may be corrected."""
    from infra.process import supervisor
    from streaming.progress import read

    name, now = stream_program_name(domain), datetime.now(UTC)
    uptime_s = next((p.uptime_s for p in supervisor.state(settings) if p.name == name), None)
    if uptime_s is None:
        return []
    known = {"ingest", *(table.name for table in registry.in_order(domain))}
    return [
        p
        for p in read(settings, domain)
        if p.query in known and p.failed_at is not None and p.failed_at >= now - timedelta(seconds=uptime_s)
    ]


def print_status(now: Snapshot) -> None:
    """The snapshot as tables."""
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
                        shown_span(p.uptime_s),
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
    for problem in now.problems:
        out.print(f"[yellow]![/] {escape(problem)}")
    if not now.processes:
        out.print("[yellow]![/] The platform is down: ./twofold up starts it.")


def _audited(table: TableState, now: datetime) -> str:
    """How long ago, and how many rows nothing explains."""
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
                spare=["rows out", "rows in", "took"],
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
            NOTHING if p.leaves_in_s is None else shown_span(p.leaves_in_s),
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
        )
        for capture in now.captures
    ]
    columns = ["topic", "captured table", "capture", "slot", "log kept for it"]
    out.print(make_table("Captures", columns, lines, right=["log kept for it"]))


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
        shown_span(query.batch_s),
        shown_span(query.freshness_s),
        query.behind,
        shown_age(query.updated_at, now),
    )


def _coloured(state: str) -> str:
    colour = {"RUNNING": "green", "STARTING": "yellow", "STOPPING": "yellow"}.get(state, "red")
    return f"[{colour}]{state.lower()}[/]"


def _print_findings(findings: Sequence[Finding]) -> None:
    rows = [
        ("[green]✓[/]" if f.ok else "[bold red]✗[/]", f.name, escape(f.found), escape(f.expected)) for f in findings
    ]
    out.print(make_table(None, ["", "what", "found", "expected"], rows))
    for finding in findings:
        if not finding.ok:
            out.print(f"[bold red]✗[/] {escape(finding.name)}: {escape(finding.hint)}", soft_wrap=True)
    if all(finding.ok for finding in findings):
        out.print("Nothing is wrong.")

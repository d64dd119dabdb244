"""Starts a platform, and waits until each part of it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rich.markup import escape

from twofold.cli.capture_start import capture_programs, captures_tables, ensure_captures
from twofold.cli.console import out, print_fault, step
from twofold.cli.outputs_start import copy_programs, ensure_copies, keeps_copies, output_programs
from twofold.infra.errors import ProcessFailed
from twofold.infra.extras import require_extra
from twofold.infra.process.file_locks import exclusive
from twofold.infra.project.chosen_domains import declarations_digest, driver_name
from twofold.infra.project.home_format import keep_format, version
from twofold.infra.project.settings import Settings, ports_file

if TYPE_CHECKING:
    from twofold.infra.process.server_ports import ServerPort
    from twofold.infra.process.supervisord import Program
    from twofold.streaming.query.progress import Progress
    from twofold.tables.declare.registry import Registry

STREAM_READY_S = 600.0
MOST_STARTS = 3


def start_platform(
    settings: Settings,
    domains: Sequence[str] = (),
    *,
    airflow: bool = True,
    streams: bool = True,
    spark: bool = True,
    prepare_database: Callable[[Settings], None] | None = None,
    meanwhile: Callable[[Settings, Registry], None] | None = None,
) -> tuple[Settings, Registry]:
    """Starts the platform, and waits until it is ready; returns settings with its ports, and what it runs.

    Args:
        domains: the domains to run from now on; none: the previous choice, all at first.
        prepare_database: called once the captured database answers, before its tables are captured.
        meanwhile: called once the streams run, while the Spark server and Airflow become ready.

    Raises:
        BadArgument: an unknown domain; the previous choice stays, and nothing is started.
        BadDeclaration: nothing of a domain can be loaded; the same.
        PortTaken, MissingTool: before anything is started.
        ProcessFailed: a process does not become ready; names its log.
    """
    from twofold.infra.process import supervisor

    spark = spark and settings.supervises_spark
    with _starting(settings, domains, airflow=airflow, spark=spark) as started, ThreadPoolExecutor(1) as executor:
        settings, registry = started
        programs = _servers(settings, registry, spark=spark)
        warm, before = None, {process.pid for process in supervisor.state(settings) if process.pid}
        if fresh := not supervisor.is_running(settings):
            # The broker and Spark start while Airflow's database is made, and Airflow while the broker starts.
            supervisor.start(settings, programs)
            warm = executor.submit(_wait_spark, settings, before) if spark else None
        if airflow:
            programs += _airflow(settings)
            if fresh:
                supervisor.start(settings, programs)
        with step(f"Kafka broker at {settings.bootstrap_servers}"):
            _wait_broker(settings)
        with step("Topics as declared"):
            _ensure_topics(settings, registry)
        supervisor.start(settings, programs + _workers(settings, registry, streams=streams))
        # A broker whose definition changed was replaced just now, as was a Spark server.
        _wait_broker(settings)
        # Only now: if the platform ran without a captured domain, the database was started just now.
        ensure_captures(settings, registry, prepare_database)
        _wait_receiver(settings, registry)
        ensure_copies(settings, registry)
        for domain in registry.domains if streams else ():
            _wait_stream(settings, registry, domain)
        if meanwhile:
            meanwhile(settings, registry)
        if spark:
            with step(f"Spark server at 127.0.0.1:{settings.spark_port}"):
                (warm or executor.submit(_wait_spark, settings, before)).result()
        if airflow:
            _wait_airflow(settings)
        _write_views(settings, registry)
    return settings, registry


@contextmanager
def _starting(
    settings: Settings, domains: Sequence[str], *, airflow: bool, spark: bool
) -> Iterator[tuple[Settings, Registry]]:
    """Locks the choice of domains and ports, stores it, and yields it once the machine has what they need.

    It prints what is left out, moved or restarted.
    """
    from twofold.infra.delta.lake import Lake
    from twofold.infra.process.server_ports import own_ports
    from twofold.infra.project.chosen_domains import choose_domains
    from twofold.tables.declare.registry import load, running
    from twofold.tables.refresh.acceptance import live_unproved, refused

    require_extra("platform")
    if any(place.startswith("s3") for place in (settings.lake, settings.archive)):
        require_extra("s3")
    chosen: Sequence[str] = []
    if domains:
        declared = load()
        chosen = declared.restricted_to([declared.require_domain(domain) for domain in domains]).domains
    with exclusive(settings.start_lock):
        if chosen:
            choose_domains(settings, chosen)
        registry = running(settings)
        lake = Lake(settings)
        for fault in refused(lake, registry).values():
            print_fault(fault, "It is left out; all else runs.")
        for sentence in live_unproved(lake, registry).values():
            out.print(f"[yellow]![/] {escape(sentence)}", soft_wrap=True)
        with own_ports(settings, _ports(settings, registry, airflow=airflow, spark=spark)) as own:
            _print_moved(settings, own)
            _require_machine(own, registry, airflow=airflow, spark=spark)
            keep_format(own.home)
            _print_upgrade(own)
            yield own, registry


def _ports(settings: Settings, registry: Registry, *, airflow: bool, spark: bool) -> list[ServerPort]:
    from twofold.infra.process.server_ports import server_ports
    from twofold.tables.declare.sources.webhook_topic import webhook_topics

    captures, webhooks, copies = captures_tables(registry), bool(webhook_topics(registry)), keeps_copies(registry)
    return server_ports(settings, airflow=airflow, spark=spark, captures=captures, webhooks=webhooks, copies=copies)


def _print_moved(before: Settings, own: Settings) -> None:
    """Prints the ports that were chosen now, since the usual ones are taken."""
    values = own.shown()
    moved = [f"{name} {values[name]}" for name, usual in before.shown().items() if values[name] != usual]
    if moved:
        said = f"The usual ports are taken, so these are used: {', '.join(moved)}"
        out.print(f"[green]✓[/] {said} [dim]{escape(f'kept in {ports_file(own.home)}')}[/]", soft_wrap=True)


def _print_upgrade(settings: Settings) -> None:
    """Prints which running processes get the code of another version, and what that may ask for."""
    from twofold.infra.process import supervisor, supervisord

    if not (earlier := supervisord.earlier_versions(settings)):
        return
    running = [process.name for process in supervisor.state(settings) if process.pid and process.name in earlier]
    restarts = f": restarts {', '.join(running)}" if running else ""
    out.print(f"Twofold {max(earlier.values())} -> {version()}{escape(restarts)}.", soft_wrap=True)
    named = "A table whose code this version reads in another way is named below, and asks for a plan."
    out.print(f"[dim]{named}[/]", soft_wrap=True)


def _print_failed(settings: Settings, registry: Registry, domain: str) -> None:
    for failed in _failed(settings, registry, domain):
        out.print(f"[bold red]✗[/] {failed.domain}.{failed.query} has failed; all else runs.", soft_wrap=True)
        out.print(f"  {escape(failed.error)}", soft_wrap=True)


def restart_streams(settings: Settings, domains: Sequence[str], *, quietly: bool = False) -> None:
    """Restarts the running stream drivers of these domains, relays and outputs, so that they load the current code."""
    from twofold.infra.process import supervisor
    from twofold.intake.relay import programs as relays
    from twofold.tables.declare.registry import running
    from twofold.tables.refresh.events.sealed_topics import require_sealed

    registry = running(settings)
    alive = {process.name for process in supervisor.state(settings) if process.pid is not None}
    for domain in domains:
        if driver_name(domain) in alive:
            require_sealed(settings, registry.domain_topics(domain))
            with nullcontext() if quietly else step(f"Stream of the domain {domain}, with the new code"):
                supervisor.replace(settings, _stream(settings, domain))
    for program in [*relays(settings, registry), *output_programs(settings, registry)]:
        if domains and program.name in alive:
            supervisor.replace(settings, program)


def _require_machine(settings: Settings, registry: Registry, *, airflow: bool, spark: bool) -> None:
    """Refuses ports held by processes that are not ours, webhooks' secrets that others can read, and missing jars."""
    from twofold.infra.process import supervisor
    from twofold.infra.process.server_ports import require_free_ports
    from twofold.infra.project import jars
    from twofold.infra.webhooks.webhook_secrets import add_missing
    from twofold.tables.declare.sources.webhook_topic import webhook_topics

    if not supervisor.is_running(settings):
        # Processes left by a crash would hold our ports.
        supervisor.stop(settings)
    ours = {process.name for process in supervisor.state(settings) if process.pid is not None}
    ports = _ports(settings, registry, airflow=airflow, spark=spark)
    require_free_ports(settings, [port for port in ports if port.program not in ours])
    webhooks = webhook_topics(registry)
    if webhooks:
        add_missing(settings, [topic.full_name for topic in webhooks])
    with step("Java and its jars") as running:
        jars.ensure(settings, jars.needed(settings, captures=captures_tables(registry)), running.count)


def _servers(settings: Settings, registry: Registry, *, spark: bool) -> list[Program]:
    """Returns the programs of the servers that streams, outputs and batch work need."""
    programs = [*_broker(settings), *capture_programs(settings, registry)]
    return [*programs, *copy_programs(settings, registry, programs), *([_spark(settings)] if spark else [])]


def _broker(settings: Settings) -> list[Program]:
    from twofold.infra.kafka import broker

    if not settings.supervises_broker:
        return []
    broker.prepare(settings)
    return [broker.program(settings)]


def _wait_broker(settings: Settings) -> None:
    from twofold.infra.kafka.broker import wait_ready

    wait_ready(settings)


def _ensure_topics(settings: Settings, registry: Registry) -> None:
    """Creates the topics on the broker, and the ledgers, so that analysts can query each of them.

    Raises:
        BadDeclaration, BadSetting: what is personal in a topic is not encrypted, or its keys are missing.
    """
    from twofold.batch.ledgers.run_ledgers import Ledgers
    from twofold.infra.delta.lake import Lake
    from twofold.infra.kafka.topic_admin import ensure_topics
    from twofold.tables.refresh.events.sealed_topics import require_sealed
    from twofold.tables.refresh.events.topic_specs import specs

    require_sealed(settings, registry.topics.values())
    ensure_topics(settings, specs(registry))
    Ledgers(Lake(settings)).ensure()


def _stream(settings: Settings, domain: str) -> Program:
    """Returns the program of the stream driver; it changes with the domain's declarations, so that `up` restarts it."""
    from twofold.infra.process.supervisord import Program
    from twofold.infra.process.twofold_command import PROGRAM

    return Program(
        name=driver_name(domain),
        command=[*PROGRAM, "stream", domain],
        environment={**settings.environment(), "DECLARATIONS": declarations_digest([domain])},
        stage=1,
        start_s=5,
        stop_wait_s=60,
    )


def _workers(settings: Settings, registry: Registry, *, streams: bool) -> list[Program]:
    """Returns what carries records and rows on: receiver, relays; if asked for, streams and outputs."""
    from twofold.intake.relay import programs

    taking = [*_receiver(settings, registry), *programs(settings, registry)]
    if not streams:
        return taking
    return [
        *(_stream(settings, domain) for domain in registry.domains),
        *output_programs(settings, registry),
        *taking,
    ]


def _receiver(settings: Settings, registry: Registry) -> list[Program]:
    from twofold.intake.receiver import programs

    return programs(settings, registry)


def _wait_receiver(settings: Settings, registry: Registry) -> None:
    from twofold.intake.receiver import wait_ready

    if _receiver(settings, registry):
        with step(f"Receiver of webhooks at {settings.receiver_address}"):
            wait_ready(settings)


def _spark(settings: Settings) -> Program:
    from twofold.infra.spark.connect_server import program

    return program(settings)


def _wait_spark(settings: Settings, before: Collection[int]) -> None:
    """Waits for the Spark server; it is warm if its process is one of those that ran before."""
    from twofold.infra.process import supervisor
    from twofold.infra.spark import connect_server
    from twofold.infra.spark.spark_client import wait_warm

    is_new = not any(p.name == connect_server.NAME and p.pid in before for p in supervisor.state(settings))
    wait_warm(settings, is_new=is_new)


def _airflow(settings: Settings) -> list[Program]:
    from twofold.infra.airflow.airflow_processes import is_migrated, prepare, programs
    from twofold.infra.process import supervisor

    with step("Airflow's database"):
        if not is_migrated(settings):  # those that run are of another version
            for process in supervisor.state(settings):
                if process.name.startswith("airflow-"):
                    supervisor.stop_program(settings, process.name)
        prepare(settings)
        return programs(settings)


def _write_views(settings: Settings, registry: Registry) -> None:
    from twofold.analysts.analytics_file import write_analytics

    with step("Views for analysts"):
        write_analytics(settings, registry)


def _wait_airflow(settings: Settings) -> None:
    from twofold.infra.airflow.airflow_api import wait_ready

    with step("Airflow"):
        wait_ready(settings)


def _wait_stream(settings: Settings, registry: Registry, domain: str) -> None:
    """Waits until the driver runs and has created the tables of its domain, or prints why it cannot."""
    with step(f"Stream of the domain {domain}"):
        _wait_tables(settings, registry, domain)
    _print_failed(settings, registry, domain)


def _wait_tables(settings: Settings, registry: Registry, domain: str) -> None:
    from twofold.infra.delta.lake import Lake
    from twofold.infra.process import supervisor
    from twofold.tables.refresh.acceptance import is_accepted

    lake = Lake(settings)
    tables = registry.in_order(domain)
    declared = [d.full_name for d in registry.domain_topics(domain)] + [d.full_name for d in tables]
    # The driver refuses these, and reports why.
    changed = {t.full_name for t in tables if lake.exists(t.full_name) and not is_accepted(lake, t, registry)}

    name, deadline = driver_name(domain), time.monotonic() + STREAM_READY_S
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
    """Returns declared queries that have failed since the domain's driver started; older errors may be fixed."""
    from twofold.infra.process import supervisor
    from twofold.streaming.query.progress import read

    name, now = driver_name(domain), datetime.now(UTC)
    uptime_s = next((p.uptime_s for p in supervisor.state(settings) if p.name == name), None)
    if uptime_s is None:
        return []
    programs = {"ingest", *(table.name for table in registry.in_order(domain))}
    return [
        p
        for p in read(settings, domain)
        if p.query in programs and p.failed_at is not None and p.failed_at >= now - timedelta(seconds=uptime_s)
    ]

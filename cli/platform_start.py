"""Starts a platform, and waits until each part of it is ready."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pkgutil import resolve_name

from rich.markup import escape

from twofold.cli.console import out, print_fault, step
from twofold.cli.services import SERVICES, needed
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import TwofoldError
from twofold.infra.extras import require_extra
from twofold.infra.process import supervisor, supervisord
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.server_ports import own_ports, require_free_ports
from twofold.infra.process.service import Wait, jars_of, ports_of
from twofold.infra.process.supervisord import Program
from twofold.infra.project import jars
from twofold.infra.project.chosen_domains import choose_domains, driver_name
from twofold.infra.project.feature import features
from twofold.infra.project.home_format import keep_format, version
from twofold.infra.project.settings import Settings, ports_file
from twofold.tables.declare.records.cover import find_cover
from twofold.tables.declare.registry import Registry, load, running


def start_platform(
    settings: Settings,
    domains: Sequence[str] = (),
    *,
    without: Collection[str] = (),
    before: Mapping[str, Callable[[Settings, Registry], None]] | None = None,
) -> tuple[Settings, Registry]:
    """Starts the platform, and waits until it is ready; returns settings with its ports, and what it runs.

    Args:
        domains: the domains to run from now on; none: the previous choice, all at first.
        without: names of services that are not to run.
        before: service -> what is called once all programs are started, before it is waited for.

    Raises:
        BadArgument: an unknown domain; the previous choice stays, and nothing is started.
        BadDeclaration: nothing of a domain can be loaded; the same.
        PortTaken, MissingTool: before anything is started.
        ProcessFailed: a process does not become ready; names its log.
    """
    with _starting(settings, domains, without) as (settings, registry), ThreadPoolExecutor() as executor:
        chosen = [service for service in SERVICES if service.name not in without]
        waits = {service.name: [*service.ready(settings, registry)] for service in chosen}
        logs = [wait for service in chosen if service.stage == "log" for wait in waits.pop(service.name)]
        programs, begun = list[Program](), dict[Wait, Future[Iterable[TwofoldError] | None]]()

        def start() -> None:
            supervisor.start(settings, programs)
            early = [wait for each in waits.values() for wait in each if wait.early and wait not in begun]
            begun.update({wait: executor.submit(wait.run) for wait in early})

        is_fresh = not supervisor.is_running(settings)
        services = needed(settings, registry, without)
        workers = [p for each in services if each.stage == "workers" for p in each.programs(settings, registry)]
        for service in services:
            if service.prepares and is_fresh:
                start()
            with step(service.prepares) if service.prepares else nullcontext():
                service.prepare(settings)
            if service.stage != "workers":
                programs += service.programs(settings, registry)
        if is_fresh:
            start()
        _show(logs, {})
        with step("Topics as declared"):
            _ensure_topics(settings, registry)
        programs += workers
        start()
        for wait in logs:  # a broker whose definition changed was replaced just now
            wait.run()
        for name, each in waits.items():
            if before and name in before:
                before[name](settings, registry)
            _show(each, begun)
        write_derived(settings, registry)
    return settings, registry


def _show(waits: Iterable[Wait], begun: Mapping[Wait, Future[Iterable[TwofoldError] | None]]) -> None:
    """Prints each step while it waits, some of which have begun, and then its faults."""
    for wait in waits:
        with step(wait.title):
            faults = begun[wait].result() if wait in begun else wait.run()
        for fault in faults or ():
            print_fault(fault, "All else runs.")


@contextmanager
def _starting(
    settings: Settings, domains: Sequence[str], without: Collection[str]
) -> Iterator[tuple[Settings, Registry]]:
    """Locks the choice of domains and ports, stores it, and yields it once the machine has what they need.

    It prints what is left out, moved or restarted.
    """
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
        services = needed(settings, registry, without)
        with own_ports(settings, ports_of(services)) as own:
            _print_moved(settings, own)
            if not supervisor.is_running(own):
                supervisor.stop(own)  # processes left by a crash would hold our ports
            ours = {process.name for process in supervisor.state(own) if process.pid is not None}
            require_free_ports(own, [port for port in ports_of(services) if port.program not in ours])
            with step("Java and its jars") as fetching:
                jars.ensure(own, jars_of(services), fetching.count)
            keep_format(own.home)
            _print_upgrade(own)
            yield own, registry


def _print_moved(before: Settings, own: Settings) -> None:
    """Prints the ports that were chosen now, since the usual ones are taken."""
    values = own.shown()
    moved = [f"{name} {values[name]}" for name, usual in before.shown().items() if values[name] != usual]
    if moved:
        said = f"The usual ports are taken, so these are used: {', '.join(moved)}"
        out.print(f"[green]✓[/] {said} [dim]{escape(f'kept in {ports_file(own.home)}')}[/]", soft_wrap=True)


def _print_upgrade(settings: Settings) -> None:
    """Prints which running processes get the code of another version, and what that may ask for."""
    if not (earlier := supervisord.earlier_versions(settings)):
        return
    running = [process.name for process in supervisor.state(settings) if process.pid and process.name in earlier]
    restarts = f": restarts {', '.join(running)}" if running else ""
    out.print(f"Twofold {max(earlier.values())} -> {version()}{escape(restarts)}.", soft_wrap=True)
    named = "A table whose code this version reads in another way is named below, and asks for a plan."
    out.print(f"[dim]{named}[/]", soft_wrap=True)


def restart_streams(settings: Settings, domains: Sequence[str], *, quietly: bool = False) -> None:
    """Restarts the running stream drivers of these domains, relays and outputs, so that they load the current code."""

    registry = running(settings)
    alive = {process.name for process in supervisor.state(settings) if process.pid is not None}
    for domain in domains:
        if driver_name(domain) in alive:
            find_cover().require(settings, registry.domain_topics(domain))
    alive -= {driver_name(domain) for domain in registry.domains if domain not in domains}
    for service in needed(settings, registry) if domains else ():
        for program in service.programs(settings, registry) if service.loads_code else ():
            if program.name in alive:
                with nullcontext() if quietly else step(f"{program.name}, with the new code"):
                    supervisor.replace(settings, program)


def _ensure_topics(settings: Settings, registry: Registry) -> None:
    """Creates the topics on the broker, and the ledgers, so that analysts can query each of them.

    Raises:
        BadDeclaration, BadSetting: what is personal in a topic is not encrypted, or its keys are missing.
    """
    from twofold.batch.ledgers.run_ledgers import Ledgers
    from twofold.infra.kafka.topic_admin import ensure_topics
    from twofold.status.ledgers import describe_ledgers
    from twofold.tables.refresh.events.topic_specs import specs

    find_cover().require(settings, registry.topics.values())
    ensure_topics(settings, specs(registry))
    Ledgers(Lake(settings)).ensure()
    describe_ledgers(Lake(settings))


def write_derived(settings: Settings, registry: Registry, *, quietly: bool = False) -> None:
    """Makes again what features derive from all tables: they, or their code, have changed."""
    for what, name in (each for feature in features() for each in feature.derived.items()):
        with nullcontext() if quietly else step(what):
            resolve_name(name)(settings, registry)

"""The demo: streams a domain's records, corrects and verifies its tables, on one screen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel

from twofold.cli.console import make_table, out, step
from twofold.cli.parsing import parse_date
from twofold.demo.run.live_view import LiveTraffic, feeding, moving
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, ProcessFailed, UnexplainedDifference, nearest
from twofold.infra.extras import require_extra
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown_duration

if TYPE_CHECKING:
    from twofold.demo.run.demo_report import Account, TableAccount
    from twofold.demo.run.followers import Followed
    from twofold.demo.traffic.sources import TrafficSource
    from twofold.status.observer import Observer
    from twofold.status.parts.snapshot import Snapshot
    from twofold.tables.declare.registry import Registry

TAIL = timedelta(days=3)
LOOK_S = 1.5
DRAIN_S = 600.0


def demo(
    domain: Annotated[str, typer.Argument(metavar="[DOMAIN]", help="A domain with a source: flights or shop.")] = (
        "flights"
    ),
    start: Annotated[str | None, typer.Option(help="First day; of flights, in New York.")] = None,
    days: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many days; three more follow, so that their rows close."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long the replay takes.", min=1)] = 30,
    steps: Annotated[
        str,
        typer.Option(
            metavar="STEP,...",
            help="How history is rewritten: replay: a misread day, from the archive; plan: another definition, applied "
            "and taken back; backfill: all rows again. none: not at all.",
        ),
    ] = "replay,plan,backfill",
) -> None:
    """Run the whole platform on a month of real flights or a week of a shop, then prove every table, row by row.

    Starts the platform with DOMAIN alone, sends its records with the delays and faults of a real source, lets Airflow
    reconcile and check, compares every table with what DuckDB makes of the source, and leaves the platform running.
    Outside of a project that has DOMAIN, it writes one: the folder twofold-demo.
    """
    require_extra("demo")
    from twofold.demo.run.demo_project import enter_project
    from twofold.demo.traffic.sources import source_of

    source = source_of(domain)
    first = parse_date(start, "--start") if start else source.DEMO[0]
    last = first + (timedelta(days=days) if days else source.DEMO[1] - source.DEMO[0])
    _require_source(source, first, last)
    chosen = _chosen(steps)
    folder = enter_project(domain)
    settings = Settings.from_environment()
    try:
        account = _run(settings, domain, first, last, seconds, chosen)
    except KeyboardInterrupt:
        out.print(f"Stopped. What was started runs on; {COMMAND} down stops it.")
        raise
    if not account.is_right:
        raise UnexplainedDifference(
            "The account does not add up: see the lines marked with ✗ above.", hint=f"The logs are in {settings.logs}."
        )
    if folder:
        out.print(f"Go on from its project: cd {folder.name}; README.md names commands.")


def _chosen(steps: str) -> list[str]:
    """Returns the names of steps; refuses others."""
    from twofold.demo.run.mission import STEPS

    chosen = [] if steps == "none" else [name.strip() for name in steps.split(",")]
    if strange := [name for name in chosen if name not in STEPS]:
        known = f"The steps are {', '.join(STEPS)}; or none."
        raise BadArgument(f"--steps: no step {strange[0]!r}.", hint=nearest(strange[0], STEPS, known))
    return chosen


def _run(settings: Settings, domain: str, start: date, end: date, seconds: float, steps: Sequence[str]) -> Account:
    from twofold.cli.commands.platform_commands import print_addresses
    from twofold.cli.platform_start import start_platform
    from twofold.demo.run.mission import run_steps
    from twofold.demo.traffic.sources import DATABASES, FOLLOWED, MISSIONS, source_of
    from twofold.infra.postgres.postgres_server import wait_ready

    began = time.monotonic()
    out.rule("[bold]1[/] Start the platform", align="left")

    def make_tables(settings: Settings, _: Registry) -> None:
        if database := DATABASES.get(domain):
            wait_ready(settings)
            database.create_tables(settings)

    def send(settings: Settings, registry: Registry) -> None:
        out.rule(f"[bold]2[/] Replay {source_of(domain).WHAT} through Kafka", align="left")
        _send_webhooks(settings, domain, start)
        replayed = MISSIONS[domain].topic if domain in MISSIONS and "replay" in steps else None
        _stream(settings, registry, domain, start, end, seconds, replayed)

    settings, registry = start_platform(settings, [domain], before={"connect": make_tables, "spark": send})
    out.rule("[bold]3[/] Let Airflow correct, recompute and check", align="left")
    unexplained = _correct(settings, domain)
    if domain in MISSIONS and steps:
        out.rule("[bold]4[/] Rewrite history, and take it back", align="left")
        run_steps(settings, domain, start, steps)
    out.rule("[bold]5[/] Prove it", align="left")
    with step("Compute every table from the source with DuckDB, compare row by row") as shown:
        from twofold.demo.run.demo_report import draw, record_proofs
        from twofold.infra.delta.lake import Lake

        account = draw(settings, registry, domain, unexplained, shown.count)
        record_proofs(Lake(settings), registry, account.tables)
    if domain in FOLLOWED:
        account = replace(account, followers=_followers(settings, registry, domain))
    print_account(account)
    out.print(f"[dim]The demo took {shown_duration(time.monotonic() - began)}.[/]")
    print_addresses(settings, registry)
    return account


def _require_source(source: TrafficSource, start: date, end: date) -> None:
    if start < source.FIRST_DAY or end + TAIL > source.LAST_DAY + timedelta(days=1):
        raise BadArgument(
            f"The demo needs the days from {start} to {end + TAIL}; "
            f"the source has {source.FIRST_DAY} to {source.LAST_DAY}.",
            hint="Choose another range; three days after it are replayed too, so that its rows close.",
        )


def _send_webhooks(settings: Settings, domain: str, day: date) -> None:
    from twofold.demo.traffic.sources import WEBHOOKS

    if domain in WEBHOOKS:
        taken = WEBHOOKS[domain].send(settings, day)
        out.print(f"[green]✓[/] Webhooks: {taken} taken, one sent again, one with a wrong signature refused")


def _stream(
    settings: Settings, registry: Registry, domain: str, start: date, end: date, seconds: float, replayed: str | None
) -> None:
    """Sends the records, and waits until every record is in the tables.

    The streams first catch up with the month; the days after it then bring the month's last late records.

    Args:
        replayed: the topic whose month is to be in the archive; the records of the days after it close its segments,
            which a month does not fill.
    """
    from twofold.infra.kafka.topic_admin import closing_segments
    from twofold.status.observer import Observer

    feed = LiveTraffic(settings, domain, start, end + TAIL, seconds, rest=end)
    observer = Observer(settings, registry)
    again = sum(topic.events or 0 for topic in observer.snapshot(save=False).topics)
    if again:
        out.print(f"{again:,} events are there already: what comes again must change nothing.")
    with feeding(feed) as thread, moving() as show, ExitStack() as until_sent:
        while thread.is_alive():
            if feed.rests:
                _drain(settings, observer, lambda now: show(feed, now), has_caught_up_with_topics)
                if replayed:
                    until_sent.enter_context(closing_segments(settings, replayed))
                feed.go_on()
            show(feed, observer.snapshot(save=False))
            time.sleep(LOOK_S)
        if feed.failure is not None:
            raise feed.failure
        copied = _copied(settings, domain)
        _drain(settings, observer, lambda now: show(feed, now), lambda now: has_caught_up(now) and copied())


def _copied(settings: Settings, domain: str) -> Callable[[], bool]:
    """Returns a function that checks whether each captured table has the rows of the database itself."""
    from twofold.demo.run.followers import not_forgotten
    from twofold.demo.traffic.sources import DATABASES
    from twofold.features.analysts.sql_query import Analyst
    from twofold.infra.delta.lake import Lake

    database, analyst = DATABASES.get(domain), Analyst(Lake(settings))
    if database is None:
        return lambda: True
    known = not_forgotten(settings, analyst, domain)

    def is_copied() -> bool:
        return all(
            Counter(analyst.rows(f"{select} FROM {domain}.{table} WHERE {known}"))
            == Counter(database.rows(settings, table, known))
            for table, select in database.ROWS.items()
        )

    return is_copied


def _drain(
    settings: Settings, observer: Observer, show: Callable[[Snapshot], None], is_done: Callable[[Snapshot], bool]
) -> None:
    """Waits until the streams have caught up at two checks in a row, since a table can have changed the next one."""
    deadline = time.monotonic() + DRAIN_S
    calm = 0
    while calm < 2:
        now = observer.snapshot(save=False)
        show(now)
        calm = calm + 1 if is_done(now) else 0
        if time.monotonic() > deadline:
            raise ProcessFailed(
                f"The streams have not caught up after {DRAIN_S:.0f} s: {_behind(now)}.",
                hint=f"The logs are in {settings.logs}.",
            )
        time.sleep(LOOK_S)


def has_caught_up(now: Snapshot) -> bool:
    """Whether every record is ingested, and every table has read every version of its inputs."""
    return all(topic.lag == 0 for topic in now.topics) and all(not query.behind for query in now.queries)


def has_caught_up_with_topics(now: Snapshot) -> bool:
    """Whether the tables that read only topics have caught up."""
    following = {table.name for table in now.tables if table.strategy == "touched"}
    queries = [query for query in now.queries if f"{query.domain}.{query.query}" not in following]
    return has_caught_up(replace(now, queries=queries))


def _behind(now: Snapshot) -> str:
    topics = [f"{topic.name} by {topic.lag} records" for topic in now.topics if topic.lag != 0]
    queries = [
        f"{query.query} by {query.behind} versions ({query.error or f'last progress at {query.updated_at:%H:%M:%S}'})"
        for query in now.queries
        if query.behind
    ]
    return ", ".join([*topics, *queries]) or "they go on"


def _correct(settings: Settings, domain: str) -> Mapping[str, int]:
    """Reconciles and recomputes every closed row, and checks the changes; returns unexplained differences by table."""
    from twofold.demo.run.dag_runs import run_after, run_dag, triggered_runs

    quality = f"{domain}.quality"
    earlier = triggered_runs(settings, quality)
    outcomes = run_dag(settings, f"{domain}.reconcile", {"verify": True}).result("look")
    if any(outcome["changed"] for outcome in outcomes):
        run_after(settings, quality, earlier)
    else:
        run_dag(settings, quality)
    corrected: dict[str, int] = {}
    for outcome in outcomes:
        corrected[outcome["table"]] = corrected.get(outcome["table"], 0) + int(outcome["unexplained"])
    return corrected


def _followers(settings: Settings, registry: Registry, domain: str) -> list[Followed]:
    from twofold.demo.run.followers import call_receiver, forget_person, hand_to_workers
    from twofold.demo.traffic.sources import FOLLOWED

    table, topic, of_persons, kind = FOLLOWED[domain]
    with step(f"Call a receiver for each row of {table}") as running:
        called = call_receiver(settings, registry.find_table(table), running.count)
    with step(f"Hand the records of {topic} to workers") as running:
        done = hand_to_workers(settings, topic, running.count)
    with step(f"Forget a {kind}"):
        forgotten = forget_person(settings, registry, of_persons, kind)
    return [called, done, forgotten]


def print_account(account: Account) -> None:
    """Prints the account as tables, with a mark before each line, even on the narrowest screen."""
    facts_of_topic = ["records", "acknowledged", "events", "quarantined", "missing", "repeated", "misjudged"]
    topics = ["log", "acked", "events", "bad", "missing", "twice", "misjudged"]
    out.print(
        make_table(
            "Events + quarantine = log, each offset once",
            ["", "topic", *topics],
            [
                (_mark(t.is_right), _bare(t.name), *(getattr(t, fact) for fact in facts_of_topic))
                for t in account.topics
            ],
            right=topics,
            spare=["acked"],
        )
    )
    heads = ["by stream", "late", "corrected", "unexplained", "compared", "differing"]
    facts = ["by_stream", "late", "corrected", "unexplained", "compared"]
    out.print(
        make_table(
            f"Tables, against DuckDB over the source of {account.start} to {account.end - timedelta(days=1)}",
            ["", "table", *heads],
            [
                (_mark(t.is_right), _bare(t.name), *(getattr(t, fact) for fact in facts), _differing(t))
                for t in account.tables
            ],
            right=heads,
            whole=["table"],
            spare=["by stream", "compared"],
        )
    )
    out.print(
        "[dim]Late: records later than their table's watermark, repeats among them. Compared: the closed rows. "
        "A wider screen also shows how many rows the stream left.[/]"
    )
    compared = sum(table.compared for table in account.tables)
    if account.is_right:
        out.print(
            Panel(
                f"All {compared:,} closed rows of {len(account.tables)} tables equal what DuckDB computes from the "
                "source alone.\nNo record is lost, none is there twice, no difference is unexplained.",
                border_style="green",
                expand=False,
            )
        )
    for copy in account.copies:
        differing = "not all are there" if copy.differing is None else f"{copy.differing:,} differ"
        out.print(
            f"{_mark(copy.is_right)} The {copy.rows:,} rows of {copy.name} "
            + (f"equal those of its copy in {copy.kind}." if copy.is_right else f"in {copy.kind}: {differing}."),
            soft_wrap=True,
        )
    for item in account.followers:
        out.print(f"{_mark(item.is_right)} {item.got:,} of {item.wanted:,} {item.what}.", soft_wrap=True)


def _differing(table: TableAccount) -> str:
    counts = {"missing": table.missing, "extra": table.extra, "changed": table.changed}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "0"


def _bare(name: str) -> str:
    """Removes the domain from a name."""
    return name.partition(".")[2]


def _mark(is_right: bool) -> str:
    return "[green]✓[/]" if is_right else "[bold red]✗[/]"

"""The command `traffic`: sends the records of a domain's source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import Json, make_table, out, print_json
from twofold.cli.parsing import parse_days, parse_speed, require_share
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from twofold.demo.traffic.producer import Progress, Summary


def traffic(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="A domain with a source: flights or shop.")],
    start: Annotated[str | None, typer.Option(help="First day; without it, the demo's.")] = None,
    end: Annotated[str | None, typer.Option(help="First day after the range; without it, the demo's.")] = None,
    speed: Annotated[
        str, typer.Option(metavar="max|N", help="As fast as the broker accepts it, or N times real time.")
    ] = "max",
    seed: Annotated[int, typer.Option(help="Seed of the random faults.")] = 2013,
    minutes: Annotated[float, typer.Option(metavar="SHARE", help="Records reported 1 to 45 minutes late.")] = 0.08,
    hours: Annotated[float, typer.Option(metavar="SHARE", help="Records reported 1 hour to 2 days late.")] = 0.015,
    duplicates: Annotated[float, typer.Option(metavar="SHARE", help="Records sent twice.")] = 0.01,
    corrupt: Annotated[float, typer.Option(metavar="SHARE", help="Extra corrupt records.")] = 0.005,
    as_json: Json = False,
) -> None:
    """Send a range of days to the topics of DOMAIN, with the delays and faults of a real source.

    Every acknowledgement of the broker goes to a journal, so that loss and duplication can be proven.
    """
    from twofold.demo.traffic.sources import source_of

    first, last = parse_days(start, end, source_of(domain).DEMO)
    times = parse_speed(speed)
    shares = {"--minutes": minutes, "--hours": hours, "--duplicates": duplicates, "--corrupt": corrupt}
    for option, share in shares.items():
        require_share(share, option)
    settings = Settings.from_environment()
    from twofold.demo.traffic.fault_injection import FaultInjection
    from twofold.demo.traffic.producer import run

    imperfections = FaultInjection(
        seed=seed, minutes_share=minutes, hours_share=hours, duplicate_share=duplicates, corrupt_share=corrupt
    )
    with _live(quiet=as_json) as show:
        summary = run(
            settings, domain=domain, start=first, end=last, speed=times, imperfections=imperfections, on_progress=show
        )
    if as_json:
        print_json(summary)
    else:
        print_summary(summary)


def print_summary(summary: Summary) -> None:
    """Prints the numbers of sent records, by topic and kind."""
    kinds = ["true", "duplicate", "corrupt"]
    rows = []
    for topic, counts in summary.acknowledged.items():
        by_kind = [sum(n for kind, n in counts.items() if kind.split(":")[0] == wanted) for wanted in kinds]
        rows.append((topic, *by_kind, sum(by_kind)))
    out.print(make_table(None, ["topic", *kinds, "records"], rows, right=[*kinds, "records"]))
    out.print(
        f"{summary.records:,} records in {shown_duration(summary.elapsed_s)}, all acknowledged; "
        f"{'' if summary.complete else 'stopped early; '}journal {escape(str(summary.journal))}",
        soft_wrap=True,
    )


@contextmanager
def _live(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    if quiet:
        yield None
        return
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn

    with Bar(SpinnerColumn(), TextColumn("{task.description}"), console=out, transient=True) as bar:
        task = bar.add_task("connecting")

        def show(progress: Progress) -> None:
            acknowledged = sum(progress.acknowledged.values())
            rate = acknowledged / progress.elapsed_s if progress.elapsed_s else 0.0
            reached = f"{progress.event_time:%Y-%m-%d %H:%M} UTC" if progress.event_time else "connecting"
            bar.update(task, description=f"{reached}  {acknowledged:,} records acknowledged, {rate:,.0f} a second")

        yield show

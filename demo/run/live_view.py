"""Sends traffic in the background and shows its effects live."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING

from rich.markup import escape

from twofold.cli.console import make_table, out
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown_age, shown_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twofold.demo.traffic.producer import Progress, Summary
    from twofold.status.parts.snapshot import QueryState, Snapshot

    Show = Callable[["LiveTraffic", Snapshot], None]

PRINT_S = 5.0
LINE = 80


@dataclass
class LiveTraffic:
    """The traffic of a domain, at the speed at which `[start, end)` takes `seconds`.

    Attributes:
        rest: the day at whose start it waits for a signal to continue, so that later late records are late for streams
            that have caught up.
    """

    settings: Settings
    domain: str
    start: date
    end: date
    seconds: float
    rest: date
    progress: Progress | None = None
    summary: Summary | None = None
    failure: BaseException | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    _go_on: threading.Event = field(default_factory=threading.Event)

    @property
    def reached(self) -> datetime | None:
        """The instant of the source that the traffic has reached; None before the first record."""
        return self.progress.event_time if self.progress else None

    @property
    def rests(self) -> bool:
        """Whether it waits for a signal to continue."""
        return self.reached is not None and self.reached.date() >= self.rest and not self._go_on.is_set()

    def go_on(self) -> None:
        """Continues the traffic after the pause, or skips the pause."""
        self._go_on.set()

    def run(self) -> None:
        from twofold.demo.traffic.fault_injection import FaultInjection
        from twofold.demo.traffic.producer import run

        try:
            self.summary = run(
                self.settings,
                domain=self.domain,
                start=self.start,
                end=self.end,
                speed=(self.end - self.start).total_seconds() / self.seconds,
                # More stragglers than usual, so that a month has a correction of every kind.
                imperfections=FaultInjection(hours_share=0.05),
                on_progress=self._keep,
                stop=self.stop,
            )
        except BaseException as error:
            self.failure = error

    def _keep(self, progress: Progress) -> None:
        """Stores the progress, and blocks the traffic during the pause."""
        self.progress = progress
        if self.rests:
            self._go_on.wait()


@contextmanager
def feeding(feed: LiveTraffic) -> Iterator[threading.Thread]:
    """Runs the traffic in a thread of its own; leaving the block ends it early."""
    thread = threading.Thread(target=feed.run, name="traffic")
    thread.start()
    try:
        yield thread
    finally:
        feed.stop.set()
        feed.go_on()
        thread.join()


@contextmanager
def moving() -> Iterator[Show]:
    """Yields a function that shows the state: a live picture on a terminal, else a line every few seconds."""
    if not out.is_terminal:
        printed: list[Snapshot] = []

        def show(feed: LiveTraffic, now: Snapshot) -> None:
            if not printed or (now.at - printed[-1].at).total_seconds() > PRINT_S:
                out.print(_line(feed, now, printed[-1] if printed else now), soft_wrap=True)
                printed[:] = [now]

        yield show
        return
    from rich.live import Live

    with Live(console=out, auto_refresh=False) as live:
        yield lambda feed, now: live.update(_picture(feed, now), refresh=True)


def _line(feed: LiveTraffic, now: Snapshot, before: Snapshot) -> str:
    """Formats the state in one line of at most 80 columns: the source's time, rates since `before`, and the backlog."""
    reached = f"{feed.reached:%Y-%m-%d %H:%M}" if feed.reached else "connecting"
    seconds = max(1.0, (now.at - before.at).total_seconds())
    sent = (_total(t.produced for t in now.topics) - _total(t.produced for t in before.topics)) / seconds
    ingested = (_total(t.ingested for t in now.topics) - _total(t.ingested for t in before.topics)) / seconds
    lag = _total(t.lag for t in now.topics)
    line = f"{reached}  sent {sent:,.0f}/s, ingested {ingested:,.0f}/s, lag {lag:,}"
    behind = sorted((q for q in now.queries if q.behind), key=lambda q: -(q.behind or 0))
    if not behind:
        return line
    line += f"; behind {len(behind)}"
    furthest = f": {behind[0].query}"
    return line + furthest if len(line + furthest) <= LINE else line


def _picture(feed: LiveTraffic, now: Snapshot) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from twofold.demo.traffic.sources import source_of
    from twofold.status.symptoms.diagnosis import symptoms_of

    reached = feed.reached.date() if feed.reached else feed.start
    share = (reached - feed.start) / (feed.end - feed.start)
    head = Table.grid(padding=(0, 2))
    done = feed.summary is not None
    what = (
        "all is sent, the streams take what is left"
        if done
        else f"{reached:%A, %d %B %Y} {source_of(feed.domain).WHERE}"
    )
    if feed.rests:
        what = "the streams catch up before the last stragglers come"
    head.add_row(ProgressBar(total=1, completed=1 if done else min(share, 1), width=30), what)
    freshness = next((q.freshness_s for q in now.queries if q.query == "ingest"), None)
    behind = {f"{q.domain}.{q.query}": q for q in now.queries}
    topics = make_table(
        None,
        ["topic", "produced", "ingested", "lag", "quarantined"],
        [(t.name, t.produced, t.ingested, t.lag, t.quarantined) for t in now.topics],
        right=["produced", "ingested", "lag", "quarantined"],
    )
    tables = make_table(
        None,
        ["table", "strategy", "rows", "late records", "corrected rows", "last micro-batch"],
        [(t.name, t.strategy, t.rows, t.late, t.corrections, _last(behind.get(t.name), now)) for t in now.tables],
        right=["rows", "late records", "corrected rows", "last micro-batch"],
        spare=["strategy"],
    )
    tail = f"[dim]events are visible {shown_duration(freshness)} after the broker has them[/]" if freshness else ""
    symptoms = [f"[yellow]![/] {escape(symptom.text)}" for symptom in symptoms_of(now)]
    return Group(head, topics, tables, *symptoms, tail)


def _last(query: QueryState | None, now: Snapshot) -> str | None:
    return f"{shown_age(query.updated_at, now.at)} ago" if query else None


def _total(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)

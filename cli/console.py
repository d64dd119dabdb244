"""Output of commands: tables for people, one JSON document for scripts."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twofold.infra.errors import TwofoldError
from twofold.infra.text.printable import document, harmless, shown, shown_duration

INTERRUPTED, READER_GONE = 130, 141  # the exit codes that a shell reports after SIGINT and SIGPIPE


class Screen(Console):
    """A console that never obeys control characters in data: every string passes `harmless` before layout."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(harmless(text), **options)

    def print(self, *objects: Any, crop: bool = False, **options: Any) -> None:
        """Prints; lines wider than the screen are left to the terminal instead of cut off."""
        super().print(*objects, crop=crop, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Ends like other programs whose reader, for example `head`, has closed the pipe."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        sys.exit(READER_GONE)


out = Screen(highlight=False, emoji=False)
err = Screen(stderr=True, highlight=False, emoji=False)


@dataclasses.dataclass
class OutputMode:
    """The output mode of this run of the command line."""

    json: bool = False
    debug: bool = False


def _want_json(context: typer.Context, value: bool) -> bool:
    if value:
        context.ensure_object(OutputMode).json = True
    return value


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.", callback=_want_json)]


def print_json(value: object) -> None:
    """Prints `value` to stdout as JSON, in the form of `infra.text.printable.document`."""
    typer.echo(harmless(document(value, indent=2)))


def print_error(error: TwofoldError, *, as_json: bool) -> None:
    """Prints the message and its hint on stderr, or as JSON on stdout if the result would have been JSON."""
    if as_json:
        print_json(
            {
                "error": error.message,
                "kind": type(error).__name__,
                "hint": error.hint,
                "retryable": error.retryable,
                "facts": error.facts,
            }
        )
        return
    err.print(f"[bold red]Error:[/] {escape(error.message)}", soft_wrap=True)
    if error.hint:
        err.print(f"[bold]Hint:[/] {escape(error.hint)}", soft_wrap=True)


def print_fault(fault: TwofoldError, outcome: str = "") -> None:
    """Prints one of several faults, with its hint, while the command continues; `outcome` says how."""
    out.print(f"[bold red]✗[/] {escape(f'{fault.message} {outcome}'.rstrip())}", soft_wrap=True)
    if fault.hint:
        out.print(f"  [bold]Hint:[/] {escape(fault.hint)}", soft_wrap=True)


def result_cell(value: object) -> str:
    """Formats a value of a result exactly, without rounding."""
    if value is None:
        return "[dim]null[/]"
    if isinstance(value, datetime):
        text = (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S.%f")
        return text.rstrip("0").rstrip(".")
    return escape(harmless(str(value), keep=""))


def make_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    spare: Sequence[str] = (),
) -> RenderableType:
    """Builds a table for people; columns in `right` hold numbers, those in `whole`, and the first, are not wrapped.

    Text cells may have markup; the caller must escape data. No word is ever broken: a table that does not fit the
    screen is shown row by row, with a line per column.

    Args:
        spare: columns that are left out, first ones first, until the others fit the screen.
    """
    cells = [[shown(value) for value in row] for row in rows]
    table = _laid_out(title, columns, cells, right, whole)
    if spare and needed_width(table) > out.width:
        kept = [n for n, column in enumerate(columns) if column != spare[0]]
        fewer, rest = [columns[n] for n in kept], [[row[n] for n in kept] for row in cells]
        return make_table(title, fewer, rest, right=right, whole=whole, spare=spare[1:])
    return table if needed_width(table) <= out.width else _one_by_one(title, columns, cells)


def _one_by_one(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """Lays out rows that are too wide for the screen, a line per column; long words are not broken."""
    width = max(map(len, columns))
    lines = [Text(title, "bold")] if title else []
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            lines.append(Text.assemble((f"{column:>{width}}  ", "dim"), out.render_str(cell)))
        lines.append(Text())
    for line in lines:
        line.no_wrap, line.overflow = True, "ignore"
    return Group(*lines)


def needed_width(table: RenderableType) -> int:
    """Returns the width of the screen that shows the table without loss."""
    return Measurement.get(out, out.options.update(max_width=10_000), table).minimum


def _laid_out(
    title: str | None,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Collection[str],
    whole: Collection[str],
) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1, 0, 0))
    for n, column in enumerate(columns):
        is_number, least = column in right, None
        head = column.replace(" ", "\n") if is_number else column
        if is_whole := is_number or n == 0 or column in whole:
            texts = [*head.split(), *(out.render_str(row[n]).plain for row in cells)]
            least = max(map(len, texts), default=0)
        justify: JustifyMethod = "right" if is_number else "left"
        table.add_column(head, justify=justify, overflow="fold", no_wrap=is_whole, min_width=least)
    for row in cells:
        table.add_row(*row)
    return table


LONG_S = 2.0
"""A step that takes longer shows for how long, and how far it is if it counts."""
_BAR = 16


class Running:
    """A step while it runs, as a line of a terminal.

    Attributes:
        what: it does; the line at its end says the last one.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.began = time.monotonic()
        self._done, self._total = 0, 0

    def count(self, done: int, total: int) -> None:
        """Shows that so many of its parts are done."""
        self._done, self._total = done, total

    def __rich__(self) -> RenderableType:
        took = time.monotonic() - self.began
        what = Text(harmless(self.what), no_wrap=True, overflow="ellipsis")
        if took < LONG_S:
            return what
        parts: list[RenderableType] = [what]
        if self._total:
            parts += [ProgressBar(self._total, self._done, width=_BAR), f"{self._done:,} of {self._total:,}"]
        line = Table.grid(padding=(0, 1))
        line.add_row(*parts, Text(shown_duration(took), "dim"))
        return line


@contextmanager
def step(what: str) -> Iterator[Running]:
    """Shows a step while it runs, and then its duration; the message of a failure is left to the error."""
    running = Running(what)
    try:
        # A status calls its text at each picture, so that seconds go on while the step waits.
        with out.status(running) if out.is_terminal else contextlib.nullcontext():
            yield running
    except BaseException:
        out.print(f"[red]✗[/] {escape(running.what)}")
        raise
    out.print(f"[green]✓[/] {escape(running.what)} [dim]{shown_duration(time.monotonic() - running.began)}[/]")

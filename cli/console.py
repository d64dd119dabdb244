"""Output of commands: tables for people, one JSON document for scripts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from infra.errors import TwofoldError

NOTHING = "–"
INTERRUPTED, READER_GONE = 130, 141  # the exit codes that a shell reports after SIGINT and SIGPIPE
_ACTS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")  # part of words in Persian and Hindi, and of emoji


def harmless(text: str, *, keep: str = "\n\t") -> str:
    r"""Replaces every character that a terminal obeys, instead of showing it, by its escape, `\u001b`.

    These are control characters, those that change the direction of writing, and invisible ones; a producer of records
    could otherwise hide or replace output on the screen, or write to the clipboard. The escapes are those of JSON, so
    that a JSON document keeps its meaning.

    Args:
        keep: control characters that stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if _acts(c) and c not in keep else c for c in text)


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTS and character not in _JOINERS


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


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
    """Prints `value` to stdout as JSON: dataclasses as objects, times in ISO 8601, any other type as text."""
    typer.echo(harmless(json.dumps(value, indent=2, default=_plain, ensure_ascii=False)))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


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


def shown(value: object) -> str:
    """Formats a value for people: `–` for None, thousands separators, times in UTC to the second."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


def shown_bytes(size: int | None) -> str:
    """Formats a size for people, in decimal units."""
    if size is None:
        return NOTHING
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1_000:
            break
        amount, unit = amount / 1_000, larger
    return f"{amount:,.1f} {unit}" if unit != "B" else f"{size} B"


def shown_duration(seconds: float | None) -> str:
    """Formats a duration: `0.4 s`, `3 min 20 s`, `2 h 05 min`, `4 days`."""
    if seconds is None:
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} days"


def shown_age(then: datetime, now: datetime) -> str:
    """Formats an age as a duration."""
    return shown_duration((now - then).total_seconds())


@contextmanager
def step(what: str) -> Iterator[None]:
    """Shows a step while it runs, and then its duration; the message of a failure is left to the error."""
    began = time.monotonic()
    try:
        with out.status(what) if out.is_terminal else contextlib.nullcontext():
            yield
    except BaseException:
        out.print(f"[red]✗[/] {escape(what)}")
        raise
    out.print(f"[green]✓[/] {escape(what)} [dim]{shown_duration(time.monotonic() - began)}[/]")

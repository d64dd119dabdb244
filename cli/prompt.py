"""The interactive SQL prompt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.markup import escape

from cli.query import Analyst
from cli.screen import out, print_error
from infra.errors import BadArgument

GREETING = "DuckDB over {tables} Delta tables. End a statement with ; — .tables lists them, .quit leaves."
FIRST, FURTHER = "twofold> ", "    ...> "


def talk(analyst: Analyst, history: Path, show: Callable[[str], None]) -> None:
    """Read statements until `.quit` or the end of input.

    Args:
        history: where the lines typed are kept between sessions.
        show: runs one statement and prints its result.
    """
    out.print(escape(GREETING.format(tables=len(analyst.names))), style="dim")
    with _line_editing(history, analyst.names):
        pending = ""
        while True:
            try:
                line = input(FURTHER if pending else FIRST)
            except EOFError:
                out.print()
                return
            except KeyboardInterrupt:
                out.print()
                pending = ""
                continue
            if not pending and line.strip().startswith("."):
                if _command(line.strip(), analyst):
                    return
                continue
            pending += line + "\n"
            if line.rstrip().endswith(";"):
                statement, pending = pending, ""
                with _survived(), analyst.interruptible():
                    show(statement)
            elif not pending.strip():
                pending = ""


@contextlib.contextmanager
def _survived() -> Iterator[None]:
    """A mistake, or Ctrl-C, ends the statement and not the session."""
    try:
        yield
    except BadArgument as error:
        print_error(error, as_json=False)
    except KeyboardInterrupt:
        out.print("Cancelled.")


def _command(line: str, analyst: Analyst) -> bool:
    """Obey a dot command; whether it ends the session."""
    if line in (".quit", ".exit"):
        return True
    if line == ".tables":
        out.print("\n".join(analyst.names) or "There is no table yet.")
    else:
        out.print("The commands are .tables and .quit; everything else is SQL that ends with a ;")
    return False


@contextlib.contextmanager
def _line_editing(history: Path, words: list[str]) -> Iterator[None]:
    try:
        import readline
    except ImportError:
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(1_000)
    readline.set_completer_delims(" \t\n,()=")
    readline.set_completer(lambda text, n: next(iter([w for w in words if w.startswith(text)][n : n + 1]), None))
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

"""The interactive SQL prompt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.markup import escape

from twofold.cli.console import out, print_error
from twofold.features.analysts.sql_query import Analyst
from twofold.infra.errors import BadArgument

GREETING = "DuckDB over {tables} Delta tables. End a statement with a semicolon; help explains, quit leaves."
HELP = """\
help, .help      this
tables, .tables  the names of the tables
quit, .quit      leave; Ctrl-D does, too
Everything else is SQL, over as many lines as you like, and ends with a ; for example:
    FROM flights.delays_by_hour LIMIT 5;
    DESCRIBE flights.delays_by_hour;
Tab completes names of tables and columns, arrow up brings back earlier lines, Ctrl-C ends a statement."""
FIRST, FURTHER = "twofold> ", "    ...> "


def talk(analyst: Analyst, history: Path, show: Callable[[str], None]) -> None:
    """Reads statements until `.quit` or the end of input.

    Args:
        history: the file that keeps typed lines between sessions.
        show: runs one statement and prints its result.
    """
    out.print(escape(GREETING.format(tables=len(analyst.names))), style="dim")
    with _line_editing(history, words(analyst)):
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
            if not pending and (line.strip().startswith(".") or line.strip() in ("help", "tables", "quit", "exit")):
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
    """Ends only the statement, not the session, after a mistake or Ctrl-C."""
    try:
        yield
    except BadArgument as error:
        print_error(error, as_json=False)
    except KeyboardInterrupt:
        out.print("Cancelled.")


def _command(line: str, analyst: Analyst) -> bool:
    """Runs a dot command; returns whether it ends the session."""
    word = line.removeprefix(".")
    if word in ("quit", "exit"):
        return True
    if word == "tables":
        out.print("\n".join(analyst.names) or "There is no table yet.")
    else:
        out.print(escape(HELP))
    return False


def words(analyst: Analyst) -> list[str]:
    """Lists the words that Tab completes: tables by full and bare name, columns, words of SQL; each once, sorted."""
    columns = "SELECT column_name FROM duckdb_columns() WHERE NOT internal"
    bare = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'"
    names = analyst.rows(f"{columns} UNION {bare} UNION SELECT keyword_name FROM duckdb_keywords()")
    return sorted({*analyst.names, *(str(name) for (name,) in names)})


def matching(text: str, known: Sequence[str]) -> list[str]:
    """Returns the words that begin with the text, ignoring case; they are in the case of the text."""
    matches = [word for word in known if word.lower().startswith(text.lower())]
    return [word.upper() for word in matches] if text.isupper() else matches


@contextlib.contextmanager
def _line_editing(history: Path, known: list[str]) -> Iterator[None]:
    try:
        import readline
    except ImportError:
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(1_000)
    readline.set_completer_delims(" \t\n,()=")
    readline.set_completer(lambda text, n: next(iter(matching(text, known)[n : n + 1]), None))
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

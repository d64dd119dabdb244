"""Writes the pages that are made from the code: `.venv/bin/python -m docs.generate`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from infra.settings import ROOT

DOCS = ROOT / "docs"
DECISION = re.compile(r"# (?P<number>\d{4}) (?P<title>.+)\n\nStatus: (?P<status>\w+), (?P<date>[\d-]+)\.\n(?P<rest>.*)")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def decisions(folder: Path = DOCS / "adr") -> str:
    """The index of the decisions."""
    rows, amended = [], dict[str, list[str]]()
    for path in sorted(folder.glob("[0-9]*.md")):
        head = DECISION.match(path.read_text("utf-8"))
        if head is None:
            raise ValueError(f"{path}: expected '# NNNN Title', an empty line, 'Status: accepted, YYYY-MM-DD.'")
        rows.append([head["number"], f"[{head['title']}]({path.name})", head["status"], head["date"]])
        for how, what in re.findall(r"(Amends|Supersedes) (.+?):", head["rest"]):
            for number in re.findall(r"\[(\d{4})\]", what):
                verb = "amended" if how == "Amends" else "superseded"
                amended.setdefault(number, []).append(f"{verb} by [{head['number']}]({path.name})")
    return (
        "# Decisions\n\n"
        "Why Twofold is built this way. Each page ends with what a change must not break. A new decision takes the\n"
        "next number; `.venv/bin/python -m docs.generate` adds it to this index.\n\n"
        + table(["", "decision", "status", "date", "later"], [[*r, ", ".join(amended.get(r[0], []))] for r in rows])
        + "\n"
    )


PAGES: dict[str, Callable[[], str]] = {"adr/README.md": decisions}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()

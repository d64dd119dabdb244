"""Describes a plan in sentences and tables, for a terminal, Markdown or a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twofold.batch.plan.plan import Plan, TableChange
from twofold.infra.instants import from_epoch_ms

_DAYS = 14  # that a table of days has room for
_VALUE = 60  # characters of a value


@dataclass(frozen=True)
class Section:
    """A table in the description of a plan: its title, its columns, and the first rows of `total`, as texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: int
    unit: str = "columns"

    @property
    def added(self) -> Sequence[Sequence[str]]:
        """The rows about columns that the platform adds, without one that names its row."""
        at = list(self.columns).index("column") if "column" in self.columns else 0
        return [row for row in self.rows if row[at].startswith("_") and not (at and row[0])]

    def note(self, rows: Sequence[Sequence[str]]) -> str:
        """Says that these rows are only the first of all; a row with an empty first cell continues the one above."""
        shown = sum(bool(row[0]) for row in rows)
        return f"{shown:,} of {self.total:,} {self.unit}" if shown < self.total else ""


def sentence(change: TableChange) -> str:
    """Writes how many rows of a table and of its outputs change, and which are not in the plan as they are open."""
    closed_ms = None if change.is_below else change.info.get("watermark_ms")
    closed = f"{from_epoch_ms(int(closed_ms)):%Y-%m-%d %H:%M}" if closed_ms else ""
    left = f" Its stream computes the rows that close at {closed} or later." if closed else ""
    changed = ", ".join(f"{name} {rows:,}" for name, rows in change.outputs.items() if rows)
    outputs = f" Changed rows of its outputs: {changed}." if changed else ""
    return f"{change.table}: {_what(change)}.{left}{outputs}"


def _what(change: TableChange) -> str:
    if change.replaces:
        columns = "; ".join(f"{kind}: {', '.join(texts)}" for kind, texts in change.summary.get("schema", {}).items())
        return f"all {change.rows_before:,} rows are replaced, {columns}: {_parts(change)}"
    if not change.changed:
        return f"no row changes; its {change.rows_before:,} rows are accepted as they are"
    return f"{change.changed:,} of {change.rows_before:,} rows change: {_parts(change)}"


def _parts(change: TableChange) -> str:
    unchanged = change.rows_before - change.updated - change.deleted
    counts = {"+": (change.inserted, "added"), "-": (change.deleted, "removed"), "~": (change.updated, "changed")}
    return ", ".join(
        f"{sign}{rows:,} {word}" for sign, (rows, word) in (counts | {"=": (unchanged, "unchanged")}).items()
    )


def sections(change: TableChange) -> Iterator[Section]:
    """Yields the sections that show the change of one table, most important first."""
    summary = change.summary
    if totals := summary.get("totals"):
        sums = [(t["column"], _value(t["before"]), _value(t["after"])) for t in totals]
        yield Section("Sums of all rows", ["column", "before", "after"], sums, len(sums))
    if segments := summary.get("segments"):
        shares = [(f"{s['column']}={_value(s['value'])}", f"{s['share']:.0%}", f"{s['of_all']:.0%}") for s in segments]
        yield Section("Where it is concentrated", ["rows with", "of the changed", "of all"], shares, len(shares))
    if days := summary.get("days"):
        counts = [
            (str(d["day"]), *(f"{d[kind]:,}" for kind in ("inserted", "deleted", "updated"))) for d in days[:_DAYS]
        ]
        yield Section("By day", ["day", "added", "removed", "changed"], counts, len(days), "days")
    if columns := summary.get("columns"):
        rows = [
            (c["column"], f"{c['rows']:,}", f"{c['rows'] / change.updated:.0%}", _pair(c["before"], c["after"]))
            for c in columns
        ]
        yield Section("By column", ["column", "rows", "of the changed", "for example"], rows, len(rows))
    if samples := summary.get("samples"):
        rows = [line for sample in samples for line in _lines(sample)]
        yield Section("Rows", ["row", "", "column", "was -> becomes"], rows, change.changed, "rows")


_SIGNS = {"insert": "+", "delete": "-", "update": "~"}


def _lines(sample: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    key = " ".join(f"{column}={_value(value)}" for column, value in sample["key"].items())
    sign, values = _SIGNS[sample["change"]], sample["values"]
    if sample["change"] == "update":
        for number, (column, (was, becomes)) in enumerate(values.items()):
            yield ("" if number else key, "" if number else sign, column, _pair(was, becomes))
        return
    side = 1 if sample["change"] == "insert" else 0
    yield key, sign, "", ", ".join(f"{column}={_value(pair[side])}" for column, pair in values.items())


def impact(plan: Plan) -> list[str]:
    """Writes a sentence for each table, those below last."""
    about = [sentence(change) for change in plan.changes if not change.is_below]
    return about + [f"Below: {sentence(change)}" for change in plan.changes if change.is_below]


def heading(plan: Plan) -> str:
    """Writes the title of a plan, in one line."""
    return shlex.join(plan.command)


def markdown(plan: Plan) -> str:
    """Writes the whole description as Markdown, for a merge request or an approval."""
    lines = [f"**{heading(plan)}**, plan `{plan.id}`", ""]
    lines += [f"- {text}" for text in (*plan.notes, *impact(plan))]
    if not plan.changes:
        lines.append(f"Nothing would change; {plan.compared:,} rows were compared.")
    for change in plan.changes:
        for section in sections(change):
            lines += ["", f"{change.table}: {section.title.lower()}", ""]
            lines += [_row(section.columns), _row(["---"] * len(section.columns)), *map(_row, section.rows)]
            lines += ["", note] if (note := section.note(section.rows)) else []
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _pair(was: object, becomes: object) -> str:
    return f"{_value(was)} -> {_value(becomes)}"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.2f}"
    text = "nothing" if value is None else str(value).replace("+00:00", "Z")
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}…"

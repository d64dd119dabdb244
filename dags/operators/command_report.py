"""Parses the JSON report of a command about each table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from twofold.infra import COMMAND
from twofold.infra.errors import ProcessFailed


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """One element of the list that `reconcile`, `backfill` and `replay` print with `--json`.

    Attributes:
        touched: input rows that could have changed the table.
        scopes: groups of rows that were recomputed.
        changed: rows inserted, updated or deleted.
        pending: touched scopes that wait until the stream has closed their rows.
        corrected: lines about the first rows that it changed.
        days: of the rows that it changed, like `2013-01-05`.
        unexplained: differences that no touched row explains; they are not changed.
    """

    table: str
    cause: str
    run: str
    touched: int
    scopes: int
    inserted: int
    updated: int
    deleted: int
    changed: int
    pending: int
    unexplained: int
    version_before: int | None
    version_after: int | None
    corrected: list[str]
    days: list[str]


def read_reports(document: object) -> list[TableReport]:
    """Parses the reports in the result of a command, in its order.

    Raises:
        ProcessFailed: the result is something else; the command and these DAGs are of different versions.
    """
    names = [field.name for field in fields(TableReport)]
    if not isinstance(document, list) or not all(isinstance(e, Mapping) and set(names) <= set(e) for e in document):
        raise ProcessFailed(
            f"The command's result is no list of objects with {', '.join(names)}: {str(document)[:200]}",
            hint=f"Do `{COMMAND}` and the DAGs come from the same version?",
        )
    return [TableReport(**{name: element[name] for name in names}) for element in document]


def of_table(reports: Iterable[TableReport], full_name: str) -> list[TableReport]:
    return [report for report in reports if report.table == full_name]


def changed_tables(reports: Iterable[TableReport]) -> list[str]:
    """Returns the full names of the tables whose rows changed, each once."""
    return list(dict.fromkeys(report.table for report in reports if report.changed))

"""Symptoms of records and rows, and of the code that makes them."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.status.parts.snapshot import Snapshot
from twofold.status.symptoms.symptom import Case, kind


@kind("failed", "`{twofold} acknowledge` notes who knows of it, and ends this alarm.", "acknowledge", watched=True)
def records_lost(now: Snapshot) -> Iterator[Case]:
    """Finds records that exist nowhere any more, which no one has acknowledged."""
    return (Case(gap.topic, str(gap)) for gap in now.open_gaps)


@kind(
    "failed",
    "`{twofold} why {subject} KEY=VALUE` says what wrote it; `{twofold} reconcile {subject} --repair` overwrites them.",
    "reconcile {subject} --repair",
)
def rows_unexplained(now: Snapshot) -> Iterator[Case]:
    """Finds tables with rows that differ from what their inputs give, by the last audits."""
    for table in now.tables:
        if table.audit and table.audit.unexplained:
            rows = f"{table.audit.unexplained:,} rows"
            yield Case(table.name, f"{table.name}: audits found {rows} that nothing explains")


@kind("failed", "Correct the file, then `{twofold} up`.", "check")
def declaration_refused(now: Snapshot) -> Iterator[Case]:
    """Finds declarations that are left out, with what reads them."""
    return (Case(name, fault.message, fault.hint) for name, fault in now.refused.items())


@kind("unknown", "Add what it lacks; `{twofold} plan {domain}` says what that changes.", "check")
def declaration_unproved(now: Snapshot) -> Iterator[Case]:
    """Finds tables that go on with their code, though a new one like it is refused."""
    return (Case(name, text) for name, text in now.unproved.items())


@kind("unknown", "`{twofold} plan {domain}` says what the accepted code changes.", "plan {domain}")
def code_unaccepted(now: Snapshot) -> Iterator[Case]:
    """Finds topics and tables with rows that are not known to be of their accepted code."""
    return (Case(name, f"{name}: not all rows are known to be of the accepted code") for name in now.of_other_code)

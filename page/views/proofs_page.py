"""The page of proofs: each table by day, and what was proven of it; a day without a proof is grey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from infra.delta.lake import Lake
from page.known import Known
from status.proofs import Proof, proof_days
from status.snapshot import TableState

DAYS = 28


@dataclass(frozen=True, kw_only=True)
class ProofLine:
    """A table with a proof, or None, for each day."""

    table: TableState
    days: Sequence[tuple[date, Proof | None]]


def proof_lines(known: Known, lake: Lake) -> list[ProofLine]:
    """Returns all tables: those with unexplained rows first, then those whose last full proof is oldest."""
    today = known.now.at.date()
    days = [today - timedelta(days=DAYS - 1 - n) for n in range(DAYS)]
    since = known.now.at.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    proofs = proof_days(lake, since)
    lines = [
        ProofLine(table=table, days=[(day, proofs.get(table.name, {}).get(day)) for day in days])
        for table in known.now.tables
    ]
    return sorted(lines, key=_urgency)


def _urgency(line: ProofLine) -> tuple[int, float, str]:
    audit = line.table.audit
    since = audit.all_since.timestamp() if audit and audit.all_since else 0.0
    return (-(audit.unexplained if audit else 0), since, line.table.name)

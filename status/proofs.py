"""When each table and topic was proven: audits and repairs by day, from the ledger of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from twofold.batch.ledgers.run_result import RUNS
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.lake import Lake
from twofold.infra.instants import epoch_ms
from twofold.tables.refresh.events.record_decoder import TIMESTAMP
from twofold_algebra.sql.names import DATAFUSION

OF_TABLES = ("audit", "repair")
OF_TOPICS = {
    "audit_offsets": "each offset once",
    "audit_log": "as the log has it",
    "audit_database": "as the database has it",
}
"""What an audit proves of a topic, by its name in the ledger."""
_COLUMNS = ("table", "cause", "recorded_at", "rows", "unexplained", "turns")


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The audits of a table, or those of a topic of one kind, on one day.

    Attributes:
        audits, repairs: how many there were.
        rows: the number of rows that audits compared, one that several compared counts each time.
        unexplained: the number of rows that differed without a cause, by the last audit or repair of the day.
        is_whole: whether an audit compared all rows at once.
    """

    audits: int
    repairs: int
    rows: int
    unexplained: int
    is_whole: bool


def proof_days(lake: Lake, since: datetime) -> dict[tuple[str, str], Mapping[date, Proof]]:
    """Returns the proofs by day (UTC) since a moment; days without an audit or repair are left out.

    Returns:
        Name of a table or topic, and a kind of `OF_TOPICS`, for tables `audit` -> its days.
    """
    if not lake.exists(RUNS):
        return {}
    moment = DATAFUSION.moment(TIMESTAMP, epoch_ms(since) or 0)
    causes = DATAFUSION.literals([*OF_TABLES, *OF_TOPICS])
    rows = select(lake.open(RUNS), _COLUMNS, f"cause IN ({causes}) AND recorded_at >= {moment}")
    runs = defaultdict[tuple[str, str], dict[date, list[Mapping[str, object]]]](dict)
    for run in rows.sort_by("recorded_at").to_pylist():
        kind = OF_TABLES[0] if run["cause"] in OF_TABLES else run["cause"]
        runs[run["table"], kind].setdefault(run["recorded_at"].date(), []).append(run)
    return {key: {day: _proof(some) for day, some in days.items()} for key, days in runs.items()}


def _proof(runs: list[Mapping[str, object]]) -> Proof:
    """Summarizes the audits and repairs of a day, given oldest first."""
    audits = [run for run in runs if run["cause"] != "repair"]
    return Proof(
        audits=len(audits),
        repairs=len(runs) - len(audits),
        rows=sum(int(str(run["rows"] or 0)) for run in audits),
        unexplained=int(str(runs[-1]["unexplained"] or 0)),
        is_whole=any(run["turns"] == 1 for run in audits),
    )

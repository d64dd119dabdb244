"""Records one batch run on a table; the only writer of the ledgers of causes, corrections and runs."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from twofold.batch.ledgers.causes import CausingRecord
from twofold.batch.ledgers.reconcile_position import ReconcilePosition
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Cause, RunResult, run_name
from twofold.infra.delta.delta_writer import Written
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.table import Table

_log = logging.getLogger("twofold.run")


class Run:
    """A batch run: create it before the table is read; `end` records the published changes.

    If a run dies in between, the next one records it, from its commits.

    Attributes:
        name: sorts by time.
        version: of the table at the start: restoring it undoes the run.
    """

    def __init__(
        self,
        lake: Lake,
        ledgers: Ledgers,
        table: Table | str,
        cause: Cause,
        run: str = "",
        version: int | None = None,
    ) -> None:
        """Begins the run.

        Args:
            table: the table, or the name of one of a topic's two tables, whose rows have no corrections.
            run: the name, if the run covers several tables.
            version: of the table when the run began; None: as it is now.
        """
        self._ledgers, self._table, self._cause = ledgers, table, cause
        self._of = table if isinstance(table, str) else table.full_name
        self.name = run or run_name(cause)
        self.version = lake.version(self._of) if version is None else version
        self._began = time.monotonic()

    @property
    def info(self) -> dict[str, Any]:
        """The information that its commits carry."""
        return {"cause": self._cause, "run": self.name, "before": self.version}

    def note_causes(self, evidence: Sequence[CausingRecord]) -> None:
        """Records, before anything is published, the records that cause the run."""
        self._ledgers.record_evidence(self.name, self._of, evidence)

    def end(
        self,
        written: Written,
        *,
        position: ReconcilePosition | None = None,
        keep: bool = False,
        definition: str | None = None,
        **counts: Any,
    ) -> RunResult:
        """Records the corrections, and the run if it changed something.

        Args:
            position: the start of the next reconcile.
            keep: record the run even if it changed nothing.
            definition: the fingerprint by which the rows are computed now; None: that of the table, if it has one.
            counts: of `RunResult`.
        """
        own = ""
        if isinstance(self._table, Table):
            self._ledgers.record_corrections(self._table)
            own = fingerprint(self._table)
        outcome = RunResult(
            table=self._of,
            cause=self._cause,
            run=self.name,
            seconds=time.monotonic() - self._began,
            **counts,
        ).publishing(written, self.version)
        if outcome.changed or keep or position:
            self._ledgers.record_run(outcome, position, own if definition is None else definition)
        _log.info("run=%s table=%s changed=%d", self.name, outcome.table, outcome.changed)
        return outcome


def record_lost_runs(lake: Lake, ledgers: Ledgers, table: Table) -> None:
    """Records the corrections and runs of dead processes, from their commits to the table."""
    for name, commits in ledgers.unrecorded_runs(table).items():
        first, last = commits[0], commits[-1]
        lost = Run(lake, ledgers, table, first.info["cause"], name, int(first.info.get("before", first.version - 1)))
        corrections = ledgers.corrections(table.full_name, lost.version, last.version)
        rows = Counter(correction["change"] for correction in corrections if correction["run"] == name)
        written = Written(
            inserted=rows["insert"],
            updated=rows["update"],
            deleted=rows["delete"],
            files=sum(len(commit.added) for commit in commits),
            version=last.version,
        )
        lost.end(written, keep=True, definition=str(last.info.get("fingerprint") or ""))

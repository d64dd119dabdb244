"""One run of batch work on a table: the only writer of the ledgers of causes, corrections and runs."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from batch.ledgers.causes import CausingRecord
from batch.ledgers.reconcile_position import ReconcilePosition
from batch.ledgers.run_ledgers import Ledgers
from batch.ledgers.run_result import Cause, RunResult, run_name
from infra.delta.delta_writer import Written
from infra.delta.lake import Lake
from tables.declare.code_fingerprint import fingerprint
from tables.declare.table import Table

_log = logging.getLogger("twofold.run")


class Run:
    """Begins when it is made, before the table is read; what it published is noted when it ends.

    A run that dies in between is noted by the next one, from what its commits say.

    Attributes:
        name: sorts by time.
        version: of the table when it began: restoring it undoes the run.
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
        """Args:
        table: or the name of one of a topic's two tables, whose rows have no corrections.
        run: the name, where the run is one on several tables.
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
        """Keep, before anything is published, why the run touches the table."""
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
        """Note the corrections, then the run where it changed something.

        Args:
            position: where the next reconcile begins.
            keep: note the run though it changed nothing.
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
    """Note what runs that died have published into the table: their corrections, and the runs themselves."""
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

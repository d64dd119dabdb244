"""Stores a plan: the row changes of a rewrite of history, so that exactly these can be published later."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from twofold.batch.ledgers.causes import CausingRecord
from twofold.batch.ledgers.run_result import Cause
from twofold.infra import COMMAND
from twofold.infra.atomic_write import write_atomically
from twofold.infra.duckdb_session import parquet
from twofold.infra.errors import BadArgument, ProcessFailed
from twofold.infra.process.file_locks import exclusive
from twofold.infra.project.settings import Settings
from twofold.infra.rows.rows import are_here
from twofold.tables.refresh.acceptance import Accepted
from twofold.tables.refresh.json_values import to_plain_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.rows.rows import Rows

LASTS = timedelta(days=3)
FORMAT = 3
"""Grows when plans that were made before cannot be published by this code any more."""
_KEPT = timedelta(days=30)
"""How long a plan that was published, discarded or has expired can still be looked at."""

_PATIENCE_S = 60.0  # for another publication to end


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """The changes of a plan in one Delta table: a declared table, or the events or the quarantine of a topic.

    Attributes:
        cause: in the ledger of runs.
        version: of the table from which the difference was computed.
        rows_before: rows that the table had then.
        replaces: all rows and the columns are replaced; the stored rows are the whole new table.
        is_below: the rewrite is about a table that this one reads.
        creates: the table is new.
        before, fact: the accepted code of the rows when the plan was made, and after it is published; None, both: the
            plan does not change it.
        definition: fingerprint by which the rows were computed; of a topic's tables, that of its decoding.
        inputs: input -> version that was read; inputs that the plan changes are left out.
        info: the info of the commit.
        counts: of `RunResult`.
        digest: of the bytes of the stored rows.
        summary: of the difference, see `batch.plan.difference_summary`.
        outputs: output -> rows of it that change.
    """

    table: str
    cause: Cause
    version: int
    rows_before: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    replaces: bool = False
    is_below: bool = False
    creates: bool = False
    before: Accepted | None = None
    fact: Accepted | None = None
    definition: str = ""
    inputs: Mapping[str, int] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted

    @property
    def accepts_other_code(self) -> bool:
        """Whether publication changes the accepted code of the rows."""
        return self.before is not None and self.fact is not None and self.before.code != self.fact.code

    @property
    def is_lowered(self) -> bool:
        """Whether its rows are of code that is not accepted, while the accepted code stays valid for other rows."""
        return self.fact is not None and not self.accepts_other_code and self.fact.code != self.definition

    @property
    def is_whole_already(self) -> bool:
        """Whether all rows were of the accepted code when the plan was made."""
        return self.before is not None and self.before.is_whole and not self.accepts_other_code

    @property
    def days(self) -> list[str]:
        """The days of the rows, like `2013-01-05`, if they have a time."""
        return [str(of_day["day"]) for of_day in self.summary.get("days") or ()]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The changes of a rewrite of history, table by table, in the order in which they are published.

    Attributes:
        id: cause, time and digest: to approve an id is to approve exactly these rows.
        command: the command that would have published it at once, as arguments of `twofold`.
        who, why: its author and the reason.
        asked_in: DAG and run of Airflow that made it and ask for its approval, with a space between; empty: none.
        notes: further remarks, a line each.
        sample: the sample of rows that it covers; empty: all rows. A plan of a sample cannot be published.
        asks: more rows of a table change than its `approve_above`.
        compared: the number of rows that the rewrite has compared with their recomputation, if counted.
        begun_at, published_at, discarded_at: the times of these events, if they have happened.
        begun: table -> its version at `begun_at`; `left`: table -> number of rows that others changed before.
        done: the number of completed steps of the publication, see `batch.plan.steps`.
        approved_by, because: the person who approved it and the reason.
        format: of the stored plan, see `FORMAT`.
    """

    id: str
    cause: Cause
    command: Sequence[str]
    created_at: datetime
    expires_at: datetime
    who: str = ""
    why: str = ""
    changes: Sequence[TableChange] = ()
    notes: Sequence[str] = ()
    sample: str = ""
    asks: bool = True
    compared: int = 0
    begun_at: datetime | None = None
    published_at: datetime | None = None
    discarded_at: datetime | None = None
    approved_by: str = ""
    because: str = ""
    asked_in: str = ""
    format: int = 1
    begun: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    done: int = 0

    @property
    def changed(self) -> int:
        """The number of changed rows of all tables."""
        return sum(change.changed for change in self.changes)

    @property
    def again(self) -> str:
        """The command that makes the plan again, in backticks."""
        own = self.command[0] in ("plan", "rebuild")  # they make plans and nothing else
        return f"`{COMMAND} {shlex.join(self.command)}{'' if own else ' --preview'}`"

    @property
    def run(self) -> str:
        """The name of its run in the ledger."""
        return self.id.rpartition("-")[0]

    def state(self, now: datetime) -> str:
        """Returns the state in one word: open, begun, published, discarded, expired, sample."""
        if self.sample:
            return "sample"
        if self.published_at:
            return "published"
        if self.discarded_at:
            return "discarded"
        if self.begun_at:
            return "begun"
        return "expired" if now >= self.expires_at else "open"


class Plans:
    """The plans of a home, one folder each; an unfinished folder is no plan."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.plans
        self._lock = settings.home / "run" / "plans.lock"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the plans, so that no other process publishes or discards one.

        Raises:
            ProcessFailed: another process publishes a plan. Retryable by hand.
        """
        with exclusive(self._lock, _PATIENCE_S) as is_ours:
            if not is_ours:
                raise ProcessFailed(
                    "Another process publishes a plan.", hint="Wait until it has ended, then try again."
                )
            yield

    def all(self) -> list[Plan]:
        """Lists the plans, newest first."""
        names = [file.parent.name for file in self.folder.glob("*/plan.json")]
        return sorted(map(self._read, names), key=lambda plan: plan.created_at, reverse=True)

    def find(self, name: str) -> Plan:
        """Finds the plan with this id or prefix of an id.

        Raises:
            BadArgument: no plan matches, or several do.
        """
        ids = sorted(plan.id for plan in self.all() if plan.id.startswith(name) and name)
        if len(ids) == 1 or name in ids:
            return self._read(name if name in ids else ids[0])
        raise BadArgument(
            f"{len(ids)} plans begin with {name!r}: {', '.join(ids)}." if ids else f"There is no plan {name!r}.",
            hint=f"`{COMMAND} plans` lists them.",
        )

    def save(self, plan: Plan) -> Plan:
        """Stores the plan with its current state."""
        facts = asdict(plan)
        text = json.dumps(to_plain_json(facts), indent=1, default=str)
        write_atomically(self.folder / plan.id / "plan.json", text)
        return plan

    def discard(self, plan: Plan) -> Plan:
        """Discards the plan, so that it is never published or continued; published rows stay.

        Raises:
            BadArgument: it was published, or has expired.
            ProcessFailed: as `held`.
        """
        with self.held():
            plan = self._read(plan.id)
            self.require_open(plan)
            return self.save(replace(plan, discarded_at=datetime.now(UTC)))

    def remove(self, plan: Plan) -> None:
        """Deletes a plan and its stored rows; at once it is none any more."""
        (self.folder / plan.id / "plan.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder / plan.id, ignore_errors=True)

    def old(self, now: datetime) -> list[Plan]:
        """Lists the plans that can neither be published nor go on nor be taken back."""
        return [plan for plan in self.all() if now - plan.created_at > _KEPT + LASTS and plan.state(now) != "begun"]

    def require_open(self, plan: Plan) -> None:
        """Refuses a plan that can no longer be published or discarded.

        Raises:
            BadArgument: names the time since when.
        """
        state = plan.state(datetime.now(UTC))
        if state in ("open", "begun"):
            return
        if state == "sample":
            raise BadArgument(
                f"The plan {plan.id} is of {plan.sample} alone; nothing was changed.",
                hint=f"Make one of all rows: {plan.again}.",
            )
        since = {
            "published": plan.published_at,
            "discarded": plan.discarded_at,
            "expired": plan.expires_at,
        }[state]
        raise BadArgument(
            f"The plan {plan.id} {_STATES[state]} {since:%Y-%m-%d %H:%M:%S} UTC; nothing was changed.",
            hint=f"Make it anew: {plan.again}."
            if state == "expired"
            else f"`{COMMAND} plans` lists those that can be published.",
        )

    def drafted(self, name: str) -> Path:
        """Creates a folder for a new plan, and removes old ones that can neither be published nor go on."""
        for plan in self.old(datetime.now(UTC)):
            self.remove(plan)
        draft = self.folder / f".{name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        return draft

    def rows(self, plan: Plan, change: TableChange, spark: SparkSession) -> Rows:
        """Reads the stored rows of a table, as `PublishedTable.difference` has them; by Spark if they are a folder.

        Raises:
            BadArgument: they were changed or removed.
        """
        path = self.folder / plan.id / rows_name(change.table)
        if not path.exists() or rows_digest(path) != change.digest:
            raise BadArgument(
                f"The rows of {change.table} that the plan {plan.id} kept are missing or were changed.",
                hint=f"Make it anew: {plan.again}.",
            )
        return pq.read_table(path) if path.is_file() else spark.read.parquet(str(path))

    def query(self, plan: Plan, change: TableChange) -> str:
        """Writes SQL that reads every row of a change, before and after."""
        return f"FROM {parquet(self.folder / plan.id / rows_name(change.table))}"

    def evidence(self, plan: Plan, table: str) -> list[CausingRecord]:
        """Reads the records that forced the changes of a table."""
        file = self.folder / plan.id / f"{table}.evidence.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [CausingRecord(**json.loads(line)) for line in lines]

    def _read(self, name: str) -> Plan:
        facts = json.loads((self.folder / name / "plan.json").read_text())
        times = {key: datetime.fromisoformat(facts[key]) for key in _TIMES if facts[key]}
        return Plan(**{**facts, **times, "changes": [_change(change) for change in facts["changes"]]})


def _change(facts: Mapping[str, Any]) -> TableChange:
    accepted = {name: Accepted(**facts[name]) for name in ("before", "fact") if facts.get(name)}
    return TableChange(**{**facts, **accepted})


_TIMES = ("created_at", "expires_at", "begun_at", "published_at", "discarded_at")
_STATES = {
    "published": "was published at",
    "discarded": "was discarded at",
    "expired": "has expired at",
}


def rows_name(table: str) -> str:
    """Returns the name of the file, or folder of files, that stores the rows of a table."""
    return f"{table}.parquet"


def keep_rows(rows: Rows, path: Path) -> str:
    """Writes the rows to a file or folder, and returns their digest.

    Raises:
        ProcessFailed: Spark runs on another machine and has written the rows to a folder there.
    """
    if are_here(rows):
        pq.write_table(rows, path)
    else:
        rows.write.parquet(str(path))
        if not path.exists():
            raise ProcessFailed(
                f"Spark has written the rows of a plan to {path}, which is not there: it runs on another machine.",
                hint="Make a plan of that many rows with TWOFOLD_SPARK on this machine, or on a shared disk.",
            )
    return rows_digest(path)


def rows_digest(path: Path) -> str:
    """Computes a digest, twelve hex digits, of the bytes of a file or of the files in a folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()[:12]


def keep_evidence(evidence: Iterable[CausingRecord], file: Path) -> None:
    """Writes the records that forced the changes of a table, a line each."""
    lines = [json.dumps(to_plain_json(asdict(record))) for record in evidence]
    if lines:
        file.write_text("\n".join(lines))


@contextmanager
def removed_unless_finished(draft: Path) -> Iterator[None]:
    """Removes the folder of an unfinished plan if the block fails."""
    try:
        yield
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise

"""Watches the stream of a domain: restarts its driver, and fails if the stream misses its objectives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.operators.assets import table_asset
from dags.operators.closed_days import keep_closed_days
from dags.operators.command_operator import CommandOperator
from infra.delta.lake import Lake
from infra.errors import ProcessFailed, TwofoldError
from infra.process.file_locks import is_held
from infra.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

BROKER = "broker"
STREAM = "stream"
"""The cause that commits of a table's stream name."""
SETTLE_S = 5


@dataclass(frozen=True, kw_only=True)
class StreamLimits:
    """The limits of a stream beyond which a person is alerted.

    Attributes:
        stalled_s: records or versions wait, and no micro-batch was finished for this long.
        freshness_s: rows become visible this long after the broker had them.
        tables_s: the same, of the tables that declare their own.
    """

    stalled_s: float = 300
    freshness_s: float = 900
    tables_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of one check of the platform.

    Attributes:
        down: supervised processes that do not run -> their state.
        missing: processes that the supervisor should know and does not.
        stalled: work that waits although the driver runs; a restart may help.
        failed: queries that cannot continue, with the reason; the driver restarts them itself.
        slow: parts that are too slow.
        lost: records that no longer exist anywhere, and are not acknowledged.
        captures: captured tables whose changes are delayed or incomplete.
    """

    down: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    stalled: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()


def driver_name(domain: str) -> str:
    """Returns the supervisor's name of the process that streams a domain."""
    return f"stream-{domain.replace('_', '-')}"


def examine(status: Any, domain: str, *, broker: bool, bounds: StreamLimits) -> Findings:
    """Judges the JSON of `./twofold status`.

    Args:
        broker: the broker is one of the supervised processes.
    """
    processes = {process["name"]: process for process in status["processes"]}
    programs = [*([BROKER] if broker else []), driver_name(domain)]
    states = {name: process["state"] for name, process in processes.items()}
    driver = processes.get(driver_name(domain), {})
    queries = {query["query"]: query for query in status["queries"] if query["domain"] == domain}
    waiting = _waiting(status, domain, queries)
    failed = {name: query["error"] for name, query in queries.items() if query["error"]}
    at = datetime.fromisoformat(status["at"])
    idle_s = {name: (at - _instant(query["updated_at"])).total_seconds() for name, query in queries.items()}
    long_up = (driver.get("uptime_s") or 0) > bounds.stalled_s
    return Findings(
        down={name: states[name] for name in programs if states.get(name, "RUNNING") not in ("RUNNING", "STARTING")},
        missing=tuple(name for name in programs if name not in processes),
        stalled=tuple(
            f"{name}: {waiting[name]}, no micro-batch for {bounds.stalled_s:.0f} s"
            for name in waiting
            if long_up and name not in failed and idle_s.get(name, bounds.stalled_s + 1) > bounds.stalled_s
        ),
        failed=tuple(f"{name} has failed: {error}" for name, error in failed.items()),
        slow=tuple(
            f"{name}: rows are visible {query['freshness_s']:.0f} s after the broker had them"
            for name, query in queries.items()
            if (query["freshness_s"] or 0) > bounds.tables_s.get(name, bounds.freshness_s)
            and idle_s[name] <= bounds.stalled_s
        ),
        lost=tuple(
            f"{gap['topic']}, partition {gap['partition']}: [{gap['start']}, {gap['end']}) is lost: {gap['why']}"
            for gap in status["gaps"]
            if gap["topic"].startswith(f"{domain}.") and gap["acknowledged_at"] is None
        ),
        captures=tuple(
            f"{capture['topic']}: {capture['fault']}"
            for capture in status["captures"]
            if capture["topic"].startswith(f"{domain}.") and capture["fault"]
        ),
    )


def stream_events(status: Any, domain: str, before: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Returns the asset event of each table with a new version, by full name.

    Args:
        before: full name -> the version at the last check; a table without one has no event yet.
    """
    closed = {query["query"]: query["watermark"] for query in status["queries"] if query["domain"] == domain}
    return {
        table["name"]: {
            "cause": STREAM,
            "version": table["version"],
            "rows": table["rows"],
            "closed_before": closed.get(table["name"].partition(".")[2]),
            "corrections": table["corrections"],
        }
        for table in status["tables"]
        if table["name"] in before and table["version"] not in (None, before[table["name"]])
    }


def is_by_stream(lake: Lake, name: str, after: int, through: int) -> bool:
    """Whether the table's stream made one of these versions; those of batch work have events of their own."""
    return any(commit.info.get("cause") == STREAM for commit in lake.commits(name, after, through, kept=True))


class StreamOperator(CommandOperator):
    """Checks once, restarts stopped or stalled streams, and fails if a restart does not help.

    Each table that its stream has written since the last check gets an asset event.
    """

    def __init__(self, *, domain: str, bounds: StreamLimits, changes: AssetAlias, **settings: Any) -> None:
        super().__init__(command="status", outlets=[changes], **settings)
        self.domain = domain
        self.bounds = bounds
        self.changes = changes

    def execute(self, context: Context) -> object:
        settings = Settings.from_environment()
        is_starting = is_held(settings.start_lock)
        status, findings = self._look(settings)
        if is_starting or is_held(settings.start_lock):
            raise AirflowSkipException("./twofold up is at work and says itself what fails; the next run looks.")
        if findings.missing:
            raise _failure(f"{', '.join(findings.missing)}: not supervised.", "Start the platform with ./twofold up.")
        restarts = list(findings.down) + [driver_name(self.domain)] * bool(findings.stalled)
        if restarts:
            self._restart(settings, restarts)
            status, after = self._look(settings)
            if after.down:
                raise _failure(
                    "; ".join(f"{name} was restarted and is {state}" for name, state in after.down.items()) + ".",
                    f"See {settings.logs}.",
                )
        if findings.stalled:
            raise _failure(f"{'; '.join(findings.stalled)}. The driver was restarted.", f"See {settings.logs}.")
        if findings.failed:
            raise _failure(
                f"{'; '.join(findings.failed)}.", "The other tables go on. `./twofold status` shows them all."
            )
        if findings.lost:
            raise _failure(
                f"{'; '.join(findings.lost)}.", "`./twofold acknowledge` notes who knows of it, and ends this alarm."
            )
        if findings.captures:
            raise _failure(f"{'; '.join(findings.captures)}.", "`./twofold doctor` says what to do about each.")
        if findings.slow:
            raise _failure(f"{'; '.join(findings.slow)}.", "Give the driver more memory, or fewer records per second.")
        keep_closed_days(settings, status, self.domain)
        last = context["ti"].xcom_pull(task_ids=self.task_id, include_prior_dates=True, map_indexes=-1) or {}
        lake, before = Lake(settings), last.get("versions") or {}
        for name, facts in stream_events(status, self.domain, before).items():
            if is_by_stream(lake, name, before[name], facts["version"]):
                context["outlet_events"][self.changes].add(table_asset(name), extra=facts)
        versions = {table["name"]: table["version"] for table in status["tables"] if table["version"] is not None}
        of_domain = {name: version for name, version in versions.items() if name.startswith(f"{self.domain}.")}
        return {"restarted": restarts, "problems": status["problems"], "versions": of_domain}

    def _look(self, settings: Settings) -> tuple[Any, Findings]:
        status = self.run(["status", "--json"])
        return status, examine(status, self.domain, broker=settings.supervises_broker, bounds=self.bounds)

    def _restart(self, settings: Settings, names: list[str]) -> None:
        from infra.process import supervisor

        for name in names:
            self.log.warning("restarting process=%s", name)
            try:
                supervisor.restart(settings, name)
            except TwofoldError as error:
                raise AirflowFailException(str(error)) from None
        time.sleep(SETTLE_S)


def _waiting(status: Any, domain: str, queries: Mapping[str, Any]) -> dict[str, str]:
    """Maps each query to a description of the input that it has not read yet."""
    lag = sum(
        partition["lag"] or 0
        for topic in status["topics"]
        if topic["name"].startswith(f"{domain}.")
        for partition in topic["partitions"]
    )
    waiting = {"ingest": f"{lag:,} records wait"} if lag else {}
    return waiting | {name: f"{query['behind']} versions wait" for name, query in queries.items() if query["behind"]}


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _failure(message: str, hint: str) -> AirflowFailException:
    return AirflowFailException(str(ProcessFailed(message, hint=hint)))

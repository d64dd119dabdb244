"""Watches the stream of a domain: restarts its driver, fails if its health in `twofold status` is bad."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from twofold.dags.operators.assets import table_asset
from twofold.dags.operators.closed_days import keep_closed_days
from twofold.dags.operators.command_operator import CommandOperator
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ProcessFailed, TwofoldError
from twofold.infra.process.file_locks import is_held
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

STREAM = "stream"
"""The cause that commits of a table's stream name."""
RESTART_WAIT_S = 5
HINTS = {
    "failed": f"The other tables go on. `{COMMAND} status` shows them all.",
    "lost": f"`{COMMAND} acknowledge` notes who knows of it, and ends this alarm.",
    "captures": f"`{COMMAND} doctor` says what to do about each.",
    "slow": "Give the driver more memory, or fewer records per second.",
}
"""Finding of a stream's health that no restart helps against -> what to do, the most urgent first."""


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
    """Checks once, restarts stopped or stalled processes, and fails if a restart does not help.

    Each table that its stream has written since the last check gets an asset event.
    """

    def __init__(self, *, domain: str, changes: AssetAlias, **settings: Any) -> None:
        super().__init__(command="status", outlets=[changes], **settings)
        self.domain = domain
        self.changes = changes

    def execute(self, context: Context) -> object:
        settings = Settings.from_environment()
        is_starting = is_held(settings.start_lock)
        status: Any = self.run(["status", "--json"])
        if is_starting or is_held(settings.start_lock):
            raise AirflowSkipException(f"{COMMAND} up is at work and says itself what fails; the next run looks.")
        health = self._health(status)
        if health["missing"]:
            raise _failure(f"{', '.join(health['missing'])}: not supervised.", f"Start the platform with {COMMAND} up.")
        restarts = list(health["down"]) + [health["driver"]] * bool(health["stalled"])
        if restarts:
            self._restart(settings, restarts)
            status = self.run(["status", "--json"])
            if still := self._health(status)["down"]:
                raise _failure(
                    "; ".join(f"{name} was restarted and is {state}" for name, state in still.items()) + ".",
                    f"See {settings.logs}.",
                )
        if health["stalled"]:
            raise _failure(f"{'; '.join(health['stalled'])}. The driver was restarted.", f"See {settings.logs}.")
        for kind, hint in HINTS.items():
            if health[kind]:
                raise _failure(f"{'; '.join(health[kind])}.", hint)
        keep_closed_days(settings, status, self.domain)
        last = context["ti"].xcom_pull(task_ids=self.task_id, include_prior_dates=True, map_indexes=-1) or {}
        lake, before = Lake(settings), last.get("versions") or {}
        for name, facts in stream_events(status, self.domain, before).items():
            if is_by_stream(lake, name, before[name], facts["version"]):
                context["outlet_events"][self.changes].add(table_asset(name), extra=facts)
        versions = {table["name"]: table["version"] for table in status["tables"] if table["version"] is not None}
        of_domain = {name: version for name, version in versions.items() if name.startswith(f"{self.domain}.")}
        return {"restarted": restarts, "problems": status["problems"], "versions": of_domain}

    def _health(self, status: Any) -> Any:
        if self.domain not in status["health"]:
            raise _failure(f"The stream of {self.domain} is not supervised.", f"Start it with {COMMAND} up.")
        return status["health"][self.domain]

    def _restart(self, settings: Settings, names: list[str]) -> None:
        from twofold.infra.process import supervisor

        for name in names:
            self.log.warning("restarting process=%s", name)
            try:
                supervisor.restart(settings, name)
            except TwofoldError as error:
                raise AirflowFailException(str(error)) from None
        time.sleep(RESTART_WAIT_S)


def _failure(message: str, hint: str) -> AirflowFailException:
    return AirflowFailException(str(ProcessFailed(message, hint=hint)))

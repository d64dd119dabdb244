"""Watches the stream of a domain: restarts its driver, and fails for its symptoms in `twofold status`."""

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
        if self.domain not in status["programs"]:
            raise _failure(f"The stream of {self.domain} is not supervised.", f"Start it with {COMMAND} up.")
        wrong = self._symptoms(status)
        restarts = list(dict.fromkeys(symptom["restarts"] for symptom in wrong if symptom["restarts"]))
        if restarts:
            self._restart(settings, restarts)
            status = self.run(["status", "--json"])
            # A program that is back is well again; a stream that stalled may stall again.
            stalled = [symptom for symptom in wrong if symptom["restarts"] not in ("", symptom["subject"])]
            wrong = stalled + [symptom for symptom in self._symptoms(status) if symptom not in stalled]
        if wrong:
            texts, hints = "; ".join(s["text"].rstrip(".") for s in wrong), dict.fromkeys(s["hint"] for s in wrong)
            after = f" {' and '.join(restarts)} was restarted." if restarts else ""
            raise _failure(f"{texts}.{after}", " ".join([*hints, f"Logs are in {settings.logs}."]))
        keep_closed_days(settings, status, self.domain)
        last = context["ti"].xcom_pull(task_ids=self.task_id, include_prior_dates=True, map_indexes=-1) or {}
        lake, before = Lake(settings), last.get("versions") or {}
        for name, facts in stream_events(status, self.domain, before).items():
            if is_by_stream(lake, name, before[name], facts["version"]):
                context["outlet_events"][self.changes].add(table_asset(name), extra=facts)
        versions = {table["name"]: table["version"] for table in status["tables"] if table["version"] is not None}
        of_domain = {name: version for name, version in versions.items() if name.startswith(f"{self.domain}.")}
        return {"restarted": restarts, "symptoms": [s["text"] for s in status["symptoms"]], "versions": of_domain}

    def _symptoms(self, status: Any) -> list[dict[str, Any]]:
        """Returns what is wrong with the stream: with the programs that it needs, or with what is of its domain."""
        watched = [symptom for symptom in status["symptoms"] if symptom["watched"]]
        subjects = (None, *status["programs"].get(self.domain, ()))
        return [s for s in watched if s["subject"] in subjects or s["subject"].startswith(f"{self.domain}.")]

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

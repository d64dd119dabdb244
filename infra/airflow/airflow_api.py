"""Client of Airflow's REST API."""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from twofold.infra import COMMAND
from twofold.infra.airflow import airflow_processes
from twofold.infra.airflow.dag_names import APPROVE, REASON
from twofold.infra.errors import BadArgument, ProcessFailed
from twofold.infra.project.settings import ADMIN, Settings

TIMEOUT_S = 30
LOOKS = 3
"""How often a request is made to which no answer comes: a writer of Airflow's SQLite can keep all others waiting."""
PAGE = 100
FINISHED = frozenset({"success", "failed"})
SERVING = ("metadatabase", "scheduler", "dag_processor", "triggerer")


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """A task of a run; `state` is None until the scheduler has seen it, `try_number` is 0 until it starts."""

    task_id: str
    state: str | None
    try_number: int
    map_index: int
    note: str = ""


def wait_ready(settings: Settings, timeout_s: float = 600) -> None:
    """Waits until the API answers and every component of Airflow reports that it is healthy.

    Raises:
        ProcessFailed: they do not do so within `timeout_s`; names those that are missing.
    """
    client = Client(settings)
    deadline = time.monotonic() + timeout_s
    while unhealthy := client.unhealthy():
        if time.monotonic() > deadline:
            raise ProcessFailed(
                f"Airflow at {airflow_processes.base_url(settings)} is not ready after {timeout_s:g} s: "
                f"{', '.join(unhealthy)}.",
                hint=f"See airflow-*.log in {settings.logs}.",
            )
        time.sleep(0.5)


class Client:
    """The REST API as the user `admin`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token: str | None = None
        # A proxy that the environment names is for the world outside.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def unhealthy(self) -> list[str]:
        """Lists the components that do not report that they are healthy; `api-server` if the API does not answer."""
        try:
            health = self._call("GET", "/api/v2/monitor/health", authenticate=False)
        except ProcessFailed:
            return ["api-server"]
        return [name for name in SERVING if (health.get(name) or {}).get("status") != "healthy"]

    def dags(self) -> list[str]:
        """Lists the ids of the loaded DAGs."""
        return [dag["dag_id"] for dag in self._all("/api/v2/dags", "dags")]

    def import_errors(self) -> dict[str, str]:
        """Maps each DAG file that cannot be loaded to its traceback."""
        errors = self._all("/api/v2/importErrors", "import_errors")
        return {error["filename"]: error["stack_trace"] for error in errors}

    def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pauses a DAG, so that the scheduler starts no run of it, or resumes it."""
        self._call("PATCH", f"/api/v2/dags/{_quoted(dag_id)}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None) -> str:
        """Starts a run of a DAG and returns its run id.

        Raises:
            BadArgument: no such DAG, or params that it refuses.
        """
        run_id = f"manual__{datetime.now(UTC).isoformat()}__{secrets.token_hex(4)}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        self._call("POST", f"/api/v2/dags/{_quoted(dag_id)}/dagRuns", body)
        return run_id

    def triggered_by_assets(self, dag_id: str) -> list[str]:
        """Lists the ids of the newest runs of a DAG that asset events started, newest first."""
        newest = self._call("GET", f"/api/v2/dags/{_quoted(dag_id)}/dagRuns?order_by=-run_after&limit=20")["dag_runs"]
        return [run["dag_run_id"] for run in newest if run["run_type"] == "asset_triggered"]

    def result(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """Returns the return value of a task in a run.

        Raises:
            BadArgument: it returned nothing.
        """
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quoted(task_id)}/xcomEntries/return_value?deserialize=true"
        return self._call("GET", path)["value"]

    def dag_run_state(self, dag_id: str, run_id: str) -> str:
        """Returns the state of a run: `queued`, `running`, `success` or `failed`."""
        return str(self._call("GET", _run(dag_id, run_id))["state"])

    def wait(self, dag_id: str, run_id: str, timeout_s: float) -> str:
        """Waits until a run ends and returns its final state.

        Raises:
            ProcessFailed: it has not ended within `timeout_s`; names the states of its tasks.
        """
        deadline = time.monotonic() + timeout_s
        while (state := self.dag_run_state(dag_id, run_id)) not in FINISHED:
            if time.monotonic() > deadline:
                tasks = ", ".join(f"{task.task_id} {task.state}" for task in self.task_instances(dag_id, run_id))
                raise ProcessFailed(f"{dag_id} {run_id} is {state} after {timeout_s:g} s: {tasks or 'no tasks'}.")
            time.sleep(0.5)
        return state

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskState]:
        """Lists the states of the tasks of a run."""
        return [
            TaskState(
                task_id=task["task_id"],
                state=task["state"],
                try_number=task["try_number"],
                map_index=task["map_index"],
                note=task["note"] or "",
            )
            for task in self._all(f"{_run(dag_id, run_id)}/taskInstances", "task_instances")
        ]

    def succeed(self, dag_id: str, run_id: str, tasks: Collection[str], note: str) -> None:
        """Marks tasks of a run that have not started as succeeded, with a note, so that they never start.

        Raises:
            BadArgument: no such run or task; some or all of the tasks were not marked.
        """
        entities = [{"task_id": task, "new_state": "success", "note": note} for task in sorted(tasks)]
        answer = self._call(
            "PATCH", f"{_run(dag_id, run_id)}/taskInstances", {"actions": [{"action": "update", "entities": entities}]}
        )
        if errors := (answer.get("update") or {}).get("errors"):
            raise BadArgument(f"Airflow did not let {len(errors)} tasks of {dag_id} succeed: {errors[0]['error']}.")

    def question(self, dag_id: str, run_id: str) -> dict[str, Any] | None:
        """Returns the open question of a run's task `approve`: `subject` and `body`; None: it waits for no answer."""
        asked = self._call("GET", f"{_run(dag_id, run_id)}/hitlDetails?task_id={APPROVE}")["hitl_details"]
        return asked[0] if asked and not asked[0]["response_received"] else None

    def answer(self, dag_id: str, run_id: str, option: str, reason: str = "") -> None:
        """Answers that question by one of its options; an approval needs a reason."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{APPROVE}/-1/hitlDetails"
        self._call("PATCH", path, {"chosen_options": [option], "params_input": {REASON: reason} if reason else {}})

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Returns the log of one try of a task, one line per event."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quoted(task_id)}/logs/{try_number}?map_index={map_index}"
        lines = self._call("GET", path)["content"]
        return "\n".join(line if isinstance(line, str) else str(line.get("event", line)) for line in lines)

    def _all(self, path: str, what: str) -> list[dict[str, Any]]:
        """Reads all pages of a list; Airflow returns at most 100 entries per page, whatever limit is requested."""
        listed: list[dict[str, Any]] = []
        while True:
            page = self._call("GET", f"{path}?limit={PAGE}&offset={len(listed)}")[what]
            listed += page
            if len(page) < PAGE:
                return listed

    def _call(self, method: str, path: str, body: object = None, *, authenticate: bool = True) -> dict[str, Any]:
        if authenticate and self._token is None:
            self._token = self._sign_in()
        try:
            return self._answered(method, path, body)
        except urllib.error.HTTPError as error:
            if error.code == 401 and authenticate:
                # Tokens end after a day; a signing key that changed ends them at once.
                self._token = self._sign_in()
                return self._send(method, path, body)
            raise self._refusal(method, path, error) from error
        except OSError as error:
            raise ProcessFailed(
                f"Airflow does not answer at {airflow_processes.base_url(self._settings)} "
                f"(TWOFOLD_AIRFLOW_PORT): {error}.",
                hint=f"Start the platform with {COMMAND} up; {COMMAND} status shows its state.",
            ) from error

    def _sign_in(self) -> str:
        credentials = {"username": ADMIN, "password": airflow_processes.passwords(self._settings)[ADMIN]}
        self._token = None
        return str(self._call("POST", "/auth/token", credentials, authenticate=False)["access_token"])

    def _answered(self, method: str, path: str, body: object) -> dict[str, Any]:
        """Sends a request and returns the answer; repeats the request if none comes in time.

        Every request is safe to repeat. Run ids are chosen by the client, so Airflow refuses a run that an unanswered
        request has started already; it refuses a second decision in the same way.
        """
        unheard = 0
        while True:
            try:
                return self._send(method, path, body)
            except TimeoutError:
                unheard += 1
                if unheard == LOOKS:
                    raise
            except urllib.error.HTTPError as error:
                if error.code == 409 and unheard:
                    return {}
                raise

    def _send(self, method: str, path: str, body: object) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            airflow_processes.base_url(self._settings) + path, data=data, headers=headers, method=method
        )
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            return cast("dict[str, Any]", json.load(answer))

    def _refusal(self, method: str, path: str, error: urllib.error.HTTPError) -> BadArgument | ProcessFailed:
        body = error.read().decode(errors="replace")
        message = f"Airflow refuses {method} {path}: {error.code} {body[:500]}"
        return BadArgument(message) if error.code in (400, 404, 409, 422) else ProcessFailed(message)


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}"


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")

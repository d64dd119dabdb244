"""Runs DAGs on the running Airflow and shows their progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twofold.cli.console import out, step
from twofold.demo.run.live_view import LINE
from twofold.infra.errors import ProcessFailed
from twofold.infra.project.settings import Settings
from twofold.status.parts.unloaded_dags import why_unloaded

if TYPE_CHECKING:
    from twofold.infra.airflow.airflow_api import Client, TaskState

LOADED_S = 180.0
FINISHED_S = 900.0
ASKING = "awaiting_input"
"""The state of a task that waits for a person."""
ANSWER_AFTER_S = 3.0
"""Airflow fails a task whose answer comes before its scheduler has seen that the process which asked has ended."""
TRIGGERED_S = 60.0
"""How long Airflow may take to start the run that an event of an asset asks for."""


@dataclass(frozen=True, kw_only=True)
class DagRun:
    """A run that succeeded."""

    client: Client
    dag: str
    run: str

    def result(self, task: str) -> Any:
        """Returns the return value of a task of the run."""
        return self.client.result(self.dag, self.run, task)


def run_dag(
    settings: Settings,
    dag: str,
    params: Mapping[str, object] | None = None,
    *,
    answer: Callable[[Client, str, str], None] | None = None,
) -> DagRun:
    """Triggers a DAG and waits until its run has succeeded.

    Args:
        answer: answers the question of a run that waits for a person.

    Raises:
        ProcessFailed: it failed; names the task and its last log lines.
    """
    from twofold.infra.airflow.airflow_api import Client

    client = Client(settings)
    _await_dag(settings, client, dag)
    return _follow(client, dag, client.trigger(dag, params), answer)


def approved(client: Client, dag: str, run: str) -> None:
    """Shows the plan that a run asks about, and approves it."""
    plan = client.result(dag, run, "preview")
    out.print(f"  Its plan has {plan['changed']:,} rows of {plan['tables']} tables: approved.")
    client.answer(dag, run, "Approve", "The demo has looked at each row.")


def run_after(settings: Settings, dag: str, earlier: Collection[str]) -> DagRun:
    """Waits until a new run, not in `earlier`, that asset events started has succeeded; triggers one if none starts.

    Raises:
        ProcessFailed: as `run_dag`.
    """
    from twofold.infra.airflow.airflow_api import Client

    client = Client(settings)
    deadline = time.monotonic() + TRIGGERED_S
    while time.monotonic() < deadline:
        started = [run for run in client.triggered_by_assets(dag) if run not in earlier]
        if started:
            return _follow(client, dag, started[-1])
        time.sleep(1)
    return run_dag(settings, dag)


def triggered_runs(settings: Settings, dag: str) -> list[str]:
    """Lists the newest runs of a DAG that asset events started; empty while Airflow has not loaded it."""
    from twofold.infra.airflow.airflow_api import Client

    client = Client(settings)
    _await_dag(settings, client, dag)
    return client.triggered_by_assets(dag)


def _follow(client: Client, dag: str, run: str, answer: Callable[[Client, str, str], None] | None = None) -> DagRun:
    """Shows the progress of a run until it has succeeded."""
    from twofold.infra.airflow.airflow_api import FINISHED

    with step(f"{dag}: queued") as running:
        printed, asked_at = "", None
        while (state := client.dag_run_state(dag, run)) not in FINISHED:
            tasks = client.task_instances(dag, run)
            if not any(task.state == ASKING for task in tasks):
                asked_at = None
            elif asked_at is None:
                asked_at = time.monotonic()
            elif answer and time.monotonic() - asked_at > ANSWER_AFTER_S and client.question(dag, run):
                answer(client, dag, run)
            doing = _doing(tasks, LINE - len(f"{dag}: "))
            running.count(sum(task.state in FINISHED for task in tasks), len(tasks))
            if doing != printed:
                printed, running.what = doing, f"{dag}: {doing or state}"
                if not out.is_terminal:
                    out.print(running.what, soft_wrap=True)
            if time.monotonic() - running.began > FINISHED_S:
                raise ProcessFailed(
                    f"{dag} is {state} after {FINISHED_S:.0f} s: {doing}.", hint="Its page in Airflow shows more."
                )
            time.sleep(1)
        tasks = client.task_instances(dag, run)
        if state != "success":
            failed = next((t for t in tasks if t.state == "failed"), None)
            log = client.task_log(dag, run, failed.task_id, failed.try_number) if failed else ""
            raise ProcessFailed(
                f"{dag} failed{f' in {failed.task_id}' if failed else ''}:\n" + "\n".join(log.splitlines()[-12:]),
                hint="Its page in Airflow shows more.",
            )
        ran = sum(task.state == "success" for task in tasks)
        running.what = f"{dag}: {ran} task{'' if ran == 1 else 's'}"
    return DagRun(client=client, dag=dag, run=run)


def _doing(tasks: Sequence[TaskState], room: int) -> str:
    """Lists the unfinished tasks by state; counts them if their names need more columns than `room`."""
    by_state: dict[str, list[str]] = {}
    for task in tasks:
        if task.state not in (None, "success", "skipped"):
            by_state.setdefault(str(task.state), []).append(task.task_id.rsplit(".", 1)[-1])
    named = "; ".join(f"{state} {', '.join(names)}" for state, names in by_state.items())
    return named if len(named) <= room else "; ".join(f"{state} {len(names)}" for state, names in by_state.items())


def _await_dag(settings: Settings, client: Client, dag: str) -> None:
    deadline = time.monotonic() + LOADED_S
    while dag not in client.dags():
        if time.monotonic() > deadline and (why := why_unloaded(settings, [dag])):
            raise ProcessFailed(why)
        time.sleep(1)

"""Runs DAGs on the running Airflow and shows their progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.console import out
from cli.demo.live_view import LINE
from infra.errors import ProcessFailed
from infra.settings import Settings
from infra.text.printable import shown_duration
from status.parts.unloaded_dags import why_unloaded

if TYPE_CHECKING:
    from rich.status import Status

    from infra.airflow.airflow_api import Client, TaskState

LOADED_S = 180.0
FINISHED_S = 900.0
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
    from infra.airflow.airflow_api import Client

    client = Client(settings)
    _await_dag(settings, client, dag)
    return _follow(client, dag, client.trigger(dag, params), answer)


def approved(client: Client, dag: str, run: str) -> None:
    """Shows the plan that a run asks about, and approves it."""
    plan = client.result(dag, run, "preview")
    out.print(f"  Its plan has {plan['changed']:,} rows of {plan['tables']} tables: approved.")
    client.answer(dag, run, "Approve")


def run_after(settings: Settings, dag: str, earlier: Collection[str]) -> DagRun:
    """Waits until a new run, not in `earlier`, that asset events started has succeeded; triggers one if none starts.

    Raises:
        ProcessFailed: as `run_dag`.
    """
    from infra.airflow.airflow_api import Client

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
    from infra.airflow.airflow_api import Client

    client = Client(settings)
    _await_dag(settings, client, dag)
    return client.triggered_by_assets(dag)


def _follow(client: Client, dag: str, run: str, answer: Callable[[Client, str, str], None] | None = None) -> DagRun:
    """Shows the progress of a run until it has succeeded."""
    from infra.airflow.airflow_api import FINISHED

    began = time.monotonic()
    with out.status(f"{dag}: queued") if out.is_terminal else _quiet() as status:
        printed = ""
        while (state := client.dag_run_state(dag, run)) not in FINISHED:
            if answer and client.question(dag, run):
                answer(client, dag, run)
            doing = _doing(client.task_instances(dag, run), LINE - len(f"{dag}: "))
            if doing != printed:
                printed = doing
                _say(status, f"{dag}: {doing or state}")
            if time.monotonic() - began > FINISHED_S:
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
    counted = f"{ran} task{'' if ran == 1 else 's'}"
    out.print(f"[green]✓[/] {dag}: {counted} [dim]{shown_duration(time.monotonic() - began)}[/]")
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


@contextmanager
def _quiet() -> Iterator[None]:
    yield None


def _say(status: Status | None, text: str) -> None:
    if status is None:
        out.print(text, soft_wrap=True)
    else:
        status.update(text)

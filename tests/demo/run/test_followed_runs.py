"""How the demo follows a run of a DAG, and when it answers for a person."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from twofold.demo.run import dag_runs
from twofold.infra.airflow.airflow_api import Client, TaskState


class Clock:
    """A clock that goes on only while its reader sleeps."""

    def __init__(self) -> None:
        self.now = self.began = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Airflow:
    """A run whose task `approve` has these states, one a look; it succeeds once it is answered.

    As in Airflow, the question is there before the task that asks it waits for its answer.
    """

    def __init__(self, states: Sequence[str]) -> None:
        self._states = list(states)
        self.answered = False

    def dag_run_state(self, dag: str, run: str) -> str:
        return "success" if self.answered else "running"

    def task_instances(self, dag: str, run: str) -> list[TaskState]:
        state = "success" if self.answered else self._states.pop(0) if len(self._states) > 1 else self._states[0]
        tasks = {"preview": "success", "approve": state, "publish": "success" if self.answered else None}
        return [TaskState(task_id=name, state=state, try_number=1, map_index=-1) for name, state in tasks.items()]

    def question(self, dag: str, run: str) -> dict[str, Any] | None:
        return None if self.answered else {"subject": "Publish?"}


@pytest.mark.parametrize(
    ("states", "answered_after_s"),
    [
        (["awaiting_input"], 4),
        (["running", "running", "awaiting_input"], 6),
        (["awaiting_input", "awaiting_input", "up_for_retry", "running", "awaiting_input"], 8),
    ],
)
def test_a_question_is_answered_once_its_task_has_waited_for_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], states: list[str], answered_after_s: int
) -> None:
    airflow, clock = Airflow(states), Clock()
    answers = []

    def answer(*_: object) -> None:
        answers.append(clock.now - clock.began)
        airflow.answered = True

    monkeypatch.setattr(dag_runs, "time", clock)
    dag_runs._follow(cast("Client", airflow), "flights.replay", "run-1", answer)
    assert answers == [pytest.approx(answered_after_s)]
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == f"flights.replay: {states[0]} approve"
    assert last.startswith("✓ flights.replay: 3 tasks ")

"""The questions of tasks `approve`, and a person's answers, through Airflow's API."""

from __future__ import annotations

from typing import Any

from infra.airflow.airflow_api import Client, _run


def question(client: Client, dag: str, run: str) -> dict[str, Any] | None:
    """The open question of the run, with `subject` and `body`; None if it waits for no answer."""
    path = f"{_run(dag, run)}/hitlDetails?task_id=approve"
    asked = client._call("GET", path)["hitl_details"]
    return asked[0] if asked and not asked[0]["response_received"] else None


def answer(client: Client, dag: str, run: str, option: str) -> None:
    """Chooses an option, as the user `admin`."""
    path = f"{_run(dag, run)}/taskInstances/approve/-1/hitlDetails"
    client._call("PATCH", path, {"chosen_options": [option], "params_input": {}})

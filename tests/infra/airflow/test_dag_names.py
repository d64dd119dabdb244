"""The run of a DAG that a process works for."""

from __future__ import annotations

import pytest

from twofold.infra.airflow.dag_names import dag_run_of

DAG, RUN = "AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID"


@pytest.mark.parametrize(
    ("environment", "asked_in"),
    [({DAG: "flights.repair", RUN: "manual__1"}, "flights.repair manual__1"), ({DAG: "flights.repair"}, ""), ({}, "")],
)
def test_a_process_knows_the_run_it_works_for(environment: dict[str, str], asked_in: str) -> None:
    assert dag_run_of(environment) == asked_in

"""Airflow on this machine as a service."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.infra.airflow import airflow_processes
from twofold.infra.airflow.airflow_api import wait_ready
from twofold.infra.process import supervisor
from twofold.infra.process.service import ServerPort, Service, Wait
from twofold.infra.project.settings import Settings


def _prepare(settings: Settings) -> None:
    if not airflow_processes.is_migrated(settings):  # those that run are of another version
        for process in supervisor.state(settings):
            if process.name.startswith("airflow-"):
                supervisor.stop_program(settings, process.name)
    airflow_processes.prepare(settings)


def _addresses(settings: Settings, _: object, with_passwords: bool) -> Iterator[tuple[str, str]]:
    yield "Airflow", settings.airflow_address
    yield from (("", user) for user in airflow_processes.shown_users(settings, with_passwords))
    yield "Page", f"{settings.airflow_address}/twofold/"


SERVICE = Service[object](
    name="airflow",
    stage="servers",
    prepare=_prepare,
    prepares="Airflow's database",
    programs=lambda settings, _: airflow_processes.programs(settings),
    ready=lambda settings, _: [Wait("Airflow", lambda: wait_ready(settings))],
    ports=[ServerPort("airflow_port", "Airflow", "airflow-api-server")],
    addresses=_addresses,
)

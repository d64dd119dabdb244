"""The ports on which the platform's servers listen."""

from __future__ import annotations

from typing import NamedTuple

from twofold.infra.project.settings import Settings


class ServerPort(NamedTuple):
    """A port, the environment variable that chooses it, who listens there, and what the supervisor calls that."""

    number: int
    setting: str
    server: str
    program: str


def server_ports(
    settings: Settings,
    *,
    airflow: bool = True,
    spark: bool = True,
    captures: bool = False,
    webhooks: bool = False,
    copies: bool = False,
) -> list[ServerPort]:
    """Lists the ports of the servers that the platform runs with these settings.

    Args:
        captures: tables of a database are captured.
        webhooks: topics are filled by webhooks.
        copies: the supervised database has copies of tables.
    """
    ports = []
    if settings.supervises_broker:
        ports += [
            ServerPort(settings.kafka_port, "TWOFOLD_KAFKA_PORT", "the Kafka broker", "broker"),
            ServerPort(settings.controller_port, "TWOFOLD_CONTROLLER_PORT", "the broker's controller", "broker"),
        ]
    if airflow:
        ports.append(ServerPort(settings.airflow_port, "TWOFOLD_AIRFLOW_PORT", "Airflow", "airflow-api-server"))
    if spark and settings.supervises_spark:
        ports.append(ServerPort(settings.spark_port, "TWOFOLD_SPARK_PORT", "the Spark server", "spark"))
    if copies or (captures and settings.supervises_database):
        ports.append(ServerPort(settings.database_port, "TWOFOLD_DATABASE_PORT", "the database", "database"))
    if captures:
        ports.append(ServerPort(settings.connect_port, "TWOFOLD_CONNECT_PORT", "Kafka Connect", "connect"))
    if webhooks:
        ports.append(ServerPort(settings.webhook_port, "TWOFOLD_WEBHOOK_PORT", "the receiver of webhooks", "receiver"))
    return ports

"""The list of all services, in the order in which `up` waits for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from twofold.batch.capture.connect_service import SERVICE as CONNECT
from twofold.infra.airflow.airflow_service import SERVICE as AIRFLOW
from twofold.infra.kafka.broker_service import SERVICE as BROKER
from twofold.infra.process.service import Service
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_service import SERVICE as SPARK
from twofold.intake.receiver import SERVICE as RECEIVER
from twofold.intake.relay import SERVICE as RELAY
from twofold.outputs.database_service import SERVICE as DATABASE
from twofold.outputs.follow.outputs_service import SERVICE as OUTPUTS
from twofold.streaming.stream_service import SERVICE as STREAM
from twofold.tables.declare.registry import Registry

SERVICES: Sequence[Service[Registry]] = (BROKER, CONNECT, RECEIVER, DATABASE, RELAY, STREAM, OUTPUTS, SPARK, AIRFLOW)


def needed(settings: Settings, registry: Registry, without: Collection[str] = ()) -> list[Service[Registry]]:
    """Lists the services that these settings and declarations need, but those of these names."""
    return [service for service in SERVICES if service.name not in without and service.needed(settings, registry)]

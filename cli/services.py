"""The list of all services, in the order in which `up` waits for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pkgutil import resolve_name

from twofold.infra.airflow.airflow_service import SERVICE as AIRFLOW
from twofold.infra.kafka.broker_service import SERVICE as BROKER
from twofold.infra.process.service import Service
from twofold.infra.project.feature import features
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_service import SERVICE as SPARK
from twofold.streaming.stream_service import SERVICE as STREAM
from twofold.tables.declare.registry import Registry

_OF_FEATURES = [resolve_name(name) for feature in features() for name in feature.services]
_SERVERS = [service for service in _OF_FEATURES if service.stage != "workers"]
_WORKERS = [service for service in _OF_FEATURES if service.stage == "workers"]
SERVICES: Sequence[Service[Registry]] = (BROKER, *_SERVERS, STREAM, *_WORKERS, SPARK, AIRFLOW)


def needed(settings: Settings, registry: Registry, without: Collection[str] = ()) -> list[Service[Registry]]:
    """Lists the services that these settings and declarations need, but those of these names."""
    return [service for service in SERVICES if service.name not in without and service.needed(settings, registry)]

"""The supervised Kafka broker as a service."""

from __future__ import annotations

from twofold.infra.kafka.broker import NAME, prepare, program, wait_ready
from twofold.infra.process.service import ServerPort, Service, Wait

SERVICE = Service[object](
    name=NAME,
    stage="log",
    needed=lambda settings, _: settings.supervises_broker,
    prepare=prepare,
    programs=lambda settings, _: [program(settings)],
    ready=lambda settings, _: [Wait(f"Kafka broker at {settings.bootstrap_servers}", lambda: wait_ready(settings))],
    ports=[
        ServerPort("kafka_port", "the Kafka broker", NAME),
        ServerPort("controller_port", "the broker's controller", NAME),
    ],
    jars=["broker"],
    addresses=lambda settings, *_: [("Kafka", settings.bootstrap_servers)],
)

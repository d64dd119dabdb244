"""The supervised Spark server as a service: warm once `up` ends."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.infra.process.service import ServerPort, Service, Wait
from twofold.infra.process.supervisord import pid_file
from twofold.infra.project.settings import Settings
from twofold.infra.spark.connect_server import NAME, program
from twofold.infra.spark.spark_client import wait_warm


def _ready(settings: Settings, _: object) -> Iterator[Wait]:
    if settings.supervises_spark:
        yield Wait(f"Spark server at 127.0.0.1:{settings.spark_port}", lambda: _wait_warm(settings), early=True)


def _wait_warm(settings: Settings) -> None:
    """Waits until the server answers, and warms it unless that was done since its start."""
    started, warmed = pid_file(settings, NAME), settings.home / "spark" / "warmed"
    is_warm = started.exists() and warmed.exists() and warmed.stat().st_mtime_ns > started.stat().st_mtime_ns
    wait_warm(settings, is_new=not is_warm)
    warmed.touch()


SERVICE = Service[object](
    name=NAME,
    stage="servers",
    needed=lambda settings, _: settings.supervises_spark,
    programs=lambda settings, _: [program(settings)],
    ready=_ready,
    ports=[ServerPort("spark_port", "the Spark server", NAME)],
    jars=["spark"],
)

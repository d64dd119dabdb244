"""Sessions of a Spark Connect server next to the test process's own JVM."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_client import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODE = "SPARK_CONNECT_MODE_ENABLED"


@contextmanager
def remote(endpoint: str, settings: Settings) -> Iterator[SparkSession]:
    """A session of a server; until the block ends this process builds expressions for it, not for its own JVM."""
    before = os.environ.get(MODE)
    try:
        session = connect(settings, endpoint, "test")
        try:
            yield session
        finally:
            session.stop()
    finally:
        os.environ.pop(MODE)
        if before is not None:
            os.environ[MODE] = before


def serve(spark: SparkSession) -> str:
    """Let the JVM of a session in this process serve Connect, too; the connection string."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jvm: Any = spark._jvm
    configured = jvm.org.apache.spark.SparkEnv.get().conf()
    configured.set("spark.connect.grpc.binding.address", "127.0.0.1")
    configured.set("spark.connect.grpc.binding.port", str(port))
    jvm.org.apache.spark.sql.connect.service.SparkConnectService.start(spark._jsc.sc())  # type: ignore[attr-defined]
    return f"sc://127.0.0.1:{port}"

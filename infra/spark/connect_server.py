"""The supervised Spark Connect server: one warm JVM; commands and DAG tasks are its thin clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twofold.infra.java import late_c2
from twofold.infra.process.ports import HOST
from twofold.infra.process.secret_files import ensure_secret
from twofold.infra.process.supervisord import Program
from twofold.infra.spark.spark_session import class_options, configuration, environment

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings

NAME = "spark"
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_JAVA_OPTIONS = [
    # Clients come and go for weeks, each with classes that were compiled for it.
    "-XX:MaxMetaspaceSize=600m",
    # Short queries of many kinds gain nothing from it; loops over records do.
    *late_c2(50),
]


def program(settings: Settings) -> Program:
    """Returns the program that the supervisor runs; it changes with the settings, so that `up` then restarts it.

    Raises:
        MissingTool: no Java, or jars that cannot be fetched.
    """
    import pyspark

    spark_home = Path(pyspark.__file__).parent
    options = configuration(settings, [*class_options(settings), *_JAVA_OPTIONS])
    options |= {"spark.master": settings.spark_master, "spark.app.name": "twofold", **serving_options(settings)}
    assigned = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    return Program(
        name=NAME,
        command=[str(spark_home / "bin" / "spark-submit"), *assigned, "--class", _MAIN, "spark-internal"],
        environment={
            **environment(settings),
            "SPARK_HOME": str(spark_home),
            **token_variable(settings),
        },
        stage=1,
        start_s=2,
    )


def url(settings: Settings) -> str:
    """Returns the connection string of the supervised server; it holds the token."""
    # A token goes unencrypted to this name alone.
    return f"sc://localhost:{settings.spark_port}/;token={token(settings)}"


def token(settings: Settings) -> str:
    """Returns the token that clients must send; generated once for this home, readable by its owner only."""
    return ensure_secret(settings.home / "spark" / "token")


def token_variable(settings: Settings) -> dict[str, str]:
    """Returns the server's environment variable for the token; a command line would be visible to other users."""
    return {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token(settings)}


def serving_options(settings: Settings) -> dict[str, str]:
    """Returns the Spark settings of a Connect server, in addition to those of every JVM."""
    return {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(settings.spark_port),
        # The jobs of a client that was killed are cancelled within half a minute: a stream of results ends after so
        # long, a client that lives goes on with another, and an abandoned one is given up.
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
        "spark.connect.execute.manager.detachedTimeout": "15s",
        "spark.connect.execute.manager.maintenanceInterval": "5s",
        "spark.connect.session.manager.defaultSessionTimeout": "30m",
        # A result that is larger fails its own query, not the server.
        "spark.driver.maxResultSize": "256m",
    }

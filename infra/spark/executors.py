"""Executors of a Spark cluster: their settings, and a time limit for jobs that wait for one."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from twofold.infra.errors import SparkUnreachable
from twofold.infra.project.settings import SECRETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

_FIRST_S = 60.0  # how long an application waits for its first executor
_LOST_S = 60.0  # how long a job waits when all executors are gone
_LOOK_S = 2.0
_HIDDEN = frozenset(f"TWOFOLD_{name.upper()}" for name in SECRETS)
_log = logging.getLogger("twofold.spark")


def configuration(settings: Settings, python_path: str) -> dict[str, str]:
    """Returns the settings of an application on a cluster.

    Its executors import the platform's packages from the same paths as this process, so every node needs the same
    checkout and environment. They get this process's settings without the platform's secrets, and the keys of an object
    store. The number of cores is limited, so that other applications get some.
    """
    given = {name: value for name, value in os.environ.items() if name.startswith(("TWOFOLD_", "AWS_"))}
    names = {name: value for name, value in given.items() if name not in _HIDDEN}
    return {
        "spark.cores.max": str(settings.spark_cores),
        **{f"spark.executorEnv.{name}": value for name, value in {**names, "PYTHONPATH": python_path}.items()},
    }


def require(spark: SparkSession, settings: Settings) -> None:
    """Waits until the application has an executor.

    Raises:
        SparkUnreachable: it gets none within a minute; the application is ended. Retryable.
    """
    deadline = time.monotonic() + _FIRST_S
    while not count(spark):
        if time.monotonic() > deadline:
            spark.stop()
            raise SparkUnreachable(
                f"{settings.spark_master} gave no executor within {_FIRST_S:.0f} s; expected one with "
                f"{settings.spark_cores} cores at most.",
                hint="Its workers are down, or other applications have their cores: TWOFOLD_SPARK_CORES says how many "
                "each one takes.",
            )
        time.sleep(0.2)


def watch(spark: SparkSession) -> None:
    """Cancels waiting jobs once all executors have been gone for a minute; Spark itself waits forever."""
    threading.Thread(target=_watch, args=[spark], name="watch executors", daemon=True).start()


def count(spark: SparkSession) -> int:
    """Counts the executors of the application."""
    context = spark.sparkContext
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def _watch(spark: SparkSession) -> None:
    since: float | None = None
    try:
        while True:
            time.sleep(_LOOK_S)
            since = None if count(spark) else since or time.monotonic()
            if since is not None and time.monotonic() - since > _LOST_S:
                _log.error("no executor for %.0f s: jobs are cancelled", _LOST_S)
                spark.sparkContext.cancelAllJobs()
                since = None
    except Exception as error:  # the session was stopped
        _log.debug("executors are no longer looked at error=%s", error)

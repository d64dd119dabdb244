"""Opens Spark sessions with a JVM in this process: for stream drivers, rebuilds, and batch work without a server."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from twofold.infra.errors import BadSetting
from twofold.infra.java import java, late_c2
from twofold.infra.project import jars
from twofold.infra.project.settings import Settings
from twofold.infra.spark import executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SOCKET_DIR = 60  # the path of a socket has at most 107 bytes, its name 42


MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
}
"""Settings of a session that decide what rows a table's function returns."""


def session(settings: Settings, name: str, java_options: Sequence[str] | None = None) -> SparkSession:
    """Opens a session with Delta and Kafka, in UTC, in ANSI mode, with RocksDB for state.

    Args:
        java_options: additional options of its JVM; None: those for the class archive, if there is one.

    Raises:
        MissingTool: no Java, or jars that cannot be fetched.
        SparkUnreachable: a cluster gives it no executor. Retryable.
    """
    options = configuration(settings, class_options(settings) if java_options is None else java_options)
    os.environ.update(environment(settings))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # A process that is a client of a Connect server builds every expression for it.
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.appName(name).master(settings.spark_master)
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if is_cluster(settings):
        executors.require(spark, settings)
        executors.watch(spark)
    return spark


def is_cluster(settings: Settings) -> bool:
    """Whether Spark work runs on executors, which are processes of their own."""
    return not settings.spark_master.startswith("local")


def jvm_exit_code() -> int | None:
    """Returns the exit code of this process's JVM; None while it runs, or if there is none."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    return None if gateway is None else gateway.proc.poll()


def tune_for_batch_size(spark: SparkSession, *, few: bool) -> None:
    """Configures the session's next queries for few rows, or for many.

    Interpretation of few rows costs less than the compilation of classes, which every new literal, such as a watermark,
    triggers again; adaptive execution has nothing to improve then.
    """
    spark.conf.set("spark.sql.codegen.wholeStage", str(not few).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if few else "FALLBACK")
    spark.conf.set("spark.sql.adaptive.enabled", str(not few).lower())


def environment(settings: Settings) -> dict[str, str]:
    """Returns the environment of the JVM and its Python workers; workers use the import paths of this process.

    Raises:
        MissingTool: no Java.
    """
    return {
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java().parent.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(settings.home / "spark"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


_ARROW = "-Darrow.enable_null_check_for_get=false"
"""Spark copies a map by reading all its numbers before it sets the null ones, which Arrow's own check refuses."""
_FIXED = {
    "spark.executor.extraJavaOptions": _ARROW,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default, INT96, has no statistics, and other readers take its nanoseconds for years 1677 to 2262 only.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # 20,000 large records exceed a worker's memory, and the 2 GB of an Arrow column.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # Up to the default of 48 MB rows from this process become part of the plan, which each task is sent again:
    # 170 thousand rows of 5 MB cost a second instead of 0.2 s.
    "spark.sql.execution.arrow.localRelationThreshold": "128KB",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The rename-based manager costs 50 ms a file, this one 11 (measured on ext4).
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # One store per partition instead of four.
    "spark.sql.streaming.join.stateFormatVersion": "3",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
    # The default of 50 partitions costs seconds per commit on a small log.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "500",
    # The default of 100 holds less than five queries need: each micro-batch would compile its classes again.
    "spark.sql.codegen.cache.maxEntries": "10000",
    "spark.scheduler.mode": "FAIR",
}
"""Settings of Spark that depend on nothing."""


def configuration(settings: Settings, java_options: Sequence[str]) -> dict[str, str]:
    """Returns the Spark settings that a session in this process and the Connect server share.

    Raises:
        MissingTool: the jars cannot be fetched.
    """
    jars.ensure(settings, ["spark"])
    files = sorted((settings.jars / "spark").glob("*.jar"))
    scratch = settings.home / "spark"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        **_found_by_the_jvm(settings, [str(file) for file in files]),
        **(executors.configuration(settings, environment(settings)["PYTHONPATH"]) if is_cluster(settings) else {}),
        "spark.driver.memory": settings.driver_memory,
        # The size of a job's result; a larger one fails the job instead of the JVM.
        "spark.driver.maxResultSize": str(_bytes(settings.driver_memory) // 4),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            f"-Duser.timezone=UTC -Dderby.system.home={scratch} -Djava.io.tmpdir={scratch} -XX:+UseG1GC "
            # Without memory a JVM goes on with some of its threads: a job waits for ever for one that ended.
            "-XX:+ExitOnOutOfMemoryError "
            f"{_ARROW} -Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')} "
            + " ".join([*late_c2(6), *java_options])
        ),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **MEANING,
        **_FIXED,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # Reading the archive, whose records come from Python, takes a sixth less than through TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(scratch) if len(str(scratch)) < _SOCKET_DIR else gettempdir(),
    }


def _bytes(memory: str) -> int:
    """Parses a size in the JVM's notation: `1500m`, `3g`."""
    size = re.fullmatch(r"(\d+)([kmg])", memory.lower())
    if size is None:
        raise BadSetting(
            f"TWOFOLD_DRIVER_MEMORY={memory!r}: expected a number with a unit.", hint="1500m is 1,500 MiB, 3g is 3 GiB."
        )
    return int(size[1]) << {"k": 10, "m": 20, "g": 30}[size[2]]


def _found_by_the_jvm(settings: Settings, jars: Sequence[str]) -> dict[str, str]:
    """Returns the options by which the JVM finds our jars; executors of a cluster get copies.

    Jars on the class path are not copied at the start, and their classes are in the class archive; classes of jars that
    are added later are not.
    """
    if not is_cluster(settings):
        return {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    return {"spark.jars": ",".join(jars)}


def class_options(settings: Settings) -> list[str]:
    """Returns JVM options that use the class archive, if there is one, without a warning if it does not fit."""
    archive = class_archive(settings)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive.exists() else []


def class_archive(settings: Settings) -> Path:
    """Returns the path of the class archive."""
    return settings.jars.parent / "classes" / "spark.jsa"

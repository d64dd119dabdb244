"""Class-data sharing (AppCDS) for Spark's JVM: it starts in two thirds of the time.

A JVM that does some typical work writes its classes to an archive when it ends; later JVMs map it: `twofold setup`
makes it. Without one the platform works, and its JVMs start more slowly. A JVM ignores an archive of another Java, of
other jars, or of jars in another place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.infra.atomic_write import write_atomically
from twofold.infra.java import java
from twofold.infra.process.ports import free_port
from twofold.infra.project.jars import fingerprint
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAMP = "made-for"
TIMEOUT_S = 600
_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def ensure(settings: Settings) -> bool:
    """Creates the class archive unless one fits the current Java and jars.

    Returns:
        Whether it had to be created.

    Raises:
        MissingTool: no Java, or no jars.
        subprocess.SubprocessError: the JVM did not end well.
    """
    archive = class_archive(settings)
    stamp, made_for = archive.with_name(STAMP), _made_for(settings)
    if archive.exists() and stamp.exists() and stamp.read_text() == made_for:
        return False
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        draft = Path(scratch) / archive.name
        command = [sys.executable, "-P", "-m", "twofold.infra.spark.class_data_sharing", str(draft)]
        subprocess.run(command, check=True, timeout=TIMEOUT_S, capture_output=True)
        draft.replace(archive)
    write_atomically(stamp, made_for)
    return True


def _made_for(settings: Settings) -> str:
    import pyspark

    launcher = java()
    # Java repeats the options of its environment here, and its mode with them; they change nothing of the classes.
    bare = {name: value for name, value in os.environ.items() if name not in _OPTIONS}
    ran = subprocess.run([launcher, "-version"], env=bare, capture_output=True, text=True, timeout=30, check=True)
    # The JVM compares the paths of its jars, too, and when they were written.
    package = Path(pyspark.__file__).parent
    places = [str(launcher), str(package), str((package / "jars").stat().st_mtime_ns), str(settings.jars)]
    return "\n".join([*places, ran.stderr, pyspark.__version__, fingerprint(settings, "spark")])


def _record(settings: Settings, archive: Path) -> None:
    """Runs the first work of the platform's JVMs in a JVM that archives its classes when it ends."""
    from pyspark import SparkContext

    from twofold.infra.spark.connect_server import serving_options, token_variable
    from twofold.infra.spark.spark_session import session

    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        home = Path(directory)
        settings = replace(settings, home=home, spark_port=free_port())
        served = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin", **serving_options(settings)}
        options = [f"-XX:ArchiveClassesAtExit={archive}", *(f"-D{name}={value}" for name, value in served.items())]
        os.environ.update(token_variable(settings))
        spark = session(settings, "classes", options)
        _work(spark, home)
        _work_as_client(settings)
        gateway = SparkContext._gateway
        spark.stop()
        if gateway is not None:
            gateway.proc.stdin.close()
            gateway.proc.wait(TIMEOUT_S)


def _work_as_client(settings: Settings) -> None:
    """Runs the first work of commands through the JVM's Connect server, in another process without a JVM."""
    warm = (
        "from twofold.infra.project.settings import Settings; from twofold.infra.spark.spark_client import wait_warm; "
    )
    command = [sys.executable, "-c", f"{warm}wait_warm(Settings.from_environment())"]
    environment = {**os.environ, **settings.environment()}
    subprocess.run(command, env=environment, check=True, timeout=TIMEOUT_S, capture_output=True)


def _work(spark: SparkSession, home: Path) -> None:
    """Writes a Delta table, streams a window of it into another by merges, and reads that."""
    from twofold.infra.spark.typical_work import by_minute, merge, write_rows

    rows = write_rows(spark, home / "source")
    source = spark.readStream.format("delta").load(str(home / "source")).withWatermark("at", "1 minute")
    stream = by_minute(source.dropDuplicatesWithinWatermark(["k", "n"])).writeStream.outputMode("update")
    stream = stream.option("checkpointLocation", str(home / "checkpoint"))
    stream = stream.foreachBatch(lambda batch, _: merge(batch, home / "target"))
    stream.trigger(availableNow=True).start().awaitTermination()
    spark.read.format("delta").load(str(home / "target")).join(rows, "k", "left_semi").where("rows > 0").toArrow()


if __name__ == "__main__":
    _record(Settings.from_environment(), Path(sys.argv[1]))

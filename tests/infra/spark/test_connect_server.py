"""The supervised Spark Connect server: who gets in, what commands see of each other, and what happens when one ends.

What happens when the server itself ends is in `tests/chaos/servers`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import ROOT
from tests.connect_session import remote
from twofold.infra.errors import BadSetting
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_client import find_endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.platform

# A job of one task that shows by a file, ten times a second, that it runs.
LONG_JOB = """
import sys, time
from pathlib import Path
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_client import open_session

def beat(pieces):
    for piece in pieces:
        for number in range(6_000):
            Path(sys_argv[1]).write_text(str(number))
            time.sleep(0.1)
        yield piece

sys_argv = sys.argv
open_session(Settings.from_environment(), "long").range(1).mapInArrow(beat, "id bigint").collect()
"""


@pytest.fixture
def settings(spark_server: Settings) -> Settings:
    """A home in which nothing but a Spark server is supervised."""
    return spark_server


@pytest.fixture
def endpoint(settings: Settings) -> str:
    found = find_endpoint(settings)
    assert found is not None
    return found


@pytest.fixture
def session(settings: Settings, endpoint: str) -> Iterator[SparkSession]:
    with remote(endpoint, settings) as session:
        yield session


def pid(settings: Settings) -> int | None:
    [process] = supervisor.state(settings)
    return process.pid


def test_no_one_gets_in_without_the_token(settings: Settings) -> None:
    for endpoint in ("", "/;token=wrong"):
        with (
            pytest.raises(BadSetting, match="refuses the token"),
            remote(f"sc://localhost:{settings.spark_port}{endpoint}", settings),
        ):
            pass
    assert (settings.home / "spark" / "token").stat().st_mode & 0o777 == 0o600


def test_two_commands_do_not_see_each_others_settings_and_views(
    settings: Settings, endpoint: str, session: SparkSession
) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "7")
    session.range(3).createOrReplaceTempView("mine")
    with remote(endpoint, settings) as other:
        assert other.conf.get("spark.sql.shuffle.partitions") == str(settings.shuffle_partitions)
        assert not other.catalog.tableExists("mine")
        assert other.conf.get("spark.scheduler.pool") != session.conf.get("spark.scheduler.pool")
    assert session.table("mine").count() == 3


def test_a_result_that_is_too_large_fails_its_query_alone(session: SparkSession, settings: Settings) -> None:
    before = pid(settings)
    rows = session.range(0, 8_000_000, 1, 64).selectExpr("uuid() AS a", "uuid() AS b")
    with pytest.raises(Exception, match="maxResultSize"):
        rows.toArrow()
    assert session.range(5).count() == 5
    assert pid(settings) == before


def test_the_jobs_of_a_command_that_is_killed_are_cancelled(settings: Settings, tmp_path: Path) -> None:
    """A command runs until the server has missed it, which takes half a minute."""
    beats = tmp_path / "beats"
    environment = {**os.environ, **settings.environment()}
    command = subprocess.Popen([sys.executable, "-c", LONG_JOB, str(beats)], cwd=ROOT, env=environment)
    _wait(lambda: beats.exists() and beats.read_text() > "", 60)
    command.send_signal(signal.SIGKILL)
    command.wait()

    def is_still() -> bool:
        before = beats.read_text()
        time.sleep(1.5)
        return beats.read_text() == before

    _wait(is_still, 60)


def _wait(condition: object, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.1)

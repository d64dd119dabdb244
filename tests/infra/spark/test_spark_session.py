"""Options of Spark's JVM; no JVM is started."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest

from twofold.infra.errors import BadSetting, SparkUnreachable
from twofold.infra.project.settings import Settings
from twofold.infra.spark import executors
from twofold.infra.spark.spark_session import configuration


@pytest.mark.parametrize(
    ("master", "told", "not_told"),
    [
        ("local[2]", "spark.driver.extraClassPath", "spark.jars"),
        ("spark://m:7077", "spark.jars", "spark.driver.extraClassPath"),
    ],
)
def test_jars_are_on_the_class_path_of_one_machine_and_are_sent_to_many(
    settings: Settings, master: str, told: str, not_told: str
) -> None:
    options = configuration(replace(settings, spark_master=master), [])
    assert "delta-spark" in options[told]
    assert not_told not in options


def test_a_job_hands_over_a_quarter_of_the_heap_at_most(settings: Settings) -> None:
    assert configuration(replace(settings, driver_memory="3g"), [])["spark.driver.maxResultSize"] == str(768 << 20)
    assert configuration(replace(settings, driver_memory="1500M"), [])["spark.driver.maxResultSize"] == str(375 << 20)


def test_memory_without_a_unit_is_refused(settings: Settings) -> None:
    with pytest.raises(BadSetting, match="TWOFOLD_DRIVER_MEMORY='1500': expected a number with a unit"):
        configuration(replace(settings, driver_memory="1500"), [])


def test_a_cluster_without_a_free_core_ends_the_wait(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    application = Mock()
    monkeypatch.setattr(executors, "_FIRST_S", 0.0)
    monkeypatch.setattr(executors, "count", lambda _: 0)
    with pytest.raises(SparkUnreachable, match="spark://m:7077 gave no executor within 0 s"):
        executors.require(application, replace(settings, spark_master="spark://m:7077"))
    application.stop.assert_called_once_with()

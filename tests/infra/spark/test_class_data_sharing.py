"""Spark's JVM maps the classes that `make setup` archived, and does without them where they do not fit."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twofold.infra.java import java
from twofold.infra.project.settings import Settings
from twofold.infra.spark import class_data_sharing
from twofold.infra.spark.spark_session import class_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_jvm_of_a_session_maps_the_archive(spark: SparkSession) -> None:
    assert class_data_sharing.ensure(Settings()) is False, "`make setup` made it"
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert "classes/spark.jsa" in Path(f"/proc/{jvm}/maps").read_text()


def test_a_file_that_is_no_archive_is_passed_over_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr("twofold.infra.spark.spark_session.class_archive", lambda _: archive)
    assert class_options(Settings()) == []
    archive.write_bytes(b"no archive" * 10_000)

    def options_with(*options: str) -> str:
        ran = subprocess.run([java(), *options, "-version"], capture_output=True, text=True, check=True)
        return (ran.stdout + ran.stderr).replace(", sharing", "")

    assert options_with(*class_options(Settings())) == options_with()


def test_the_options_of_a_process_do_not_make_another_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "")
    bare = class_data_sharing._made_for(Settings())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    assert class_data_sharing._made_for(Settings()) == bare


def test_an_archive_for_another_java_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr("twofold.infra.spark.class_data_sharing.class_archive", lambda _: archive)
    made: list[str] = []

    def record(command: list[str], **_: object) -> None:
        made.append(command[-1])
        Path(command[-1]).write_text(f"archive {len(made)}")

    monkeypatch.setattr("twofold.infra.spark.class_data_sharing._made_for", lambda _: "Java 17")
    monkeypatch.setattr("twofold.infra.spark.class_data_sharing.subprocess.run", record)
    assert [class_data_sharing.ensure(Settings()) for _ in range(2)] == [True, False]
    monkeypatch.setattr("twofold.infra.spark.class_data_sharing._made_for", lambda _: "Java 21")
    assert [class_data_sharing.ensure(Settings()) for _ in range(2)] == [True, False]
    assert archive.read_text() == "archive 2"
    assert sorted(file.name for file in tmp_path.iterdir()) == [class_data_sharing.STAMP, "spark.jsa"]

"""The Spark server is warmed once after each start."""

from __future__ import annotations

import os

import pytest

from twofold.infra.process.supervisord import pid_file
from twofold.infra.project.settings import Settings
from twofold.infra.spark import spark_service


def test_a_server_that_was_warmed_since_its_start_is_not_warmed_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(spark_service, "wait_warm", lambda _, *, is_new: asked.append(is_new))
    [wait] = spark_service.SERVICE.ready(settings, None)
    started, warmed = pid_file(settings, "spark"), settings.home / "spark" / "warmed"
    for file in (started, warmed):
        file.parent.mkdir(parents=True)
    wait.run()
    started.touch()
    os.utime(warmed, ns=(1, started.stat().st_mtime_ns - 1))
    wait.run()
    assert asked == [True, True], "it has just started, or was started again"
    wait.run()
    assert asked[2:] == [False]
    started.unlink()
    wait.run()
    assert asked[3:] == [True], "it is about to start"

"""A stream driver whose JVM is killed, as the kernel does where memory is short, ends and can be started again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.settings import Settings
from streaming.progress import read
from tests.chaos.ingest_driver import Driver
from tests.servers import wait_until

pytestmark = pytest.mark.platform


def test_a_driver_ends_with_its_jvm(log: Settings) -> None:
    settings = replace(log, home=log.home / "driver", lake=log.lake_uri)
    driver = Driver(settings)
    try:
        wait_until(lambda: (settings.progress / "flights").exists())
        driver.kill_jvm()
        code, written = driver.wait(60)
    finally:
        driver.end()
    assert code != 0
    assert "The JVM of the stream of flights ended with exit code -9" in written
    [failed] = [p for p in read(settings, "flights") if p.query == "ingest"]
    assert "exit code -9" in failed.error

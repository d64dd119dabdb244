"""The tutorial is executed as it is written, on a platform of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.infra.conftest import free_port
from twofold.infra.project.project import FILE, VARIABLE
from twofold.infra.project.settings import Settings

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The folder of the project that the page makes, and the environment of its commands."""
    folder = tmp_path / "cafe"
    settings = Settings(
        home=folder / ".twofold", kafka_port=free_port(), controller_port=free_port(), spark_port=free_port()
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("TWOFOLD_", "PYTEST_"))}
    # The page installs Twofold; here it is that of this checkout.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**outside, **settings.environment(), "COLUMNS": "200", "PATH": path}
    del environment[VARIABLE]  # found, as by a reader
    yield folder, environment
    execute("twofold down", folder, environment)


def execute(commands: str, place: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.prove
@pytest.mark.platform
def test_every_block_does_what_the_page_shows(project: tuple[Path, dict[str, str]]) -> None:
    """Over 30 s: it starts a broker, a stream and a Spark server, as a reader does."""
    (install, _), (init, _), *blocks = BLOCKS
    folder, environment = project
    assert install.startswith("pip install ")
    ran = execute(init, folder.parent, environment)
    assert ran.returncode == 0, ran.stderr
    (folder / FILE).write_text(f'cache = "{ROOT / ".twofold"}"\n{(folder / FILE).read_text()}')
    differing = []
    for commands, shown in blocks:
        deadline = time.monotonic() + 60  # for what the stream is about to write
        ran = execute(commands, folder, environment)
        while shown and ran.stdout != shown and time.monotonic() < deadline:
            time.sleep(1)
            ran = execute(commands, folder, environment)
        assert ran.returncode == 0, f"{commands}\n{ran.stdout}\n{ran.stderr}"
        if shown and ran.stdout != shown:
            differing.append((commands, ran.stdout))
        if "twofold why" in commands:
            assert "cafe.orders" in ran.stdout, ran.stdout
    assert differing == []

"""The tutorial is executed as it is written, on a platform of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.infra.conftest import free_port
from twofold.infra.project.project import VARIABLE
from twofold.infra.project.settings import Settings

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy of the files of this checkout, set up, and the environment of its commands."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\0"):
        if name and os.path.lexists(ROOT / name):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    (tmp_path / ".twofold").mkdir()
    for made in (".venv", ".twofold/jars", ".twofold/classes"):
        if (ROOT / made).exists():
            (tmp_path / made).symlink_to((ROOT / made).resolve())
    settings = Settings(
        home=tmp_path / ".twofold", kafka_port=free_port(), controller_port=free_port(), spark_port=free_port()
    )
    environment = {
        **os.environ,
        **settings.environment(),
        "COLUMNS": "200",
        VARIABLE: str(tmp_path),
    }
    try:
        yield tmp_path, environment
    finally:
        execute("./twofold down", (tmp_path, environment))


def execute(commands: str, checkout: tuple[Path, dict[str, str]]) -> subprocess.CompletedProcess[str]:
    place, environment = checkout
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
def test_every_block_does_what_the_page_shows(checkout: tuple[Path, dict[str, str]]) -> None:
    """Over 30 s: it starts a broker, a stream and a Spark server, as a reader does."""
    blocks = [(commands, shown) for commands, shown in BLOCKS if commands != "make setup\n"]
    assert len(BLOCKS) - len(blocks) == 1
    differing = []
    for commands, shown in blocks:
        deadline = time.monotonic() + 60  # for what the stream is about to write
        ran = execute(commands, checkout)
        while shown and ran.stdout != shown and time.monotonic() < deadline:
            time.sleep(1)
            ran = execute(commands, checkout)
        assert ran.returncode == 0, f"{commands}\n{ran.stdout}\n{ran.stderr}"
        if shown and ran.stdout != shown:
            differing.append((commands, ran.stdout))
        if "./twofold why" in commands:
            assert "cafe.orders" in ran.stdout, ran.stdout
    assert differing == []

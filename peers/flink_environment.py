"""Makes the Python environment that Flink runs in: `python -m peers.flink_environment`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from twofold.infra.atomic_write import write_atomically
from twofold.infra.errors import MissingTool, TwofoldError
from twofold.infra.java import java
from twofold.infra.project import jars

PLACE = ROOT / ".twofold" / "peers"
PYTHON = PLACE / "venv" / "bin" / "python"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
LOCK = Path(__file__).with_name("flink.lock")
HEAP = "3g"  # as much as the drivers of the other engines have


def ensure() -> None:
    """Have the packages and jars that are pinned here; returns at once when they are there.

    Raises:
        MissingTool: they cannot be had.
    """
    _ensure_packages()
    pinned = jars.pinned(LOCK)
    directory = PLACE / "jars"
    directory.mkdir(parents=True, exist_ok=True)
    if jars.problems(directory, pinned):
        jars.replace(directory, pinned)


def environment() -> dict[str, str]:
    """The variables with which PYTHON runs a module of this package on Flink."""
    connectors = [str(PLACE / "jars" / jar.path) for jar in jars.pinned(LOCK)]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
        "PYTHONPATH": str(ROOT),
        "JAVA_HOME": str(java().resolve().parent.parent),
        "HADOOP_CLASSPATH": os.pathsep.join(connectors),
        "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Xmx{HEAP} -Duser.timezone=UTC",
    }


def _ensure_packages() -> None:
    made_from = PLACE / "venv" / REQUIREMENTS.name
    if made_from.exists() and made_from.read_bytes() == REQUIREMENTS.read_bytes():
        return
    shutil.rmtree(PLACE / "venv", ignore_errors=True)
    install = ["-m", "uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", str(PYTHON)]
    for arguments in (["-m", "venv", "--without-pip", str(PLACE / "venv")], [*install, "-r", str(REQUIREMENTS)]):
        ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        if ran.returncode:
            raise MissingTool(
                f"Flink's Python environment cannot be made: {ran.stderr.strip()[-500:]}",
                hint="The first run needs the network and Python 3.11 to 3.13.",
            )
    write_atomically(made_from, REQUIREMENTS.read_text())


def main() -> int:
    """Make what is missing; the exit code is 0 when all is there."""
    try:
        ensure()
    except TwofoldError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"Flink's environment is in {PLACE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The Java that Spark, Kafka and Ivy run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from twofold.infra.errors import MissingTool

OLDEST, NEWEST = 17, 21


def java(environment: Mapping[str, str] | None = None) -> Path:
    """Finds the `java` launcher of a Java 17 to 21: that of `JAVA_HOME`, else the first one on `PATH`.

    Raises:
        MissingTool: no launcher, or none of these versions; names what was found.
    """
    environment = os.environ if environment is None else environment
    rejected = []
    for launcher in _candidates(environment):
        version = java_version(launcher)
        if version is not None and OLDEST <= version <= NEWEST:
            return launcher
        rejected.append(f"{launcher} is {f'Java {version}' if version else 'no Java that runs'}")
    raise MissingTool(
        f"Java {OLDEST} to {NEWEST} is needed; {'; '.join(rejected) or 'neither JAVA_HOME nor PATH has a java'}.",
        hint=f"Install a Java {OLDEST} or {NEWEST} runtime and set JAVA_HOME to its directory.",
    )


def java_version(launcher: Path) -> int | None:
    """Returns the feature release of a `java` launcher (17 for 17.0.15), or None if it does not run."""
    try:
        ran = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match.group(1)) if match else None


def late_c2(times: int) -> list[str]:
    """Returns JVM options that raise the thresholds of C2, the JVM's second compiler, by this factor.

    C2 uses a third of the CPU of a JVM's first minutes, and most of the code that it compiles then does not run for
    long.
    """
    thresholds = {"Invocation": 5_000, "MinInvocation": 600, "Compile": 15_000, "BackEdge": 40_000}
    return [f"-XX:Tier4{name}Threshold={times * default}" for name, default in thresholds.items()]


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path)


def main() -> int:
    """Checks that this machine has a suitable Java and prints what to do if it has none; returns the exit code."""
    try:
        java()
    except MissingTool as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

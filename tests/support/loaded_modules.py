"""Which modules a program loads, asked of a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping

from tests import ROOT


def loading_none_of(modules: Collection[str], program: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program, which must end well without any of these modules; what it has printed."""
    program += f"\nimport sys; sys.exit(', '.join(sorted({set(modules)!r} & set(sys.modules))) or 0)"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout

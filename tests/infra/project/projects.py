"""Projects of tests: folders with declarations, schemas and settings of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from twofold.infra.project.project import VARIABLE


def in_project(patch: pytest.MonkeyPatch, folder: Path, text: str = "") -> Path:
    """Make the folder a project, with the jars of the checkout, and have this process work on it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "twofold.toml").write_text(f'cache = "{ROOT / ".twofold"}"\n{text}')
    patch.setenv(VARIABLE, str(folder))
    return folder

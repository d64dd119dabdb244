"""Packages of npm that tests alone use."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path


def fetched(package: str, folder: Path) -> Path:
    """The archive of a package."""
    folder.mkdir(parents=True)
    subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, timeout=120)
    [archive] = folder.glob("*.tgz")
    return archive


def file_of(archive: Path, name: str) -> str:
    """The text of a file of the package."""
    with tarfile.open(archive) as packed:
        return packed.extractfile(f"package/{name}").read().decode()  # type: ignore[union-attr]

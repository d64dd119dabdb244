"""The project of a demo: the one that has its domain, or a copy of what the platform brings."""

from __future__ import annotations

import os
from pathlib import Path

from twofold.cli.console import out
from twofold.cli.writing.new_project import write_project
from twofold.infra import PACKAGE
from twofold.infra.project.project import VARIABLE, Project, found_project

FOLDER = "twofold-demo"
_COPIED = ("tables", "notebooks", "tests")


def enter_project(domain: str) -> Path | None:
    """Makes this process, and those that it starts, work on a project with the domain.

    Returns:
        The folder of the demo's copy, below the working folder; None: the project of the working folder has the domain.

    Raises:
        BadArgument: there is something else in that folder.
    """
    if _has(found_project(), domain):
        return None
    folder = Path(FOLDER).resolve()
    if not (folder / "tables" / domain).is_dir():
        write_project(folder, demo_files(), extra="demo")
        out.print(f"Wrote {folder}: the demo, a project like one of yours.", soft_wrap=True)
    os.environ[VARIABLE] = str(folder)
    return folder


def demo_files() -> dict[str, str]:
    """Reads the declarations, notebooks and tests of the demo."""
    demo = PACKAGE / "demo"
    files = [file for part in _COPIED for file in sorted((demo / part).rglob("*.py"))]
    return {str(file.relative_to(demo)): file.read_text("utf-8") for file in [*files, demo / "README.md"]}


def _has(project: Project | None, domain: str) -> bool:
    return project is not None and (project.tables / domain).is_dir()

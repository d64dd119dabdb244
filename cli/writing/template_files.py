"""Reads the templates of the files that commands write; each is named like what it becomes."""

from __future__ import annotations

from pathlib import Path
from string import Template

_FOLDER = Path(__file__).parent / "templates"
_ENDING = ".template"
"""No tool takes a template for the file that it becomes."""


def template(name: str) -> Template:
    return Template((_FOLDER / f"{name}{_ENDING}").read_text("utf-8"))


def project_templates() -> dict[str, Template]:
    """Returns the templates of a new project, by the path of their file in it."""
    paths = sorted((_FOLDER / "project").rglob(f"*{_ENDING}"))
    names = [str(path.relative_to(_FOLDER / "project")).removesuffix(_ENDING) for path in paths]
    return {name: template(f"project/{name}") for name in names}

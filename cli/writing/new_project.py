"""Writes a new project: a topic and a table that run, their tests, and what keeps them right."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.console import out
from twofold.cli.writing.template_files import project_templates, template
from twofold.infra.errors import BadArgument
from twofold.infra.project.home_format import version
from twofold.infra.project.project import FILE

_SAMPLE = ("tables/", "samples/", "tests/")
"""What of the files is a sample, for who has no declarations yet."""
_SHIPPED = ("algebra", "declare", "flights", "refresh", "shop")
"""What each checkout of before version 0.2 has below its tables."""


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The folder to make; its last part names the project.")],
    adopt: Annotated[
        Path | None,
        typer.Option(metavar="CHECKOUT", help="Take the domains, their tests, schemas and home of this checkout."),
    ] = None,
) -> None:
    """Make a project: a folder with declarations that run, with tests and a CI file, for a repository of its own."""
    folder, domains = write_project(Path(name), _adopted(adopt.expanduser().resolve()) if adopt else None)
    out.print(f"Wrote {folder}, with the domain{'s' * (len(domains) > 1)} {', '.join(domains)}.", soft_wrap=True)
    first = f"cd {name}; twofold check finds mistakes, pytest runs its tests, twofold up starts it"
    out.print(f"[dim]Next:[/] {first}; README.md says what then.", soft_wrap=True)


def write_project(
    folder: Path, own: Mapping[str, str] | None = None, *, extra: str = "platform"
) -> tuple[Path, list[str]]:
    """Writes the files of a new project.

    Args:
        own: path -> text of what it declares, and of what differs; None: a sample.
        extra: of Twofold, which it needs.

    Returns:
        The folder, and its domains.

    Raises:
        BadArgument: there is something in the folder, or its name cannot be that of a project.
    """
    folder = folder.expanduser().resolve()
    if not folder.name.replace("-", "_").isidentifier() or not folder.name.isascii():
        raise BadArgument(f"{folder.name!r} cannot name a project.", hint="Use letters, digits, - and _.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadArgument(f"{folder} exists already, and is not empty.", hint="Choose another name.")
    words = {"name": folder.name, "version": version(), "extra": extra}
    files = {name: file.substitute(words) for name, file in project_templates().items()}
    if own is not None:
        files = {**{name: text for name, text in files.items() if not name.startswith(_SAMPLE)}, **own}
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder, sorted({Path(name).parts[1] for name in files if name.startswith("tables/")})


def _adopted(checkout: Path) -> dict[str, str]:
    """Reads the declarations, tests and schemas of the user, with imports of today, and names the home of before.

    Raises:
        BadArgument: the checkout has no domain of the user.
    """
    sources = [checkout, checkout / "demo"]  # the second one since version 0.2
    folders = [folder for source in sources for folder in sorted((source / "tables").glob("[a-z]*"))]
    declared = [file for folder in folders if folder.name not in _SHIPPED for file in sorted(folder.glob("*.py"))]
    if not declared:
        raise BadArgument(
            f"{checkout / 'tables'} has no domain of yours.",
            hint="Name the folder of the checkout into which you put tables.",
        )
    files = {f"tables/{file.parent.name}/{file.name}": file for file in declared}
    tests = [
        checkout / folder / f"test_{file.stem}.py" for file in declared for folder in ("tests/tables", "demo/tests")
    ]
    files |= {f"tests/{file.name}": file for file in tests if file.exists()}
    files |= {str(file.relative_to(source)): file for source in sources for file in (source / "schemas").glob("*/*")}
    own = {name: _IMPORTS.sub(_renamed, file.read_text("utf-8")) for name, file in files.items()}
    if (home := checkout / ".twofold").exists():
        own[FILE] = f"{template(f'project/{FILE}').template}home = {json.dumps(str(home))}  # with the data of before\n"
    return own


_ROOMS = "infra|quality|tables|streaming|outputs|batch|intake|status|page|analysts|dags|cli|traffic"
_IMPORTS = re.compile(rf"^from (?:(tests\.parity)|(tables)|((?:{_ROOMS})(?:\.\w+)+)) import\b", re.MULTILINE)


def _renamed(found: re.Match[str]) -> str:
    """Returns an import of before version 0.2 by the name of today."""
    room = (found[3] or "").replace("infra.settings", "infra.project.settings")
    return f"from {'twofold.testing' if found[1] else f'twofold.{room}'.rstrip('.')} import"

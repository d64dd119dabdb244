"""The project of a command: a folder with declarations, found from where the command is run."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from twofold.infra import PACKAGE
from twofold.infra.errors import BadSetting

FILE = "twofold.toml"
VARIABLE = "TWOFOLD_PROJECT"
_OTHER_FILE, _OTHER_TABLE = "pyproject.toml", "tool.twofold"
_KINDS = {"cache": str, "settings": dict, "sources": str}
"""What the file may hold."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder with declarations, schemas and settings.

    Attributes:
        file: `twofold.toml`, or a `pyproject.toml` that has `[tool.twofold]`.
        settings: name -> value, as the file has them.
        cache: the folder of JVM jars and of archives of classes, which projects share.
        sources: the folder of what is declared: that of the file, unless it names another one.
    """

    file: Path
    sources: Path
    settings: Mapping[str, Any]
    cache: Path

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def tables(self) -> Path:
        """The folder of declarations: one subfolder for each domain."""
        return self.sources / "tables"

    @property
    def schemas(self) -> Path:
        """The folder of schemas that are files: one subfolder for each subject."""
        return self.sources / "schemas"

    @property
    def dags(self) -> Path:
        """The folder of DAGs of one's own."""
        return self.sources / "dags"

    def shown(self, path: Path) -> Path:
        """Shortens the path of a file of the project, or of the platform, for people."""
        real = path.resolve()
        for folder in (self.sources, self.folder, PACKAGE):
            if real.is_relative_to(folder):
                return real.relative_to(folder)
        return path


def project() -> Project:
    """Returns the project of `TWOFOLD_PROJECT`, else that of the working folder or of the nearest folder above it.

    Raises:
        BadSetting: there is none, or its file cannot be read.
    """
    named = os.environ.get(VARIABLE, "")
    return _named(named) if named else _nearest(Path.cwd())


def found_project() -> Project | None:
    """Returns the project; None if this process works on none."""
    try:
        return project()
    except BadSetting:
        return None


@lru_cache
def _named(name: str) -> Project:
    if found := _read(Path(name).expanduser().resolve()):
        return found
    raise BadSetting(
        f"{VARIABLE}={name!r}: expected a folder with a {FILE}; it has none.",
        hint=f"Unset {VARIABLE} to take the nearest project above the working folder.",
    )


@lru_cache
def _nearest(working: Path) -> Project:
    for folder in (working, *working.parents):
        if found := _read(folder):
            return found
    raise BadSetting(
        f"There is no project here: neither {working} nor a folder above it has a {FILE}.",
        hint="`cd` into your project, or make one: `twofold init NAME`.",
    )


def _read(folder: Path) -> Project | None:
    """Reads the file of a project; None if the folder has none."""
    for name, table in ((FILE, ""), (_OTHER_FILE, _OTHER_TABLE)):
        file = folder / name
        if not file.is_file():
            continue
        try:
            document: Any = tomllib.loads(file.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            if table:  # of other tools, which say so
                continue
            raise BadSetting(f"{file}: {error}.", hint="Expected TOML.") from None
        for part in table.split(".") if table else ():
            document = document.get(part)
            if document is None:
                break
        else:
            return _of_document(file, document)
    return None


def _of_document(file: Path, document: Mapping[str, Any]) -> Project:
    if unexpected := [key for key, value in document.items() if not isinstance(value, _KINDS.get(key, ()))]:
        raise BadSetting(
            f"{file}: {unexpected[0]} is not expected.",
            hint="Expected a table of settings, `[settings]`, and perhaps folders, `cache` and `sources`.",
        )
    cache = document.get("cache", "")
    return Project(
        file=file,
        settings=document.get("settings", {}),
        cache=file.parent / Path(cache).expanduser() if cache else _own_cache(),
        sources=file.parent / document.get("sources", ""),
    )


def other_caches(cache: Path) -> list[Path]:
    """Returns the caches of other versions of the platform next to this one, if it is the user's."""
    return [] if cache != _own_cache() else [other for other in cache.parent.iterdir() if other != cache]


def _own_cache() -> Path:
    """Returns the cache of the user, in which versions of the platform with other jars do not meet."""
    of_user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    locked = hashlib.sha256((PACKAGE / "infra" / "project" / "jars.lock").read_bytes()).hexdigest()
    return Path(of_user).expanduser() / "twofold" / locked[:12]

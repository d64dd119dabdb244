"""Reads schemas from files of the project: `schemas/<subject>/<id>.avsc` or `.proto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from twofold.infra.errors import BadDeclaration
from twofold.infra.project.project import found_project

# A constant, as fingerprints of decodings have known it: each follows the functions below.
_PROJECT = found_project()
FOLDER = _PROJECT.schemas if _PROJECT else Path("schemas")
GUIDS = "guids.json"


@dataclass(frozen=True)
class Schema:
    """The text of a schema, and of those that it imports, by import name."""

    text: str
    imports: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SchemaFiles:
    """The schemas of a subject that are files.

    Attributes:
        by_id: the id that records carry -> schema, ascending; the last one is the newest.
        guids: the GUID that records carry in the place of an id -> id.
    """

    subject: str
    by_id: Mapping[int, Schema]
    guids: Mapping[str, int] = field(default_factory=dict)

    @property
    def newest(self) -> Schema:
        """The schema that readers use."""
        return list(self.by_id.values())[-1]

    def find(self, name: int | str) -> Schema | None:
        """Finds the schema of an id or a GUID; None if no file has it."""
        number = self.guids.get(name) if isinstance(name, str) else name
        return None if number is None else self.by_id.get(number)


def read_schemas(subject: str, suffix: str) -> SchemaFiles:
    """Reads the schema files of a subject.

    Raises:
        BadDeclaration: there are none, or a file has another name.
    """
    folder = FOLDER / subject
    paths = [path for path in sorted(folder.glob("*")) if path.name != GUIDS]
    odd = [path.name for path in paths if path.suffix != suffix or not path.stem.isdecimal()]
    if odd or not paths:
        raise BadDeclaration(
            f"schemas/{subject} has {f'the file {odd[0]}' if odd else 'no schema'}; expected files like 1{suffix}.",
            hint="The number is the id that records carry; that of a newer schema is greater.",
        )
    by_id = {int(path.stem): Schema(path.read_text(encoding="utf-8")) for path in paths}
    return SchemaFiles(subject=subject, by_id=dict(sorted(by_id.items())), guids=_guids(subject, by_id))


def _guids(subject: str, by_id: Mapping[int, Schema]) -> dict[str, int]:
    path = FOLDER / subject / GUIDS
    if not path.exists():
        return {}
    try:
        guids = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except msgspec.MsgspecError as error:
        raise BadDeclaration(
            f"schemas/{subject}/{GUIDS}: {error}.", hint='Expected GUID -> id, like {"f4b0...": 2}.'
        ) from None
    unknown = sorted(set(guids.values()) - set(by_id))
    if unknown:
        raise BadDeclaration(f"schemas/{subject}/{GUIDS} names the id {unknown[0]}, of which there is no file.")
    return {guid.lower(): id_ for guid, id_ in guids.items()}

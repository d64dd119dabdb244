"""Declarations for tests, and folders that hold some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic

D = TypeVar("D", Topic, Table)

READINGS = Topic(
    schema={
        "sensor": "string",
        "read_at": "timestamp",
        "value": "double?",
        "count": "int?",
    },
    event_time="read_at",
    message_key="sensor",
    dedup_keys=["sensor"],
)


def bound_as(declaration: D, name: str, domain: str = "plant") -> D:
    """The declaration as the registry would name it."""
    return replace(declaration, domain=domain, name=name, description="For a test.")


def a_topic(**changes: Any) -> Topic:
    """`plant.readings`, with these parameters changed."""
    return bound_as(replace(READINGS, **changes), "readings")


def a_table(**changes: Any) -> Table:
    """`plant.hours`, one row per sensor and hour, with these parameters changed."""

    def hours(readings: Any) -> Any:
        return readings

    parameters: dict[str, Any] = {
        "derive": hours,
        "primary_key": ["sensor", "hour"],
        "event_time": "hour",
        "watermark": "2 hours",
        "closes_at": "closes_at",
        "recompute_by": ["sensor"],
        "depends_within": "1 hour",
    }
    return bound_as(Table(**{**parameters, **changes}), "hours")


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """The folder, with these files in it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


def proved(registry: Registry) -> Registry:
    """The registry, of which nothing is refused.

    Raises:
        BadDeclaration: a file that cannot be loaded, or a table that is not known to give one result.
    """
    return replace(registry, faults={**registry.faults, **registry.unproved}).require_sound()


def edited(text: str, old: str, new: str) -> str:
    """The text of a declaration with `new` for every `old`.

    Raises:
        ValueError: the text has no `old`: a test of that change would test nothing.
    """
    if old not in text:
        raise ValueError(f"no {old!r} in this text:\n{text}")
    return text.replace(old, new)


TOPIC_FILE = '''\
"""Readings of sensors."""
from twofold import Topic

TOPIC = Topic(
    schema={"sensor": "string", "read_at": "timestamp", "value": "double?"},
    event_time="read_at",
    message_key="sensor",
    dedup_keys=["sensor"],
)
'''

TABLE_FILE = '''\
"""The newest reading of each sensor."""
from twofold import table


@table(primary_key=["sensor"], sequence_by=["read_at"], recompute_by=["sensor"])
def latest(readings):
    return readings
'''

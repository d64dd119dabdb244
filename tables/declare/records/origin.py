"""How records come to a topic, as a value of its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Name = str
"""`module:function`, imported when it is called."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How records come to a topic, and what this means for the topic; as it is, producers and `send` write them.

    Attributes:
        columns: of events, that the platform fills -> meaning.
        table: of a captured database, whose changes the records are, or whose rows hold them.
        most_bytes: of a record that the broker takes; None: by the topic's `max_bytes`.
        configs: of the topic on the broker, more than any has.
        topics: lists the specifications of more topics on the broker, of a topic.
        mistakes: yields the unfit of the topics of this origin, each with its error, of all their full names.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    most_bytes: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    topics: Name = ""
    mistakes: Name = ""

    def __repr__(self) -> str:
        return f"Origin({self.table or ''})"


PRODUCED = Origin()

"""The output that keeps a table's rows in a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from quality.rules import Rule
from tables.declare.outputs.output import Output


@dataclass(frozen=True, kw_only=True)
class TopicOutput(Output):
    """A compacted topic, of the output's name in the table's domain."""

    kind: ClassVar[str] = "topic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise self.mistake("topic", self.name, "the name of the topic, without its domain")


def to_topic(
    topic: str,
    *,
    columns: Sequence[str] | None = None,
    where: Sequence[Rule] = (),
    when: Literal["changed", "closed"] = "changed",
    destination: str = "",
) -> TopicOutput:
    """Keeps the rows of the table in a compacted topic: a record a row, and none for a row that is gone.

    Args:
        topic: its name, without the domain, which comes before it; no declared topic has it.
        columns: of the records; None: all.
        where: rules that one row decides: the topic has the rows that keep all of them.
        when: `changed`: the topic has rows as they are now; `closed`: a row is in it once it has closed.
        destination: a name of the file of the setting `destinations`, which has the address of the broker,
            `kafka://host:port`; empty: the platform's own.

    Raises:
        BadDeclaration: a name that a topic cannot have, or a condition that one row does not decide.
    """
    return TopicOutput(name=topic, columns=columns, where=where, when=when, destination=destination)

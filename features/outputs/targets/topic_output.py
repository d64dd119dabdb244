"""The output that keeps a table's rows in a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from twofold.quality.rules import Rule
from twofold.tables.declare.output import Output


@dataclass(frozen=True, kw_only=True)
class TopicOutput(Output):
    """A topic, of the output's name in the table's domain.

    Attributes:
        compacted: the topic has the newest row of each key; else the changes of each commit.
    """

    kind: ClassVar[str] = "topic"
    opens: ClassVar[str] = "twofold.features.outputs.targets.topic_copy:TopicCopy"
    elsewhere: ClassVar[str] = "the broker removes older records within a day; consumers keep what they stored"
    shares_names_of_topics: ClassVar[bool] = True
    compacted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise self.mistake("topic", self.name, "the name of the topic, without its domain")
        if not isinstance(self.compacted, bool):
            raise self.mistake("compacted", self.compacted, "True or False")
        if self.reveal and not self.compacted:
            raise self.mistake("reveal", self.reveal, "none, as records of a topic that is not compacted stay")

    @property
    def is_read(self) -> bool:
        return self.compacted


def to_topic(
    topic: str,
    *,
    compacted: bool = True,
    columns: Sequence[str] | None = None,
    where: Sequence[Rule] = (),
    when: Literal["changed", "closed"] = "changed",
    reveal: Sequence[str] = (),
    destination: str = "",
) -> TopicOutput:
    """Keeps the rows of the table in a compacted topic, or sends each change of a row to a topic.

    Args:
        topic: its name, without the domain, which comes before it; no declared topic has it.
        compacted: a record is a row, and one without a value says that the row is gone; else a record is a change, as
            Debezium writes it: `op` (c, u or d), the row `before` and `after`, and in `source` the table's version.
            Each commit of the table sends its net changes, the first ones are the rows that the table has.
        columns: of the records; None: all.
        where: rules that one row decides: the topic has the rows that keep all of them.
        when: `changed`: the topic has rows as they are now; `closed`: a row is in it once it has closed.
        reveal: columns with values of persons, which the records have decrypted; null once a person is forgotten.
            Refused for a topic that is not compacted, whose records stay.
        destination: a name of the file of the setting `destinations`, which has the address of the broker,
            `kafka://host:port`; empty: the platform's own.

    Raises:
        BadDeclaration: a name that a topic cannot have, or a condition that one row does not decide.
    """
    return TopicOutput(
        name=topic,
        compacted=compacted,
        columns=columns,
        where=where,
        when=when,
        reveal=reveal,
        destination=destination,
    )

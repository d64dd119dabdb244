"""A table of the database that is captured for a topic. Declarations load this module, so it loads no server's code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from twofold.infra.errors import BadDeclaration

PREFIX = "twofold_"
LONGEST_NAME = 63
"""The longest name of a replication slot."""
UNCHANGED = "__twofold_value_did_not_travel__"
"""The placeholder for a large value that an update did not change: PostgreSQL does not send it again."""
MARK_PREFIX = "twofold_mark"
"""Prefix of the messages in the database's log that are marks: places in it that every capture meets."""
OUTBOX_COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")
"""The columns of an outbox table, by Debezium's names."""
INTAKE = ".intake"
"""What the name of a topic ends with that a connector writes to if the records are to be encrypted first."""
LOST = "lost before they were encrypted"
"""The kind of a change that stands for lost ones."""
_NAME = re.compile(rf"{PREFIX}(\d+)_\w+\Z")


@dataclass(frozen=True, kw_only=True)
class Capture:
    """The capture by one connector: a table of the database, from a snapshot on, for one topic.

    Args:
        topic: full name of the topic.
        table: `schema.name`.
        snapshot: 1; each time that the table is captured again, the next number.
        is_outbox: each inserted row holds a record of the topic; its updates and deletes are no records.
        writes_marks: its connector writes the marks that all captures of the database meet.
        is_personal: its connector writes to the intake of the topic, where a relay takes and encrypts the records.
        largest_record: bytes that a record of the connector may have, those included that are refused into quarantine.
        columns: column -> the declared type, without a size; of arrays that of their elements. None of an outbox.
        primary_key: as declared; none of an outbox.
    """

    topic: str
    table: str
    snapshot: int = 1
    is_outbox: bool = False
    writes_marks: bool = False
    is_personal: bool = False
    largest_record: int = 1 << 20
    columns: Mapping[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()

    @property
    def written_topic(self) -> str:
        """The topic that its connector writes to."""
        return f"{self.topic}{INTAKE}" if self.is_personal else self.topic

    @property
    def name(self) -> str:
        """The name of the connector, its slot and its publication."""
        return f"{PREFIX}{self.snapshot}_{self.topic.replace('.', '_')}"


def unfit_names(topics: Iterable[str]) -> Iterator[tuple[str, BadDeclaration]]:
    """Yields the captured topics whose connector names would be invalid or ambiguous, each with its error.

    Args:
        topics: full names.
    """
    by_name: dict[str, list[str]] = {}
    for topic in topics:
        by_name.setdefault(Capture(topic=topic, table="", snapshot=100).name, []).append(topic)
    for name, sharing in by_name.items():
        for topic in sharing:
            if len(name) > LONGEST_NAME:
                yield (
                    topic,
                    BadDeclaration(
                        f"{topic}, which is captured, has {len(topic)} letters; expected at most "
                        f"{LONGEST_NAME - len(name) + len(topic)}, as a replication slot is named after it.",
                        hint="Give its file or its folder a shorter name.",
                    ),
                )
            elif len(sharing) > 1:
                yield (
                    topic,
                    BadDeclaration(
                        f"{' and '.join(sharing)}, which are captured, would share the replication slot "
                        f"{Capture(topic=topic, table='').name}: in its name a dot is an underscore.",
                        hint="Give one of the files another name.",
                    ),
                )


def again(topic: str) -> str:
    """Returns the hint to capture a table again, for tables that may lack changes."""
    return f"`twofold recapture {topic}` captures the table again"  # not COMMAND: decodings say it


def snapshot_number(name: str) -> int:
    """Parses the number of the snapshot in the name of a capture; 1 for any other name."""
    match = _NAME.match(name)
    return int(match[1]) if match else 1

"""What is captured: a table of the database for a topic. Declarations load it, so it loads no server's code."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "twofold_"
LONGEST_NAME = 63
"""Of a replication slot."""
UNCHANGED = "__twofold_value_did_not_travel__"
"""What stands for a large value that an update did not touch: PostgreSQL does not send it again."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What one connector captures: a table of the database, from a snapshot on, for one topic.

    Args:
        topic: full name of the topic.
        table: `schema.name`.
    """

    topic: str
    table: str

    @property
    def name(self) -> str:
        """Of the connector, its slot and its publication."""
        return f"{PREFIX}{self.topic.replace('.', '_')}"

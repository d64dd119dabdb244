"""The base class of the records that a source of traffic sends."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class TrafficRecord(msgspec.Struct, frozen=True):
    """A record of a topic; its field `at` is the event time.

    Attributes:
        topic: full name.
        keyed_by: the field with the key.
    """

    topic: ClassVar[str]
    keyed_by: ClassVar[str]

    @property
    def key(self) -> str:
        """The key by which the record is partitioned."""
        return str(getattr(self, self.keyed_by))

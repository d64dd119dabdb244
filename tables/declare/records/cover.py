"""The cover of values of records: what no log has in the clear, and how it is shown to who may see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from twofold.infra.project.feature import features
from twofold.tables.declare.records.origin import Name

if TYPE_CHECKING:
    import pyarrow as pa
    from kafka import KafkaProducer

    from twofold.infra.delta.lake import Lake
    from twofold.infra.project.settings import Settings
    from twofold.infra.rows.rows import Rows

Seal = Callable[[str, bytes | None], bytes | None]
"""Covers what is to be covered of a record: full name of its topic, value -> value."""


class CoveredType(str):
    """The type of a column with values that are covered, or that are computed of some before these are.

    Attributes:
        completed: returns a topic with the rules that refuse uncovered values, or refuses the topic.
    """

    completed: ClassVar[Name]
    is_computed: ClassVar[bool] = False

    def __str__(self) -> str:
        return self[:]


class Reader(Protocol):
    """Shows covered values to one reader; the ledger of accesses has how many before."""

    last_end: Callable[[], int]
    close: Callable[[], None]

    def reveal(self, column: pa.ChunkedArray, use: int, ended_after: int | None = None) -> pa.Array: ...
    def values(self, texts: Iterable[str | None], ended_after: int | None) -> tuple[list[str | None], set[bytes]]: ...


class Cover(Protocol):
    """Covers values in the records of a topic.

    Attributes:
        whole: whether a quarantined record is covered as a whole, in DuckDB's SQL.
    """

    whole: ClassVar[str]

    def __init__(self, topic: Any) -> None: ...

    def quarantined(self, rows: Rows, settings: Settings) -> Rows:
        """Covers those of quarantined records, by a column `value`, that have something in the clear."""

    def send_again(self, lake: Lake, producer: KafkaProducer) -> object:
        """Sends quarantined records again that are covered as a whole; returns what became of them, for people."""

    def end_due(self, settings: Settings) -> bool:
        """Ends for good what is due; False: nothing is left to do then."""

    @staticmethod
    def prepare(settings: Settings) -> None:
        """Makes what is needed to cover the first record; nothing if it is there."""

    @staticmethod
    def require(settings: Settings, topics: Iterable[Any]) -> None:
        """Refuses topics of which the log has in the clear what they cover now, or covered once."""

    @staticmethod
    def sealing(settings: Settings, topics: Iterable[Any]) -> AbstractContextManager[Seal]:
        """Yields what covers records of these topics, and leaves those of others as they are."""

    @staticmethod
    def reader(settings: Settings, purpose: str, *, of_copy: bool = False) -> Reader:
        """Opens what shows values, to a person or to the copy of a table."""

    @staticmethod
    def last_end(settings: Settings) -> int:
        """Returns the number of the last end of values that were shown, by the lake alone; 0: none has ended."""


def find_cover() -> type[Cover]:
    """Returns the class of what covers values, of the one feature that has it."""
    [name] = [feature.cover for feature in features() if feature.cover]
    return cast("type[Cover]", resolve_name(name))

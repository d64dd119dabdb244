"""Columns that a column is made of, and that are made of it, over all tables: from the plan of each function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Declared(Protocol):
    """A declared topic or table with its columns, such as `status.catalog.Entry`."""

    @property
    def columns(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def lineage(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def influences(self) -> Mapping[str, Sequence[str]]: ...


class Place(NamedTuple):
    """A column of a topic or table, by its full name."""

    table: str
    column: str

    @classmethod
    def parse(cls, name: str) -> Place:
        """Reads `domain.table.column`; a column's name may have dots in it."""
        domain, _, rest = name.partition(".")
        table, _, column = rest.partition(".")
        return cls(f"{domain}.{table}", column)


class ColumnLineage:
    """The columns of a catalog, and how they depend on each other.

    Attributes:
        decides: column -> what it decides -> the tables for whose rows it does.
    """

    def __init__(self, catalog: Mapping[str, Declared]) -> None:
        self._sources, self._readers = dict[Place, list[Place]](), defaultdict[Place, list[Place]](list)
        self.decides = defaultdict[Place, dict[str, list[str]]](dict)
        for table, entry in catalog.items():
            for column, names in entry.lineage.items():
                self._sources[Place(table, column)] = sources = [Place.parse(name) for name in names]
                for source in sources:
                    self._readers[source].append(Place(table, column))
            for what, names in entry.influences.items():
                for name in names:
                    self.decides[Place.parse(name)].setdefault(what, []).append(table)

    def sources(self, place: Place) -> list[Place]:
        """Returns the columns that its value is made of directly; none for a topic's."""
        return self._sources.get(place, [])

    def readers(self, place: Place) -> list[Place]:
        """Returns the columns whose values are made of it directly."""
        return self._readers.get(place, [])

    def family(self, place: Place) -> dict[Place, list[Place]]:
        """Returns a column, all that it is made of and all that is made of it, each with its sources among them."""
        places = dict.fromkeys([*_beyond(place, self.sources), *_beyond(place, self.readers)])
        return {place: [source for source in self.sources(place) if source in places] for place in places}


def _beyond(place: Place, step: Callable[[Place], Sequence[Place]]) -> list[Place]:
    reached: dict[Place, object] = {place: None}
    ahead = [place]
    while ahead:
        new = [place for place in step(ahead.pop()) if place not in reached]
        reached |= dict.fromkeys(new)
        ahead += new
    return list(reached)

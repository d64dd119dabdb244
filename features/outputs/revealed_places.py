"""The ledger of the places that outputs have revealed values of persons to, written before the first value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import described

if TYPE_CHECKING:
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.output import Output
    from twofold.tables.declare.table import Table

REVEALED = "ledger.revealed"
_PLACE = ["table", "output", "kind", "destination"]
SCHEMA = described(
    "One row per place to which an output reveals values of persons, and place that has none any more. Written "
    "before the first value; and by `twofold outputs erase`.",
    [
        ("table", pa.string(), "full name of the table"),
        ("output", pa.string(), "name of the output"),
        ("kind", pa.string(), "what holds the copy"),
        ("destination", pa.string(), "name of its address; empty: the place that the kind has by default"),
        ("is_gone", pa.bool_(), "whether nothing is there any more"),
        ("recorded_at", pa.timestamp("us", "UTC"), "when the row was written"),
    ],
)


class Place(NamedTuple):
    """A place to which an output has revealed values, declared today or not.

    Attributes:
        table: full name.
        output: its name.
        kind: what holds the copy.
        destination: as the output declared it.
    """

    table: str
    output: str
    kind: str
    destination: str

    @classmethod
    def declared(cls, table: Table, output: Output) -> Place:
        """Returns the place of a declared output."""
        return cls(table.full_name, output.name_for(table.name), output.kind, output.destination)

    def __str__(self) -> str:
        return f"{self.table}: {self.output}"

    @property
    def domain(self) -> str:
        return self.table.partition(".")[0]


def revealed_places(lake: Lake) -> list[Place]:
    """Returns the places that may have values in the clear, in order."""
    if not lake.exists(REVEALED):
        return []
    rows = sorted(select(lake.open(REVEALED), SCHEMA.names).to_pylist(), key=lambda row: row["recorded_at"])
    is_gone = {Place(*(row[name] for name in _PLACE)): row["is_gone"] for row in rows}
    return sorted(place for place, gone in is_gone.items() if not gone)


def note_revealed(lake: Lake, place: Place, *, is_gone: bool = False) -> None:
    """Records that a place is about to have values in the clear, or has them no more; once."""
    lake.ensure(REVEALED, SCHEMA, statistics=["table", "output"])

    def new() -> pa.Table:
        row = {**place._asdict(), "is_gone": is_gone, "recorded_at": datetime.now(UTC)}
        return pa.Table.from_pylist([row] if (place in revealed_places(lake)) == is_gone else [], SCHEMA)

    Writer(lake, REVEALED, keep_small=compact_without_history).append_new(f"revealed/{place}", new)
    lake.settle(REVEALED, lake.version(REVEALED))

"""The ends of persons' keys as facts of the lake, which a store of keys that is put back cannot undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake, described
from twofold.infra.errors import BadArgument

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings

FORGOTTEN = "ledger.forgotten"
SCHEMA = described(
    "One row per end of a key, and person, look, and place that holds values of the person; no id is in it. Written"
    " before the key goes, and once it has ended, by `forget --now` and `forget --certificate`.",
    [
        ("ref", pa.string(), "the person: a keyed hash of kind and id, which `forget KIND ID --ask` prints"),
        ("kind", pa.string(), "kind of the person; `_day`: it was the key of a day"),
        ("forgotten_no", pa.int64(), "number of the end of the key"),
        ("place", pa.string(), "full name of the table; of an output, its table's and its own; empty: the end itself"),
        (
            "part",
            pa.string(),
            "`events`, `quarantine`, `table`, `ledger`, or the kind of output; `key`: the end itself",
        ),
        ("rows", pa.int64(), "rows with values of the person, which could be read before"),
        ("readable", pa.int64(), "how many of them can be read now; null: the copy did not answer"),
        ("recorded_at", pa.timestamp("us", "UTC"), "when the row was written"),
    ],
)


class End(NamedTuple):
    """The end of a key.

    Attributes:
        ref: whose key it was, as ledgers name one.
        kind: of the person.
        number: of the end.
    """

    ref: str
    kind: str
    number: int


class EndedKeys:
    """The ends that the ledger of a lake has; a copy of tables has those of the lake that it is in."""

    def __init__(self, settings: Settings) -> None:
        self._lake = Lake(replace(settings, lake=Lake(settings).live_uri))

    def mark(self) -> int:
        """Returns a number that another one replaces once the ledger changes; 0: there is none."""
        try:
            version = self._lake.version(FORGOTTEN)
        except BadArgument:
            return 0
        return int(self._lake.commit_digest(FORGOTTEN, version)[:7] or "1", 16)

    def read(self) -> list[End]:
        """Returns the ends of all keys, each with its greatest number."""
        if not self._lake.exists(FORGOTTEN):
            return []
        rows = select(self._lake.open(FORGOTTEN), ["ref", "kind", "forgotten_no"], "forgotten_no IS NOT NULL")
        found = rows.group_by(["ref", "kind"]).aggregate([("forgotten_no", "max")])
        return [End(row["ref"], row["kind"], row["forgotten_no_max"]) for row in found.to_pylist()]

    def last(self) -> int:
        """Returns the number of the last end of a person's key; 0: none has ended."""
        return max((end.number for end in self.read() if not end.kind.startswith("_")), default=0)

    def add(self, ends: Sequence[End]) -> None:
        """Appends ends, on disk once this returns."""
        if not ends:
            return
        self._lake.ensure(FORGOTTEN, SCHEMA, statistics=["ref", "forgotten_no"])
        now = datetime.now(UTC)
        rows = [(*end, "", "key", 0, 0, now) for end in ends]
        new = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
        Writer(self._lake, FORGOTTEN, keep_small=compact_without_history).append_new("ends", lambda: new)
        self._lake.settle(FORGOTTEN, self._lake.version(FORGOTTEN))

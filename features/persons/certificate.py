"""Certifies that a person is forgotten: what was found where, by counts, and which copies are elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import pyarrow as pa

from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.revealed_places import Place, revealed_places
from twofold.features.persons.keys.ended_keys import FORGOTTEN, SCHEMA
from twofold.features.persons.keys.key_store import KeyState, KeyStore
from twofold.features.persons.person_rows import rows_of_key
from twofold.infra import COMMAND
from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import TwofoldError
from twofold.tables.declare.output import Output, kinds
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.output_view import View
from twofold_algebra.sql.names import DATAFUSION

_ALWAYS = (
    f"Older backups of the keys have the key, until `{COMMAND} keys rotate` and the end of the old key of keys.",
    "Results of queries and exports are not called back.",
)
_REMOVED = f"`{COMMAND} outputs erase '{{place}}'` empties it; with --gone it only says that nothing is there any more."
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class HeldRows:
    """The rows of a person in a place.

    Attributes:
        place: full name of a table; of an output, its table's and its own.
        part: `events`, `quarantine`, `table`, `ledger`, or the kind of output.
        rows: rows that have values of the person; an output's, as it has them without the end of the key.
        readable: how many of these can be read now; None: the copy does not answer.
    """

    place: str
    part: str
    rows: int
    readable: int | None


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The proof that a person is forgotten, or before that what would be.

    Attributes:
        ref: the person, as ledgers name one.
        forget_at: when the key ends, or ended; None: it does not.
        forgotten_no: the number of its end; None: the key has not ended.
        elsewhere: where values can still be, that the platform does not reach.
    """

    ref: str
    kind: str
    forget_at: datetime | None
    forgotten_no: int | None
    found: Sequence[HeldRows]
    elsewhere: Sequence[str]

    @property
    def is_complete(self) -> bool:
        """Whether the key has ended, and nothing can be read any more."""
        return self.forgotten_no is not None and not any(held.readable != 0 for held in self.found)


def certify(lake: Lake, registry: Registry, store: KeyStore, ref: str, state: KeyState) -> Certificate:
    """Counts what is held of a person, where that is not in the ledger yet; an end of the key is written there.

    Args:
        ref: of the person, whose key has this state.
    """
    found = _recorded(lake, ref) if state.is_forgotten else []
    if not found or any(held.readable != 0 for held in found):
        found = _look(lake, registry, store, state)
        if state.is_forgotten:
            _record(lake, ref, state, found)
    copies = [f"{held.place}: {kinds()[held.part].elsewhere}." for held in found if held.part in kinds()]
    for place in _undeclared(lake, registry):
        copies.append(f"{place}: it was revealed there, and is not declared so. {_REMOVED.format(place=place)}")
    at_ms = state.forget_at_ms
    return Certificate(
        ref=ref,
        kind=state.kind,
        forget_at=None if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC),
        forgotten_no=state.forgotten_no,
        found=found,
        elsewhere=[*copies, *_ALWAYS],
    )


def wait_for_copies(lake: Lake, registry: Registry, forgotten_no: int, patience_s: float) -> bool:
    """Waits until all copies that reveal values are without those of an end of keys; False if some are not by then."""
    deadline = time.monotonic() + patience_s
    followed = [(table, output) for table, output in _revealing(lake, registry) if output.reveal or output.is_read]
    while not all(_is_revised(lake, *pair, forgotten_no) for pair in followed):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _look(lake: Lake, registry: Registry, store: KeyStore, state: KeyState) -> list[HeldRows]:
    found = []
    for name in sorted(lake.names()):
        part = "events" if name in registry.topics else "ledger" if name.startswith("ledger.") else "table"
        rows = rows_of_key(lake.open(name).scan(), store, state.key_id)
        if len(rows.found):
            part = "quarantine" if name.endswith(QUARANTINE) else part
            found.append(HeldRows(place=name, part=part, rows=len(rows.found), readable=rows.readable))
    for table, output in _revealing(lake, registry):
        if lake.exists(table.full_name):
            found.append(_held(lake, store, state, table, output))
    for place in _undeclared(lake, registry):
        held = [lake.open(place.table).scan()] if lake.exists(place.table) else []
        count = sum(len(rows_of_key(scanned, store, state.key_id).found) for scanned in held)
        found.append(HeldRows(place=str(place), part=place.kind, rows=count, readable=None))
    return found


def _held(lake: Lake, store: KeyStore, state: KeyState, table: Table, output: Output) -> HeldRows:
    """Counts the rows of a copy that have, or had, values of a key."""
    rows = rows_of_key(lake.open(table.full_name).scan(), store, state.key_id, output.reveal).found
    readable: int | None = 0
    try:
        position = open_target(lake, table, output).position()
        rows = View.declared(table, output).rows(rows, position.closed_ms if position else None)
        if not _is_revised(lake, table, output, state.forgotten_no):
            readable = len(rows) or None  # the key by which it was encrypted may be lost
    except TwofoldError:
        readable = None
    name = f"{table.full_name}: {output.name_for(table.name)}"
    return HeldRows(place=name, part=output.kind, rows=len(rows), readable=readable)


def _is_revised(lake: Lake, table: Table, output: Output, forgotten_no: int | None) -> bool:
    """Whether a copy has no value of a key that ended by that number, or has nothing at all."""
    try:
        target = open_target(lake, table, output)
        position = target.position()
    except TwofoldError:
        return False
    if target.has_another:
        return False
    if not output.reveal and position is not None:
        # Nothing is sent to a receiver any more that takes back what was sent.
        return output.is_read and position.heading is None and not View.parsed(position.definition).reveal
    if position is None:
        return True
    return forgotten_no is not None and position.heading is None and position.forgotten >= forgotten_no


def _revealing(lake: Lake, registry: Registry) -> list[tuple[Table, Output]]:
    """Returns the declared outputs that reveal values, or have done so."""
    places = revealed_places(lake)
    return [
        (table, output)
        for table, output in registry.outputs()
        if output.reveal or Place.declared(table, output) in places
    ]


def _undeclared(lake: Lake, registry: Registry) -> list[Place]:
    """Returns the places that values were revealed to, and that no declared output has."""
    declared = {Place.declared(*pair) for pair in registry.outputs()}
    return [place for place in revealed_places(lake) if place not in declared]


def _recorded(lake: Lake, ref: str) -> list[HeldRows]:
    """Returns what the newest look of the ledger found."""
    if not lake.exists(FORGOTTEN):
        return []
    rows = select(lake.open(FORGOTTEN), SCHEMA.names, f"ref = {DATAFUSION.literal(ref)}").to_pylist()
    looks = [row for row in rows if row["place"]]
    newest = max((row["recorded_at"] for row in looks), default=None)
    last = [row for row in looks if row["recorded_at"] == newest]
    return [HeldRows(**{name: row[name] for name in ("place", "part", "rows", "readable")}) for row in last]


def _record(lake: Lake, ref: str, state: KeyState, found: Sequence[HeldRows]) -> None:
    """Appends a look to the ledger, unless the newest one found the same."""
    lake.ensure(FORGOTTEN, SCHEMA, statistics=["ref", "forgotten_no"])
    known = {"ref": ref, "kind": state.kind, "forgotten_no": state.forgotten_no, "recorded_at": datetime.now(UTC)}

    def new() -> pa.Table:
        rows = [] if _recorded(lake, ref) == list(found) else [{**known, **asdict(held)} for held in found]
        return pa.Table.from_pylist(rows, SCHEMA)

    Writer(lake, FORGOTTEN, keep_small=compact_without_history).append_new("looks", new)

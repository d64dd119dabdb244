"""Compares the database's catalog with a capture: tables that no connector can follow, and tables that changed.

A connector reads the log of one table, which its publication knows by OID. Changes of the catalog alone, such as a
replaced table or a detached partition, are in no log. Therefore the catalog is noted before the snapshot, and compared
with the current one at each check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from twofold.features.capture.captured_table import OUTBOX_COLUMNS, Capture
from twofold.features.capture.table_catalog import CatalogColumn, CatalogTable, has_rows_from_before
from twofold.infra import COMMAND, DOCS
from twofold.infra.project.settings import Settings

_READ_AS = {"date": "date", "timestamp_ntz": "timestamp without time zone", "binary": "bytea"}
"""Declared type -> the one type of PostgreSQL whose values Debezium writes so: as days, microseconds, or base64."""
_TIME = "time without time zone"
SIZE = re.compile(r"\(\d+(?:,-?\d+)?\)")


def unfit_table(capture: Capture, table: CatalogTable) -> Iterator[tuple[str, str]]:
    """Yields the reasons why changes of a table cannot be captured as declared, each with a remedy."""
    lost = [part.name for part in table.parts.values() if not part.is_logged]
    if lost:
        yield (
            f"{', '.join(lost)}: changes of foreign and unlogged tables are not in the database's log.",
            "ALTER TABLE ... SET LOGGED, or capture a table without such partitions.",
        )
    if not table.is_partitioned and len(table.parts) > 1:
        children = [part.name for part in table.parts.values() if part.since]
        yield (
            f"{', '.join(children)} inherit from {capture.table}: a snapshot has their rows, and changes do not.",
            "Partitions instead, or a table from which no other one inherits.",
        )
    if capture.is_outbox:
        names = [column.name for column in table.columns]
        missing = [name for name in OUTBOX_COLUMNS if name not in names]
        if missing:
            yield (
                f"the outbox {capture.table} has no column {', '.join(missing)}; expected {', '.join(OUTBOX_COLUMNS)}.",
                f"Add the columns, then {COMMAND} up.",
            )
        return
    yield from _unfit_key(capture, table)
    for column in table.columns:
        declared = capture.columns.get(column.name)
        if declared and not is_read_as(declared, column):
            yield (
                f"{column.name} is {column.type} in {capture.table}, which is not read as the declared {declared}.",
                (
                    f"Declare the type of the column, {DOCS}/how-to/capture-a-database.md#types, then {COMMAND} up and "
                    f"`{COMMAND} recapture {capture.topic}`."
                ),
            )


def _unfit_key(capture: Capture, table: CatalogTable) -> Iterator[tuple[str, str]]:
    """Yields the faults of the key that identifies the rows of a table, each with a remedy."""
    if not table.key:
        yield (
            f"{capture.table} has no primary key: once it is captured, PostgreSQL refuses to update and delete.",
            f"ALTER TABLE {capture.table} ADD PRIMARY KEY (...).",
        )
    elif capture.primary_key and {*table.key} != {*capture.primary_key}:
        yield (
            (
                f"the primary key of {capture.table} is {', '.join(table.key)}; declared is "
                f"{', '.join(capture.primary_key)}, by which changes of several rows would be those of one."
            ),
            f"Declare primary_key={table.key}, then {COMMAND} up and `{COMMAND} recapture {capture.topic}`.",
        )
    elif table.is_deferrable:
        yield (
            (
                f"the primary key of {capture.table} is deferrable: two rows may have one key within a transaction, "
                "and their changes cannot be distinguished."
            ),
            "Make the primary key one that is not deferrable.",
        )
    unkeyed = [part.name for part in table.parts.values() if part.identity not in ("d", "f")]
    if unkeyed:
        yield (
            f"changes of {', '.join(unkeyed)} do not have the primary key of the row before.",
            "ALTER TABLE ... REPLICA IDENTITY DEFAULT, or FULL.",
        )


def is_read_as(declared: str, column: CatalogColumn) -> bool:
    """Whether the declared type reads the values of a column correctly, or refuses them.

    The connector's JSON has no types: a date is a number of days, a time one of microseconds, bytes are text.

    Args:
        declared: without a size, as `decimal`; the element type for arrays.
    """
    kind = SIZE.sub("", column.type).removesuffix("[]")
    if declared in _READ_AS:
        return kind == _READ_AS[declared]
    return kind not in _READ_AS.values() and (kind != _TIME or declared == "long")


def lost_since(settings: Settings, capture: Capture, noted: CatalogTable | None, today: CatalogTable) -> str:
    """Describes the change that has no change record since the snapshot; empty if there was none.

    Args:
        noted: the catalog before the snapshot; partitions and files as of the last check.

    Raises:
        DatabaseUnreachable: retryable.
    """
    table = capture.table
    if noted and today.oid != noted.oid:
        return f"{table} is another table than the one that was captured (OID {today.oid}, then {noted.oid})"
    if today.published is None:
        return f"{table} is not in the publication {capture.name}: its changes are not captured"
    if noted is None:
        return f"the publication {capture.name} was made again: changes of {table} may be lost"
    if today.system != noted.system:
        return f"the database is another one, of system identifier {today.system} in place of {noted.system}"
    if today.timeline != noted.timeline and settings.slot_failover != "on":
        return f"the database was restored: its timeline is {today.timeline} in place of {noted.timeline}"
    if today.named != noted.named:
        return f"{table} was renamed or given another owner, and has its name again: changes may be lost"
    if today.published != noted.published:
        return f"the publication {capture.name} was altered: changes of {table} may be lost"
    return _parts_changed(settings, capture, noted, today) or _columns_changed(capture, noted, today)


def _parts_changed(settings: Settings, capture: Capture, noted: CatalogTable, today: CatalogTable) -> str:
    for oid, part in today.parts.items():
        before = noted.parts.get(oid)
        is_same = before is not None and before.since == part.since
        if not is_same and not part.is_new:
            return f"{part.name} was attached to {capture.table}: no change says that it brought rows"
        # Deleted rows of an outbox do not matter, and rewritten ones were sent.
        if before is None or before.file == part.file or capture.is_outbox:
            continue
        if part.inserted is not None and part.inserted == before.inserted:  # it was empty, and is
            continue
        # A VACUUM FULL keeps the writer of a row; a rewrite or removal of all rows leaves no earlier ones.
        if not has_rows_from_before(settings, oid, noted.transaction):
            return f"{part.name} was truncated or rewritten, as by ALTER COLUMN ... TYPE: no change says its rows"
    gone = [part.name for oid, part in noted.parts.items() if oid not in today.parts]
    if gone and not capture.is_outbox:
        return f"{', '.join(gone)} was detached from {capture.table}, or dropped: no change says that its rows are gone"
    return ""


def _columns_changed(capture: Capture, noted: CatalogTable, today: CatalogTable) -> str:
    numbers = [{column.name: column.number for column in table.columns} for table in (noted, today)]
    other = [name for name in capture.columns if numbers[0].get(name) != numbers[1].get(name)]
    if other:
        return f"{', '.join(other)} of {capture.table} was added, dropped or renamed: no change says its values before"
    return ""


def to_note(noted: CatalogTable, today: CatalogTable) -> CatalogTable | None:
    """Returns the catalog to note after a check without findings; None if the noted one is still good.

    New partitions are noted, so that their end is detected; the position of the log is noted once a day, to recognize
    the next rewrite. Columns stay those of the snapshot.
    """
    now = replace(today, columns=noted.columns)
    return None if replace(now, transaction=noted.transaction) == noted else now

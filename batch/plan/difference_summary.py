"""Summarizes a row difference: counts, days, hot spots, changed columns, samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.infra.delta.delta_writer import BEFORE, CHANGE
from twofold.infra.duckdb_session import duckdb_utc, parquet
from twofold.tables.refresh.json_values import to_plain_json
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SAMPLES = 20
_VALUES = 200  # of a column that can be a segment
_SHARE = 0.5  # of the changed rows, that a segment has at least
_AHEAD = 0.2  # of its share in the whole table


def summarise(
    difference: Path, table: Callable[[], object], key: Sequence[str], event_time: str | None
) -> Mapping[str, Any]:
    """Summarizes the effect of a difference on a table.

    Args:
        difference: a Parquet file, or a folder of them, with the columns of `PublishedTable.difference`.
        table: returns the old rows, which are read once from the first to the last.
        event_time: the column by which days are counted; None: they are not counted.

    Returns:
        JSON values. `days`: day, inserted, updated, deleted; an update may count for two days. `segments`: column,
        value, share of the changed rows and share of all rows, if the first is much greater. `columns`: column, number
        of updated rows whose value changes, and `key`, `before`, `after` of one row; columns with most changes come
        first. `totals`: for number columns, the sums of all rows before and after. `samples`: change, key, and values
        before and after by column; chosen by a hash of the key, so that they are the same each time.
    """
    connection = duckdb_utc()
    connection.execute(f"CREATE OR REPLACE TEMP VIEW changed AS FROM {parquet(difference)}")
    types = {name: str(kind) for name, kind, *_ in connection.execute("DESCRIBE changed").fetchall()}
    columns = [c for c in types if c != CHANGE and not c.startswith(BEFORE)]
    others = [c for c in columns if c not in key]
    connection.register("everything", table())
    there = {name: str(kind) for name, kind, *_ in connection.execute("DESCRIBE everything").fetchall()}
    both = [c for c in columns if there.get(c) == types[c]]
    try:
        return {
            "days": _days(connection, event_time, types) if event_time and event_time in columns else [],
            "segments": _segments(connection, table, both, types),
            "columns": _columns(connection, key, others),
            "totals": _totals(connection, table, [c for c in both if c not in key], types),
            "samples": _samples(connection, key, others),
        }
    finally:
        connection.execute("DROP VIEW changed")


def column_changes(
    difference: Path, before: Mapping[str, str], after: Mapping[str, str]
) -> Mapping[str, Sequence[str]]:
    """Describes the columns that a table gains or loses, and those with a changed name or type.

    A column counts as renamed if a new column of the same type has the same value in each row.

    Args:
        difference: as for `summarise`, with the columns of both sides.
        before, after: column -> its type.
    """
    new, gone = ([c for c in one if c not in other] for one, other in ((after, before), (before, after)))
    renamed: dict[str, str] = {}
    for was, becomes in ((was, becomes) for was in gone for becomes in new):
        if before[was] == after[becomes] and was not in renamed and becomes not in renamed.values():
            differs = f"{DUCKDB.name(becomes)} IS DISTINCT FROM {DUCKDB.name(BEFORE + was)}"
            sql = f"SELECT count(*) FROM {parquet(difference)} WHERE {CHANGE} = 'update' AND {differs}"
            if duckdb_utc().execute(sql).fetchone() == (0,):
                renamed[was] = becomes
    kinds = {
        "new": [f"{c} {after[c]}" for c in new if c not in renamed.values()],
        "gone": [f"{c} {before[c]}" for c in gone if c not in renamed],
        "renamed": [f"{was} -> {becomes}" for was, becomes in renamed.items()],
        "of another type": [f"{c} {before[c]} -> {after[c]}" for c in after if before.get(c, after[c]) != after[c]],
    }
    return {kind: columns for kind, columns in kinds.items() if columns}


def _days(connection: DuckDBPyConnection, event_time: str, columns: Collection[str]) -> list[dict[str, Any]]:
    kinds = {"inserted": "insert", "updated": "update", "deleted": "delete"}
    counts = ", ".join(f"count(*) FILTER ({CHANGE} = {DUCKDB.literal(kind)}) AS {name}" for name, kind in kinds.items())
    sides = [name for name in (event_time, BEFORE + event_time) if name in columns]
    days = ", ".join(f"CAST({DUCKDB.name(side)} AS DATE)" for side in sides)
    rows = connection.execute(
        f"SELECT day::VARCHAR AS day, {counts} "
        f"FROM (SELECT {CHANGE}, unnest(list_distinct([{days}])) AS day FROM changed) GROUP BY 1 ORDER BY 1"
    )
    return _as_dicts(rows)


def _segments(
    connection: DuckDBPyConnection, table: Callable[[], object], columns: Sequence[str], types: Mapping[str, str]
) -> list[dict[str, Any]]:
    commonest: dict[str, tuple[Any, float]] = {}
    for column in columns:
        if types[column] not in ("VARCHAR", "BOOLEAN", "INTEGER", "BIGINT", "SMALLINT"):
            continue
        name = DUCKDB.name(column)
        row = connection.execute(
            f"SELECT {name}, count(*) / sum(count(*)) OVER () AS share, count(*) OVER () AS n FROM changed "
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
        ).fetchone()
        if row is not None and row[1] >= _SHARE and row[2] <= _VALUES:
            commonest[column] = row[0], row[1]
    if not commonest:
        return []
    connection.register("everything", table())
    shares = ", ".join(f"coalesce(avg(CAST({DUCKDB.name(c)} IS NOT DISTINCT FROM ? AS INTEGER)), 0)" for c in commonest)
    of_all = connection.execute(
        f"SELECT {shares} FROM everything", [value for value, _ in commonest.values()]
    ).fetchone()
    segments = [
        {"column": column, "value": to_plain_json(value), "share": share, "of_all": whole}
        for (column, (value, share)), whole in zip(commonest.items(), of_all or (), strict=True)
        if share >= whole + _AHEAD
    ]
    return sorted(segments, key=lambda segment: segment["of_all"] - segment["share"])


def _columns(connection: DuckDBPyConnection, key: Sequence[str], others: Sequence[str]) -> list[dict[str, Any]]:
    changes = []
    for column in others:
        name, before = DUCKDB.name(column), DUCKDB.name(BEFORE + column)
        differs = f"{CHANGE} = 'update' AND {name} IS DISTINCT FROM {before}"
        keys = DUCKDB.names(key)
        row = connection.execute(
            f"SELECT {keys}, {before}, {name}, count(*) OVER () FROM changed WHERE {differs} "
            f"ORDER BY hash({keys}), {keys} LIMIT 1"
        ).fetchone()
        if row is not None:
            *values, was, becomes, rows = map(to_plain_json, row)
            changes.append(
                {
                    "column": column,
                    "rows": rows,
                    "key": dict(zip(key, values, strict=True)),
                    "before": was,
                    "after": becomes,
                }
            )
    return sorted(changes, key=lambda change: -change["rows"])


def _totals(
    connection: DuckDBPyConnection, table: Callable[[], object], others: Sequence[str], types: Mapping[str, str]
) -> list[dict[str, Any]]:
    numbers = [c for c in others if types[c] in ("DOUBLE", "FLOAT", "BIGINT", "INTEGER") or types[c].startswith("DEC")]
    added = [
        f"coalesce(sum(CASE WHEN {CHANGE} = 'delete' THEN 0 ELSE {DUCKDB.name(c)} END), 0) "
        f"- coalesce(sum(CASE WHEN {CHANGE} = 'insert' THEN 0 ELSE {DUCKDB.name(BEFORE + c)} END), 0)"
        for c in numbers
    ]
    changes = connection.execute(f"SELECT {', '.join(added)} FROM changed").fetchone() if numbers else None
    if changes is None or not any(changes):
        return []
    connection.register("everything", table())
    sums = ", ".join(f"coalesce(sum({DUCKDB.name(c)}), 0)" for c in numbers)
    before = connection.execute(f"SELECT {sums} FROM everything").fetchone() or ()
    return [
        {"column": column, "before": to_plain_json(was), "after": to_plain_json(was + change)}
        for column, was, change in zip(numbers, before, changes, strict=True)
        if change
    ]


def _samples(connection: DuckDBPyConnection, key: Sequence[str], others: Sequence[str]) -> list[dict[str, Any]]:
    keys = DUCKDB.names(key)
    rows = _as_dicts(connection.execute(f"FROM changed ORDER BY hash({keys}), {keys} LIMIT {_SAMPLES}"))
    samples = []
    for row in rows:
        change = row[CHANGE]
        pairs = {
            c: (None if change == "insert" else row[BEFORE + c], None if change == "delete" else row[c]) for c in others
        }
        values = {c: list(pair) for c, pair in pairs.items() if change != "update" or pair[0] != pair[1]}
        samples.append({"change": change, "key": {c: row[c] for c in key}, "values": values})
    return samples


def _as_dicts(found: DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, map(to_plain_json, row), strict=True)) for row in found.fetchall()]

"""A publication that met other writers' rows reads just the files that can hold these rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tests.tables.declared import a_table
from twofold.infra.delta.delta_writer import BEFORE, CHANGE, CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.tables.refresh.published_table import PublishedTable

SCHEMA = pa.schema([("sensor", pa.string()), ("n", pa.int64())])
TABLE = a_table(primary_key=["sensor"], event_time=None, closes_at=None, depends_within=None)


def test_after_a_lost_race_only_files_that_can_hold_its_keys_are_read(lake: Lake) -> None:
    lake.ensure(TABLE.full_name, SCHEMA, statistics=["sensor"])
    writer = Writer(lake, TABLE.full_name)
    for number, sensors in enumerate((["a", "b"], ["c", "d"], ["x", "y"])):
        rows = pa.table({"sensor": sensors, "n": [number, number]}, schema=SCHEMA)
        written = writer.append(rows, CommitTag(app="stream", version=number))
        if "c" not in sensors:
            (commit,) = lake.commits(TABLE.full_name, (written.version or 0) - 1, written.version or 0)
            Path(lake.uri(TABLE.full_name), commit.added[0].path).unlink()
    changes = pa.table({"sensor": ["c", "cc"], "n": [7, 8], CHANGE: ["insert"] * 2, BEFORE + "n": pa.nulls(2, "int64")})

    moved = PublishedTable.of_table(cast(Any, None), lake, TABLE).moved(changes)

    assert isinstance(moved, pa.Table)
    assert sorted((r["sensor"], r[CHANGE], r["n"], r[BEFORE + "n"]) for r in moved.to_pylist()) == [
        ("c", "update", 7, 1),
        ("cc", "insert", 8, None),
    ]

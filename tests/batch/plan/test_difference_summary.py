"""A difference in words: how many rows, when, where they are concentrated, which columns, and examples."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twofold.batch.plan.difference_summary import column_changes, summarise
from twofold.batch.plan.plan import Plan, TableChange
from twofold.batch.plan.plan_text import markdown, sentence

SCHEMA = pa.schema(
    [("flight", pa.string()), ("origin", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("delay", pa.int64())]
)


def at(day: int) -> datetime:
    return datetime(2013, 1, day, 12, tzinfo=UTC)


@pytest.fixture
def table() -> Callable[[], object]:
    """Ten flights, three of them from JFK; the delay of flight n is n."""
    rows = [
        {"flight": f"f{n}", "origin": "JFK" if n < 3 else "EWR", "at": at(1 + n // 5), "delay": n} for n in range(10)
    ]
    everything = pa.Table.from_pylist(rows, schema=SCHEMA)
    return lambda: pa.RecordBatchReader.from_batches(SCHEMA, everything.to_batches())


@pytest.fixture
def difference(tmp_path: Path) -> Path:
    """Three flights of JFK are 100 later; f9 of EWR is gone, f10 of JFK is new, on the third day."""
    changes: list[dict[str, Any]] = [
        {
            "flight": f"f{n}",
            "origin": "JFK",
            "at": at(1),
            "delay": n + 100,
            "_change": "update",
            "_before_origin": "JFK",
            "_before_at": at(1),
            "_before_delay": n,
        }
        for n in range(3)
    ]
    gone = {"origin": "EWR", "at": at(2), "delay": 9}
    changes.append({"flight": "f9", **gone, "_change": "delete", **{f"_before_{c}": v for c, v in gone.items()}})
    changes.append({"flight": "f10", "origin": "JFK", "at": at(3), "delay": 7, "_change": "insert"})
    befores = [pa.field(f"_before_{field.name}", field.type) for field in SCHEMA if field.name != "flight"]
    schema = pa.schema([*SCHEMA, pa.field("_change", pa.string()), *befores])
    pq.write_table(pa.Table.from_pylist(changes, schema=schema), tmp_path / "difference.parquet")
    return tmp_path / "difference.parquet"


def test_a_difference_is_counted_by_day_segment_and_column(difference: Path, table: Callable[[], object]) -> None:
    found = summarise(difference, table, ["flight"], "at")
    assert found["days"] == [
        {"day": "2013-01-01", "inserted": 0, "updated": 3, "deleted": 0},
        {"day": "2013-01-02", "inserted": 0, "updated": 0, "deleted": 1},
        {"day": "2013-01-03", "inserted": 1, "updated": 0, "deleted": 0},
    ]
    assert found["segments"] == [{"column": "origin", "value": "JFK", "share": 0.8, "of_all": 0.3}]
    [column] = found["columns"]
    assert (column["column"], column["rows"]) == ("delay", 3)
    assert column["after"] == column["before"] + 100
    assert found["totals"] == [{"column": "delay", "before": 45, "after": 45 + 300 - 9 + 7}]
    assert {s["change"]: s["values"] for s in found["samples"] if s["change"] != "update"} == {
        "insert": {"origin": [None, "JFK"], "at": [None, "2013-01-03T12:00:00+00:00"], "delay": [None, 7]},
        "delete": {"origin": ["EWR", None], "at": ["2013-01-02T12:00:00+00:00", None], "delay": [9, None]},
    }
    assert all(list(s["values"]) == ["delay"] for s in found["samples"] if s["change"] == "update")


def test_a_row_that_moves_to_another_day_is_of_both(tmp_path: Path, table: Callable[[], object]) -> None:
    moved = {"flight": "f1", "at": at(1), "_change": "update", "_before_at": at(2)}
    undated = {"flight": "f2", "at": None, "_change": "insert", "_before_at": None}
    schema = pa.schema([(n, kind) for n, kind in zip(moved, (pa.string(), SCHEMA.field("at").type) * 2, strict=True)])
    pq.write_table(pa.Table.from_pylist([moved, undated], schema=schema), tmp_path / "moved.parquet")
    found = summarise(tmp_path / "moved.parquet", table, ["flight"], "at")
    assert [(day["day"], day["updated"]) for day in found["days"]] == [("2013-01-01", 1), ("2013-01-02", 1)]


def test_columns_are_new_gone_renamed_or_of_another_type(tmp_path: Path) -> None:
    before = {"k": "string", "late": "bigint", "wind": "double", "n": "int"}
    after = {"k": "string", "delay": "bigint", "gust": "double", "n": "bigint"}
    rows = [
        {"k": str(n), "_change": "update", "delay": n, "_before_late": n, "gust": 1.0, "_before_wind": float(n)}
        for n in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "difference.parquet")
    assert column_changes(tmp_path / "difference.parquet", before, after) == {
        "new": ["gust double"],
        "gone": ["wind double"],
        "renamed": ["late -> delay"],
        "of another type": ["n int -> bigint"],
    }


def test_examples_are_the_same_each_time(difference: Path, table: Callable[[], object]) -> None:
    assert summarise(difference, table, ["flight"], "at") == summarise(difference, table, ["flight"], "at")


def test_a_plan_is_one_sentence_a_table_then_tables(difference: Path, table: Callable[[], object]) -> None:
    change = TableChange(
        table="flights.x",
        cause="backfill",
        version=1,
        rows_before=10,
        inserted=1,
        updated=3,
        deleted=1,
        summary=summarise(difference, table, ["flight"], "at"),
    )
    said = "flights.x: 5 of 10 rows change: +1 added, -1 removed, ~3 changed, =6 unchanged."
    assert sentence(change) == said
    plan = Plan(
        id="p-1", cause="backfill", command=["backfill", "x"], created_at=at(1), expires_at=at(4), changes=[change]
    )
    lines = markdown(plan).splitlines()
    assert lines[:3] == ["**backfill x**, plan `p-1`", "", f"- {said}"]
    assert "| origin=JFK | 80% | 30% |" in lines
    assert "| 2013-01-03 | 1 | 0 | 0 |" in lines
    assert "| delay | 45 | 343 |" in lines
    assert "| flight=f10 | + |  | origin=JFK, at=2013-01-03T12:00:00Z, delay=7 |" in lines

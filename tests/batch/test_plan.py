"""What can be known from the logs is known without an engine, and a stream's own work is no work for reconcile."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from batch.plan import has_taken_in, untouched
from infra.settings import ROOT
from tables.checkpoint import Checkpoint
from tables.registry import load
from tables.tidy import tidy
from tables.writer import Stamp, Writer

if TYPE_CHECKING:
    from infra.settings import Settings
    from tables.lake import Lake

SCHEMA = pa.schema([("flight_id", pa.string())])


def test_neither_the_plan_nor_any_declaration_loads_an_engine() -> None:
    program = (
        "import sys, batch.plan; from tables.registry import load; load()\n"
        "heavy = {'pyspark', 'airflow', 'duckdb', 'pyarrow', 'pandas', 'numpy'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_before_the_first_reconcile_everything_is_work(settings: Settings) -> None:
    assert untouched(settings) is None


@pytest.mark.parametrize(("reads_next", "is_taken_in"), [(0, False), (2, False), (3, True), (4, True)])
def test_what_the_stream_has_taken_in_by_itself_is_no_work(
    settings: Settings, lake: Lake, reads_next: int, is_taken_in: bool
) -> None:
    """Version 0 makes the table, 1 and 2 change it, 3 is maintenance."""
    registry = load()
    below, above = registry.find_table("carrier_days"), registry.find_table("flights")
    lake.ensure(above.full_name, SCHEMA, statistics=["flight_id"])
    for number in (1, 2):
        row = pa.table({"flight_id": [f"UA{number}"]}, schema=SCHEMA)
        Writer(lake, above.full_name).append(row, Stamp(app="stream/1", version=number))
    tidy(lake, above.full_name)
    checkpoint = Checkpoint.of(settings, below)
    for folder in ("offsets", "commits"):
        (checkpoint.path / folder).mkdir(parents=True)
    end = {"reservoirVersion": reads_next, "index": -1}
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(end)]
    (checkpoint.path / "offsets" / "0").write_text("\n".join(lines))
    (checkpoint.path / "commits" / "0").write_text("v1")
    newest = lake.version(above.full_name)
    assert newest == 3
    assert has_taken_in(lake, registry, below, checkpoint, above, newest) is is_taken_in

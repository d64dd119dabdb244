"""Tables that may differ from the captured one are reported."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.tables.declared import bound_as
from twofold.features.capture.captured_topic import changes_of
from twofold.features.capture.lost_changes import changes_fault
from twofold.infra.delta.lake import Lake
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, events_schema

COLUMNS = {"id": "long", "name": "string"}


def snapshot_of(lake: Lake, *moments: int, number: int = 1, offset: int = 0) -> None:
    topic = bound_as(changes_of("public.people", columns=COLUMNS, primary_key=["id"]), "people", "bank")
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    streamed = {"cdc_op": "update", "cdc_commit_lsn": 900, "cdc_lsn": 901}
    rows = [{"cdc_op": "snapshot", "cdc_commit_lsn": moment, "cdc_lsn": 0} for moment in moments]
    for n, row in enumerate((*rows, streamed)):
        event = pa.Table.from_pylist([{**row, "cdc_snapshot": number, "_offset": offset + n}], events_schema(topic))
        write_deltalake(lake.uri(topic.full_name), event, mode="append")


@pytest.mark.parametrize("moments", [(), (100,), (100, 100)])
def test_a_snapshot_of_one_moment_is_sound(lake: Lake, moments: tuple[int, ...]) -> None:
    assert changes_fault(lake, "bank.people") == ""
    snapshot_of(lake, *moments)
    assert changes_fault(lake, "bank.people") == ""


def test_a_snapshot_that_was_begun_again_is_a_fault(lake: Lake) -> None:
    snapshot_of(lake, 100, 100, 250)
    assert changes_fault(lake, "bank.people").startswith(
        "its snapshot of LSN 100 was interrupted and begun again at 250"
    )


def test_a_refused_change_is_a_fault_until_it_leaves_quarantine(lake: Lake) -> None:
    snapshot_of(lake, 100)
    rows = pa.Table.from_pylist([{"_offset": 7, "reasons": ["the table was truncated"]}], QUARANTINE_SCHEMA)
    write_deltalake(lake.uri("bank.people_quarantine"), rows)
    assert changes_fault(lake, "bank.people").startswith("its tables lack changes that were refused: 1, with their")
    lake.open("bank.people_quarantine").delete()
    assert changes_fault(lake, "bank.people") == ""


def refused(lake: Lake, offset: int, number: int) -> None:
    change = {"op": "r", "source": {"name": f"twofold_{number}_bank_people"}, "after": {"id": 9, "name": "NaN"}}
    row = {"_offset": offset, "value": json.dumps(change).encode(), "reasons": ["at `name`"]}
    write_deltalake(lake.uri("bank.people_quarantine"), pa.Table.from_pylist([row], QUARANTINE_SCHEMA), mode="append")


@pytest.mark.parametrize("number", [1, 2])
def test_a_refused_first_row_of_a_snapshot_is_a_fault(lake: Lake, number: int) -> None:
    """Also where all its rows were refused, and where it precedes every row that was accepted."""
    snapshot_of(lake, 100)
    refused(lake, 10, number)
    assert "refused: 1" in changes_fault(lake, "bank.people")
    snapshot_of(lake, 400, number=2, offset=11)
    assert ("refused: 1" in changes_fault(lake, "bank.people")) == (number == 2)


def test_a_new_snapshot_heals_what_was_before_it(lake: Lake) -> None:
    snapshot_of(lake, 100, 250)
    refused(lake, 7, 1)
    assert "refused: 1" in changes_fault(lake, "bank.people")
    snapshot_of(lake, 400, 400, number=2, offset=8)
    assert changes_fault(lake, "bank.people") == ""
    later = pa.Table.from_pylist([{"_offset": 11, "reasons": ["at `born`"]}], QUARANTINE_SCHEMA)
    write_deltalake(lake.uri("bank.people_quarantine"), later, mode="append")
    assert "refused: 1" in changes_fault(lake, "bank.people")


def test_a_declared_column_that_the_table_lost_is_a_fault(lake: Lake) -> None:
    snapshot_of(lake, 100)
    topic = bound_as(changes_of("public.people", columns=COLUMNS, primary_key=["id"]), "people", "bank")
    renamed = {"cdc_op": "update", "cdc_snapshot": 1, "cdc_lsn": 950, "cdc_missing": "name", "_offset": 3}
    event = pa.Table.from_pylist([renamed], events_schema(topic))
    write_deltalake(lake.uri("bank.people"), event, mode="append")
    assert changes_fault(lake, "bank.people").startswith("its table has no column name, which is declared")
    snapshot_of(lake, 400, number=2, offset=10)
    assert changes_fault(lake, "bank.people") == ""

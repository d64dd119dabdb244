"""What the demo changes is there to be changed, and is as before afterwards."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests import ROOT
from tests.cli.conftest import Cli
from twofold.demo.run.mission import STEPS, _edited, _misread
from twofold.demo.traffic.sources import MISSIONS, Mission
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ProcessFailed
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load


@pytest.mark.parametrize("domain", MISSIONS)
def test_what_a_demo_changes_is_declared(domain: str) -> None:
    mission = MISSIONS[domain]
    topic = load().find_topic(mission.topic)
    assert {mission.column, mission.time} <= topic.schema.keys()
    assert (ROOT / "demo" / "tables" / f"{mission.table.replace('.', '/')}.py").read_text().count(mission.before) == 1


def test_a_file_is_as_before_whatever_happens(tmp_path: Path) -> None:
    file = tmp_path / "hours.py"
    file.write_text("delay > 15\n")

    def fail() -> None:
        with _edited(file, "> 15", "> 20"):
            assert file.read_text() == "delay > 20\n"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert file.read_text() == "delay > 15\n"


def test_a_file_that_was_edited_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "hours.py"
    file.write_text("delay > 10\n")
    with pytest.raises(ProcessFailed, match="expected '> 15' once"), _edited(file, "> 15", "> 20"):
        raise AssertionError("it was edited")
    assert file.read_text() == "delay > 10\n"


def test_the_events_of_one_day_before_some_offsets_are_misread(tmp_path: Path) -> None:
    lake = Lake(Settings(home=tmp_path))
    rows = [
        (0, 0, datetime(2013, 1, 1, 5, tzinfo=UTC), -3),
        (0, 1, datetime(2013, 1, 1, 6, tzinfo=UTC), None),
        (0, 2, datetime(2013, 1, 2, tzinfo=UTC), -3),
        (0, 3, datetime(2013, 1, 1, 7, tzinfo=UTC), -3),
        (1, 0, datetime(2013, 1, 1, 7, tzinfo=UTC), -3),
        (1, 1, datetime(2013, 1, 1, 8, tzinfo=UTC), -3),
    ]
    names = ["_partition", "_offset", "at", "n"]
    schema = pa.schema(list(zip(names, [pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.int32()], strict=True)))
    lake.ensure("plant.readings", schema, statistics=["_offset"])
    columns = {
        name: pa.array(values, schema.field(name).type)
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }
    write_deltalake(lake.uri("plant.readings"), pa.table(columns, schema=schema), mode="append")
    mission = Mission(topic="plant.readings", column="n", time="at", misread="abs(n)", table="", before="", after="")
    misread = _misread(lake.settings, mission, date(2013, 1, 1), {0: 9, 1: 1})
    assert misread == (3, {0: (0, 4), 1: (0, 1)})
    found = pa.table(lake.open("plant.readings").scan()).sort_by(
        [("_partition", "ascending"), ("_offset", "ascending")]
    )
    assert found["n"].to_pylist() == [3, None, -3, 3, 3, -3]


def test_a_step_that_is_none_is_refused(cli: Cli) -> None:
    found = cli("demo", "flights", "--steps", "replay,backfil")
    assert (found.code, "no step 'backfil'" in found.err, list(STEPS)[2] in found.err) == (2, True, True)

"""The DAGs of a project in an Airflow of one's own, by the files that the documentation shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.tables.declared import TOPIC_FILE, written
from twofold.infra.airflow.dag_names import MAINTAIN
from twofold.status.parts.unloaded_dags import declared_dags
from twofold.tables.declare.registry import load

HOURS = """
    '''Readings by time.'''
    from twofold import table
    @table(primary_key=["sensor", "read_at"], event_time="read_at", recompute_by=["sensor"])
    def hours(readings):
        '''Readings by time.'''
        return readings.select("sensor", "read_at")
    """
FOUND = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(sys.argv[1], safe_mode=True)
read = [DagSerialization.from_dict(DagSerialization.to_dict(dag)).dag_id for dag in bag.dags.values()]
print(json.dumps([sorted(read), bag.import_errors]))
"""


def shown_files() -> list[str]:
    page = (ROOT / "docs" / "how-to" / "start-a-project.md").read_text("utf-8")
    section = page.partition("## In an Airflow that you have")[2].partition("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@pytest.mark.platform
def test_the_dags_of_a_project_are_in_an_airflow_of_ones_own(tmp_path: Path) -> None:
    tables = {"plant/readings.py": TOPIC_FILE, "plant/hours.py": HOURS, "plant/wrong.py": "TABLE = 1\n"}
    written(tmp_path / "project" / "tables", tables)
    (tmp_path / "project" / "twofold.toml").touch()
    for name, text in zip(("dags/making", "dags/faults"), shown_files(), strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    homes = {"TWOFOLD_PROJECT": tmp_path / "project", "TWOFOLD_HOME": tmp_path / "home", "AIRFLOW_HOME": tmp_path}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", FOUND, str(tmp_path / "dags")],
        cwd=tmp_path,
        env={**os.environ, **{name: str(place) for name, place in homes.items()}},
        capture_output=True,
        text=True,
        check=True,
    )
    dags, errors = json.loads(ran.stdout.splitlines()[-1])
    assert dags == [MAINTAIN, *sorted(declared_dags(load(tmp_path / "project" / "tables"), "plant"))]
    assert "plant.backfill.hours" in dags, "whose timetable is a plugin's"
    [(file, error)] = errors.items()
    assert Path(file).name == "faults.py"
    assert "BadDeclaration: tables/plant/wrong.py: expected exactly one declaration" in error

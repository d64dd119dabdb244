"""A new project is checked, and its tests pass, as they are written."""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests import ROOT
from tests.tables.declared import written
from twofold.cli.writing.new_project import init, write_project
from twofold.cli.writing.template_files import project_templates
from twofold.infra.errors import BadArgument
from twofold.infra.project.home_format import version
from twofold.infra.project.project import FILE, VARIABLE
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.testing import assert_events, assert_parity, assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKFLOW = ".github/workflows/twofold.yml"


def shell(folder: Path, command: str, **variables: str) -> str:
    """Run it as a user whose environment is active, with no setting but these."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("TWOFOLD_", "PYTEST_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {**outer, "PATH": path, **variables}
    ran = subprocess.run(["sh", "-c", command], cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def run(folder: Path, *command: str) -> str:
    """Run a module of this environment, whatever the path has."""
    return shell(folder, shlex.join([sys.executable, "-P", "-m", *command]))


LOUD = '''
"""Orders, with the names of their shops in capitals."""

from twofold import DataFrame, F, table


def loud(name: str) -> str:
    return name.upper()


@table(primary_key=["order_id"], recompute_by=["order_id"])
def loud_orders(orders: DataFrame) -> DataFrame:
    """One row per order.

    order_id: of the till
    shop: in capitals
    """
    return orders.select("order_id", F.udf(loud, "string")("shop").alias("shop"))
'''
LOUD_TEST = """
def test_capitals(assert_rows, assert_parity):
    assert_rows("loud_orders", orders=[{"order_id": "1", "shop": "s"}], gives=[{"order_id": "1", "shop": "S"}])
    assert_parity("loud_orders")
"""


def made(tmp_path: Path) -> Path:
    """A project that was made by the command, with the jars of the checkout."""
    assert "cd my_platform" in run(tmp_path, "twofold", "init", "my_platform")
    folder = tmp_path / "my_platform"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {*project_templates()}
    (folder / FILE).write_text(f'cache = "{ROOT / ".twofold"}"\n{(folder / FILE).read_text()}')
    return folder


def test_the_files_of_a_project_are_the_templates_byte_for_byte(tmp_path: Path) -> None:
    folder, _ = write_project(tmp_path / "mine", extra="demo")
    templates = ROOT / "cli" / "writing" / "templates" / "project"
    files = {path.relative_to(templates): path.read_bytes() for path in templates.rglob("*") if path.is_file()}
    assert len(files) > 10
    for name, text in files.items():
        words = {b"${name}": b"mine", b"${extra}": b"demo", b"${version}": version().encode(), b"$$": b"$"}
        for word, value in words.items():
            text = text.replace(word, value)
        assert (folder / str(name).removesuffix(".template")).read_bytes() == text


@pytest.mark.platform
def test_a_new_project_is_sound_from_each_of_its_folders(tmp_path: Path) -> None:
    tables = made(tmp_path) / "tables" / "cafe"
    assert "1 table without a mistake" in run(tables, "twofold", "check", "--strict", "--quick")


def test_the_tests_of_a_new_project_pass(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write_project(tmp_path / "mine")
    monkeypatch.setenv(VARIABLE, str(folder))
    module = runpy.run_path(str(folder / "tests" / "test_cafe.py"))
    module["test_orders_of_the_sample_are_events"](assert_events)
    module["test_orders_are_summed_by_shop_and_hour"](partial(assert_rows, spark))
    module["test_the_stream_and_the_batch_agree_after_reconcile"](partial(assert_parity, spark, settings))


def test_what_checks_a_new_project_is_a_workflow(tmp_path: Path) -> None:
    folder, _ = write_project(tmp_path / "mine")
    schema = ("check_jsonschema", "--builtin-schema", "vendor.github-workflows")
    assert "ok" in run(folder, *schema, str(folder / WORKFLOW))


@pytest.mark.prove
@pytest.mark.platform
def test_a_new_project_passes_what_its_workflow_runs(tmp_path: Path) -> None:
    """But for the installation and the comment, on an empty lake, with a function that Spark's workers import, too."""
    folder = made(tmp_path)
    written(folder, {"tables/cafe/loud_orders.py": LOUD, "tests/test_loud_orders.py": LOUD_TEST})
    jobs = yaml.safe_load((folder / WORKFLOW).read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    own = {"TWOFOLD_LAKE": str(folder / "lake"), "TWOFOLD_SPARK": "local"}
    shown = [shell(folder, command, **own) for command in commands if command.startswith(("twofold ", "pytest"))]
    assert ["2 tables without a mistake" in shown[0], "4 passed" in shown[1], len(shown)] == [True, True, 3]
    plan = (folder / "plan.md").read_text()
    assert "cafe.orders: a new topic" in plan
    assert "cafe.sales_by_hour: new" in plan


@pytest.mark.parametrize(("sources", "tests"), [("", "tests/tables"), ("demo/", "demo/tests")], ids=["0.1", "0.2"])
def test_tables_in_a_checkout_become_those_of_a_project(
    sources: str, tests: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where versions have them, with the imports of before the platform was a package."""
    checkout = tmp_path / "checkout"
    written(
        checkout,
        {
            "tables/__init__.py": "",
            "tables/declare/table.py": "",
            f"{sources}tables/flights/flights.py": "",
            f"{sources}tables/cafe/__init__.py": "",
            f"{sources}tables/cafe/orders.py": project_templates()["tables/cafe/orders.py"].template.replace(
                "from twofold", "from tables"
            ),
            f"{sources}tables/cafe/sales_by_hour.py": project_templates()[
                "tables/cafe/sales_by_hour.py"
            ].template.replace("from twofold", "from tables"),
            f"{tests}/test_sales_by_hour.py": """
                from infra.settings import Settings
                from tests.parity import assert_rows
            """,
            f"{tests}/test_flights.py": "",
            f"{sources}schemas/orders-value/1.avsc": "{}",
            ".twofold/lake/x": "",
        },
    )
    folder = tmp_path / "mine"
    init(str(folder), checkout)
    assert "with the domain cafe" in capsys.readouterr().out
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {name for name in files if name.startswith(("tables", "tests", "schemas/o", "samples"))} == {
        "tables/cafe/__init__.py",
        "tables/cafe/orders.py",
        "tables/cafe/sales_by_hour.py",
        "tests/test_sales_by_hour.py",
        "schemas/orders-value/1.avsc",
    }
    assert (folder / "tests" / "test_sales_by_hour.py").read_text().split("\n")[1:3] == [
        "from twofold.infra.project.settings import Settings",
        "from twofold.testing import assert_rows",
    ]
    monkeypatch.setenv(VARIABLE, str(folder))
    assert Settings.from_environment({}).home == checkout / ".twofold"
    assert load(folder / "tables").require_sound().find_table("sales_by_hour").closes_at == "window_end"
    with pytest.raises(BadArgument, match="has no domain of yours"):
        init(str(tmp_path / "other"), folder / "tests")
    assert not (tmp_path / "other").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(BadArgument, match="is not empty"):
        write_project(tmp_path / "mine")
    with pytest.raises(BadArgument, match="cannot name a project"):
        write_project(tmp_path / "my platform")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "empty").mkdir()
    assert write_project(tmp_path / "empty") == (tmp_path / "empty", ["cafe"])

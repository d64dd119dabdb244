"""What needs no extra runs without the packages of all of them, and what needs one says which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests import ROOT
from tests.tables.declared import written
from twofold.cli.writing.new_project import write_project
from twofold.infra.errors import MissingTool
from twofold.infra.extras import EXTRAS, _packages, missing_tool, package_folder, require_extra

LISTED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
OF_PLATFORM = {module for module, (_, extra) in _packages().items() if extra == "platform"}
OF_EXTRAS = {module for module, (_, extra) in _packages().items() if extra}
OF_AIRFLOW = {"cryptography"}
"""What the extra `platform` brings, too, as a package of its packages."""
CORE = """
import json
import numpy
import twofold.batch.plan.code_plan, twofold.batch.quality_check, twofold.batch.reconcile, twofold.quality.gate
import twofold.streaming.driver, twofold.testing, twofold.tables.refresh.open_platform
import twofold.features.analysts.table_views
from twofold.cli.__main__ import main
from twofold.infra.encodings.json.json_names import count_names

names, odd = count_names(numpy.frombuffer(b'{"a":1,"b":[]}{"a" :1}', numpy.uint8), numpy.array([0, 14, 22]))
assert (names.tolist(), odd.tolist()) == ([2, 0], [0, 1])
main(["check", "--quick", "--strict"])
"""
PLATFORM = """
import twofold.cli.__main__, twofold.cli.platform_start, twofold.dags.sound_dags
import twofold.features.page.server.standalone
import twofold.batch.audit.table_audit, twofold.batch.rewrite.replay, twofold.features.webhooks.webhook_server
import twofold.features.outputs.follow.runner, twofold.features.outputs.open_target
import twofold.features.outputs.targets.webhook_sender
import twofold.status.observer, twofold.features.capture.operate.capture_states, twofold.streaming.ingest.ingest_query
"""
NEEDING = {
    "avro": 'TOPIC = Topic(encoding="avro", subject="sent", event_time="at", message_key="id")',
    "protobuf": 'TOPIC = Topic(encoding="protobuf", subject="pushed", event_time="at", message_key="id")',
    "capture": 'TOPIC = changes_of("public.stored", columns={"id": "string"}, primary_key=["id"])',
    "persons": 'TOPIC = Topic(schema={"id": "string", "mail": personal("id")}, event_time="at", message_key="id")',
}
"""A declaration for each extra that one can need; for searches: `features/search/tests`."""


def run(program: str, folder: Path, without: set[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program of Python in a project, as if these modules were not installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWOFOLD_")}
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({sorted(without)!r}))\n"
    command = [sys.executable, "-P", "-c", blocked + program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_each_package_is_in_one_extra_whose_purpose_is_known() -> None:
    assert set(EXTRAS) == set(LISTED)
    page = (ROOT / "docs" / "how-to" / "start-a-project.md").read_text("utf-8")
    assert (
        "\n".join(["| extra | for |", "|---|---|", *(f"| `{name}` | {what} |" for name, what in EXTRAS.items())])
        in page
    )
    packages = [line for lines in LISTED.values() for line in lines if not line.startswith("twofold[")]
    assert len(packages) == len(set(packages))
    of_all = [line.partition(";")[0] for line in requires("twofold") or () if line.endswith("extra == 'all'")]
    assert sorted(of_all) == sorted(packages)


def test_a_new_project_is_checked_without_the_packages_of_extras(tmp_path: Path) -> None:
    folder, _ = write_project(tmp_path / "mine")
    ran = run(CORE, folder, OF_EXTRAS)
    assert ran.returncode == 0, ran.stderr
    assert "1 table without a mistake" in ran.stdout


def test_the_platform_runs_without_the_packages_of_other_extras(tmp_path: Path) -> None:
    folder, _ = write_project(tmp_path / "mine")
    ran = run(PLATFORM, folder, OF_EXTRAS - OF_PLATFORM - OF_AIRFLOW)
    assert ran.returncode == 0, ran.stderr


def test_a_declaration_that_needs_an_extra_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    folder, _ = write_project(tmp_path / "mine")
    imports = "from twofold import Topic, changes_of, personal"
    files = {f"tables/cafe/{n}.py": f'"""Of {n}."""\n{imports}\n\n{text}\n' for n, text in NEEDING.items()}
    files["schemas/sent/1.avsc"] = '{"type": "record", "name": "sent", "fields": [{"name": "id", "type": "string"}]}'
    files["schemas/pushed/1.proto"] = 'syntax = "proto3"; message Pushed { string id = 1; }'
    written(folder, files)
    program = 'from twofold.cli.__main__ import main\nmain(["check", "--quick", "--json"])'
    ran = run(program, folder, OF_EXTRAS)
    found = {mistake["message"].partition(".py: ")[0][12:]: mistake["message"] for mistake in json.loads(ran.stdout)}
    assert set(found) == set(NEEDING)
    for extra, message in found.items():
        assert f", for {EXTRAS[extra]}, is not installed." in message


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("grpc_tools.protoc", "The package grpcio-tools, for records in Protobuf, is not installed."),
        ("kafka", f"The package kafka-python, for {EXTRAS['platform']}, is not installed."),
        ("confluent_kafka", f"The package confluent-kafka, for {EXTRAS['work']}, is not installed."),
        ("pyarrow", "The package pyarrow is not installed."),
    ],
)
def test_an_import_that_fails_names_the_package(module: str, message: str) -> None:
    missing = missing_tool(ModuleNotFoundError(name=module))
    assert missing
    assert missing.message == message


def test_only_the_packages_that_we_require_are_named() -> None:
    assert missing_tool(ModuleNotFoundError(name="cafe")) is None
    assert missing_tool(ImportError(name="kafka")) is None


def test_a_file_system_without_its_package_names_the_extra(tmp_path: Path) -> None:
    program = """
from fsspec.core import url_to_fs
from twofold.infra.extras import missing_tool
try:
    url_to_fs("s3://bucket/lake")
except ImportError as failed:
    print(missing_tool(failed).message)
"""
    ran = run(program, tmp_path, {"s3fs"})
    assert ran.stdout == "The package s3fs, for a lake or an archive on S3, is not installed.\n", ran.stderr


def test_a_missing_package_is_installed_as_the_platform_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "marimo", None)
    with pytest.raises(MissingTool, match=r"for notebooks, is not installed\.\nHint: `make setup` installs it\."):
        require_extra("notebook")
    monkeypatch.setattr("twofold.infra.extras.IS_CHECKOUT", False)
    with pytest.raises(MissingTool, match=r'Hint: `pip install "twofold\[notebook\]"` installs it\.'):
        require_extra("notebook")
    with pytest.raises(
        MissingTool, match=r"pyspark-not-there is not installed\.\nHint: `pip install twofold` installs"
    ):
        package_folder("pyspark_not_there")

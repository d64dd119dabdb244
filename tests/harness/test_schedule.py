"""Which worker takes which file of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT
from tests.harness import kept_run, schedule

NEEDS = {
    "rows": ["spark"],
    "long_rows": ["spark"],
    "log_of_rows": ["spark", "broker", "waits"],
    "replayed_rows": ["spark", "broker", "waits"],
    "topics": ["broker", "waits"],
    "demo": ["waits"],
    "dag_runs": ["airflow_alone", "waits"],
    "users": ["airflow_alone", "waits"],
    "pure": [],
    "long_pure": [],
}
SECONDS = {"long_rows": 90.0, "rows": 80.0, "demo": 300.0, "long_pure": 20.0, "pure": 10.0, "replayed_rows": 5.0}


@dataclass(eq=False)
class Worker:
    """Runs its tests when asked."""

    gateway: SimpleNamespace
    given: list[int] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    """A run of three tests in each file, all of which are equally quick."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "needs.json"
        self.tests = [f"{file}::test_{n}" for file in NEEDS for n in range(3)]
        kept = SimpleNamespace(files={file: {"seconds": seconds} for file, seconds in SECONDS.items()})
        monkeypatch.setattr(kept_run, "kept", lambda: kept)

    def files(self, workers: int, lost: int | None = None) -> list[list[str]]:
        """The files that each worker takes, in order; one of the workers is lost with its first test."""
        self._file.write_text(json.dumps(NEEDS))
        config: Any = SimpleNamespace(
            getvalue=lambda _: ["popen"] * workers,
            option=SimpleNamespace(loadscopereorder=False),
            stash={schedule._FILE: self._file},
        )
        scheduler = schedule.pytest_xdist_make_scheduler(config, None)
        nodes = [Worker(SimpleNamespace(id=f"gw{n}")) for n in range(workers)]
        for node in nodes:
            scheduler.add_node(node)
        for node in nodes:
            scheduler.add_node_collection(node, self.tests)
        scheduler.schedule()
        if lost is not None:
            self._replace(scheduler, nodes, lost)
        while any(node.given for node in nodes):
            for node in nodes:
                if node.given:
                    node.ran.append(node.given.pop(0))
                    scheduler.mark_test_complete(node, node.ran[-1])
        assert not scheduler.has_pending
        assert all(node.shutting_down for node in nodes)
        return [list(dict.fromkeys(self.tests[index].partition("::")[0] for index in node.ran)) for node in nodes]

    def _replace(self, scheduler: Any, nodes: list[Worker], lost: int) -> None:
        """As xdist does when a worker crashes: the test that it ran is not run again."""
        crashed = scheduler.remove_node(nodes[lost])
        nodes[lost] = Worker(SimpleNamespace(id=f"gw{len(nodes)}"), ran=[self.tests.index(crashed)])
        scheduler.add_node(nodes[lost])
        scheduler.add_node_collection(nodes[lost], self.tests)
        scheduler.schedule()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_the_last_of_three_waits_for_servers_and_the_others_have_spark(run: Run) -> None:
    first, second, last = run.files(3)
    assert first[:2] == ["replayed_rows", "log_of_rows"]
    assert second[:2] == ["long_rows", "rows"]
    assert last[:4] == ["topics", "demo", "dag_runs", "users"]
    assert sorted(first[2:] + second[2:] + last[4:]) == ["long_pure", "pure"]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_file_is_taken_once_and_each_server_is_of_one_worker(run: Run, workers: int) -> None:
    taken = run.files(workers)
    assert sorted(file for files in taken for file in files) == sorted(NEEDS)
    for server, of_spark in (("broker", True), ("broker", False), ("airflow_alone", False)):
        using = {file for file, needs in NEEDS.items() if server in needs and ("spark" in needs) == of_spark}
        assert [using & set(files) for files in taken if using & set(files)] == [using]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_files_of_a_worker_that_crashed_are_taken_by_another(run: Run, lost: int) -> None:
    assert sorted({file for files in run.files(3, lost) for file in files}) == sorted(NEEDS)


def test_a_server_ends_behind_the_last_test_of_the_files_that_use_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pathlib, pytest\n"
        "def note(text): pathlib.Path('noted').open('a').write(text + ' ')\n"
        "@pytest.fixture(scope='session')\n"
        "def broker():\n    note('starts'); yield; note('ends')\n"
    )
    (tmp_path / "test_a.py").write_text("def test_one(broker): ...\ndef test_two(): ...\n")
    (tmp_path / "test_b.py").write_text("def test_one(): ...\ndef test_two(broker): ...\n")
    (tmp_path / "test_c.py").write_text("from conftest import note\ndef test_one(): note('later')\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.harness.schedule", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "noted").read_text() == "starts ends later "

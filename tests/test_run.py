"""Who takes which test of a run, and what its file says they took."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.harness.durations import Took, docstring, lines

HERE = "tests/test_run.py"
SILENT = f"{HERE}::test_folders_and_tests_are_listed_longest_first"
EXPLAINED = f"{HERE}::test_the_reason_of_a_test_is_its_docstring"


def test_folders_and_tests_are_listed_longest_first() -> None:
    took = {"tests/a/test_x.py::test_b": Took(1.0, 0.5), SILENT: Took(40.0, 20.0), EXPLAINED + "[1]": Took(31.0, 1.0)}
    listed = [line.split() for line in lines(took)]
    assert listed[1:4] == [["72.0", "21.5", "all"], ["71.0", "21.0", "tests"], ["1.0", "0.5", "tests/a"]]
    assert [line[-1] for line in listed if "::" in "".join(line)] == [
        SILENT,
        EXPLAINED + "[1]",
        "tests/a/test_x.py::test_b",
        SILENT,
    ]


def test_the_reason_of_a_test_is_its_docstring() -> None:
    """This one."""
    assert docstring(f"{EXPLAINED}[a/b.py::c]") == "This one."
    assert docstring(SILENT) is None


SPARK = [f"tests/batch/test_{n}.py::test_{m}" for n in range(9) for m in range(3)]
WAITING = [f"{file}::test_{m}" for file in conftest.WAITING for m in range(3)]


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


def ran(workers: int, tests: list[str]) -> list[list[str]]:
    """What each worker runs when all are equally quick."""
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=False), hook=None
    )
    scheduler = conftest.pytest_xdist_make_scheduler(config, None)
    nodes = [Worker(SimpleNamespace(id=f"gw{n}")) for n in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
    for node in nodes:
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    while any(node.given for node in nodes):
        for node in nodes:
            if node.given:
                node.ran.append(node.given.pop(0))
                scheduler.mark_test_complete(node, node.ran[-1])
    assert not scheduler.has_pending
    assert all(node.shutting_down for node in nodes)
    return [[tests[index] for index in node.ran] for node in nodes]


def test_the_third_worker_takes_what_waits_and_nothing_else() -> None:
    first, second, third = ran(3, SPARK + WAITING)
    assert set(third) <= set(WAITING)
    assert len(third) > len(WAITING) / 2
    assert sorted(first + second + third) == sorted(SPARK + WAITING)


@pytest.mark.parametrize("tests", [SPARK, WAITING])
def test_all_run_where_there_is_only_one_kind(tests: list[str]) -> None:
    assert sorted(test for worker in ran(3, tests) for test in worker) == sorted(tests)


def test_two_workers_share_both_kinds() -> None:
    assert sorted(test for worker in ran(2, SPARK + WAITING) for test in worker) == sorted(SPARK + WAITING)

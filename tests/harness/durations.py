"""Writes what each test of a tier took, in seconds and in CPU seconds, to `.twofold/durations/TIER.txt`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.settings import ROOT

NEEDS_A_REASON_S = 30.0
LONGEST = 40
_CPU = "cpu_s"
_CPU_BEFORE = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    if config.option.tier and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(ROOT / ".twofold" / "durations" / f"{config.option.tier}.txt"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_CPU_BEFORE] = _cpu_s(item)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    if call.when == "teardown":
        item.user_properties.append((_CPU, round(max(0.0, _cpu_s(item) - item.stash[_CPU_BEFORE]), 1)))
    return (yield)


def _cpu_s(item: pytest.Item) -> float:
    """CPU seconds of this process and of what it started; of a supervisor's programs nothing.

    What still runs is looked for where the test has a mark that says so: it takes milliseconds.
    """
    process = psutil.Process()
    starts = any(item.get_closest_marker(name) for name in ("spark", "platform"))
    total = 0.0
    for one in (process, *(process.children(recursive=True) if starts else ())):
        with suppress(psutil.NoSuchProcess):
            total += sum(one.cpu_times()[:4])
    return total


@dataclass
class Took:
    """Wall clock and CPU seconds of a test with its fixtures, or of several."""

    seconds: float = 0.0
    cpu_s: float = 0.0


class Durations:
    """Adds up the reports of all workers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: dict[str, Took] = defaultdict(Took)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        took = self._tests[report.nodeid]
        took.seconds += report.duration
        took.cpu_s += sum(float(str(value)) for name, value in report.user_properties if name == _CPU)

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("\n".join(lines(self._tests)) + "\n")


def lines(tests: Mapping[str, Took]) -> Iterator[str]:
    """Folders, the longest tests, and those that take long and do not say why."""
    folders: dict[str, list[Took]] = defaultdict(list)
    for test, took in tests.items():
        folders[str(Path(test.split("::")[0]).parent)].append(took)
    yield "seconds  CPU s  of all workers, with fixtures"
    yield from _listed({"all": _sum(tests.values()), **{name: _sum(took) for name, took in folders.items()}})
    longest = sorted(tests, key=lambda test: -tests[test].seconds)
    yield f"\nThe {LONGEST} longest tests; a fixture counts for the first test that needs it."
    yield from _listed({test: tests[test] for test in longest[:LONGEST]})
    silent = [test for test in longest if tests[test].seconds > NEEDS_A_REASON_S and not docstring(test)]
    if silent:
        yield f"\nOver {NEEDS_A_REASON_S:.0f} s without a docstring that says why:"
        yield from silent


def _listed(tests: Mapping[str, Took]) -> Iterator[str]:
    for name, took in sorted(tests.items(), key=lambda test: -test[1].seconds):
        yield f"{took.seconds:7.1f} {took.cpu_s:6.1f}  {name}"


def _sum(several: Iterable[Took]) -> Took:
    total = Took()
    for took in several:
        total.seconds += took.seconds
        total.cpu_s += took.cpu_s
    return total


def docstring(test: str) -> str | None:
    """Of the function of a test, by its name."""
    file, _, name = test.partition("[")[0].partition("::")
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node)
    return None

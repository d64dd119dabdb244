"""Writes what the tests of a tier took, and for what, to `.twofold/durations`: TIER.txt by test, TIER.json by file."""

from __future__ import annotations

import ast
import json
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import ROOT

NEEDS_A_REASON_S = 30.0
LONGEST = 40
REASONS = {
    "spark": "jvm_s",
    **dict.fromkeys(("airflow_alone", "bank", "broker", "postgres", "series", "spark_server"), "server_s"),
}
"""Fixture -> the reason that its seconds are counted under."""
_CPU_BEFORE = pytest.StashKey[float]()
_setups = Counter[str]()
"""Reason -> seconds of the fixtures of the test that runs."""


def pytest_configure(config: pytest.Config) -> None:
    if config.option.tier and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(ROOT / ".twofold" / "durations" / config.option.tier))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_CPU_BEFORE] = _cpu_s(item)
    _setups.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    began_s = time.monotonic()
    try:
        return (yield)
    finally:
        if fixturedef.argname in REASONS:
            _setups[REASONS[fixturedef.argname]] += time.monotonic() - began_s  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    if call.when == "teardown":
        cpu_s = max(0.0, _cpu_s(item) - item.stash[_CPU_BEFORE])
        item.user_properties += [(name, round(s, 3)) for name, s in {**_setups, "cpu_s": cpu_s}.items()]
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
    """Seconds of a test with its fixtures, or of several.

    Attributes:
        seconds: by the clock on the wall, of which are
        jvm_s: of the fixture that starts a JVM,
        server_s: of those that start servers,
        waiting_s: of the rest, those in which neither the test nor a process that it started had the CPU.
        cpu_s: of the CPU, servers left out.
    """

    seconds: float = 0.0
    cpu_s: float = 0.0
    jvm_s: float = 0.0
    server_s: float = 0.0
    waiting_s: float = 0.0

    def add(self, other: Took) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Durations:
    """Adds up the reports of all workers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: dict[str, Took] = defaultdict(Took)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        took = self._tests[report.nodeid]
        took.seconds += report.duration
        if report.when == "teardown":
            for name, value in report.user_properties:
                setattr(took, name, float(str(value)))
            took.waiting_s = max(0.0, took.seconds - took.jvm_s - took.server_s - took.cpu_s)

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.with_suffix(".txt").write_text("\n".join(lines(self._tests)) + "\n")
        self._file.with_suffix(".json").write_text(json.dumps(by_file(self._tests)))


def by_file(tests: Mapping[str, Took]) -> dict[str, dict[str, float]]:
    """What each file took, longest first; at the end all those that took less than a second."""
    files, others = defaultdict[str, Took](Took), Took()
    for test, took in tests.items():
        files[test.split("::")[0]].add(took)
    longest = sorted((file for file in files if files[file].seconds >= 1), key=lambda file: -files[file].seconds)
    for file in files.keys() - set(longest):
        others.add(files[file])
    sums = {**{file: files[file] for file in longest}, "others": others}
    return {file: {name: round(s, 1) for name, s in asdict(took).items()} for file, took in sums.items()}


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
        total.add(took)
    return total


def docstring(test: str) -> str | None:
    """Of the function of a test, by its name."""
    file, _, name = test.partition("[")[0].partition("::")
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node)
    return None

"""Chooses which worker of a run takes which file next: each server is of one worker, Spark of all but the last."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.harness import kept_run

SPARK = "spark"
SERVERS = frozenset({"airflow_alone", "broker", "platform", "postgres", "spark_server"})
"""Fixtures of a session. The worker that takes a file with one takes all files with it."""
WAITS = "waits"
"""What tests with the mark `platform` do: they have servers or processes, their own ones, too."""
LATE = frozenset({"airflow_alone"})
"""Servers of many processes, which take CPU as long as they run: files that use one come behind others that wait."""
FILE = "needs_file"
_FILE = pytest.StashKey[Path]()
_NEEDS = pytest.StashKey[Mapping[str, frozenset[str]]]()
_LEFT = pytest.StashKey[Counter[tuple[str, bool]]]()
"""Tests of files that use a server and have not run yet."""

Needs = frozenset[str]


@dataclass
class Schedule:
    """Hands out files, those first that took longest in the run that is kept.

    Attributes:
        needs: file -> what is dear to start for it: of `SERVERS`, `SPARK`, `WAITS`.
        seconds: file -> what it took; one that is not there counts as short.
        workers: of three the last has no Spark, and all files that only wait.
    """

    needs: Mapping[str, Needs]
    seconds: Mapping[str, float]
    workers: int
    _owners: dict[tuple[str, bool], int] = field(default_factory=dict)

    def next(self, worker: int, waiting: Iterable[str]) -> str | None:
        """The next file for a worker; None where all that is left is of others."""
        mine = [file for file in waiting if self._may_take(worker, self._needs(file))]
        chosen = min(mine, key=self._rank, default=None)
        if chosen is not None:
            self._owners.update(dict.fromkeys(_shared(self._needs(chosen)), worker))
        return chosen

    def lose(self, worker: int) -> None:
        """Takes note that a worker has ended: another one starts its servers again."""
        self._owners = {server: owner for server, owner in self._owners.items() if owner != worker}

    def _needs(self, file: str) -> Needs:
        return self.needs.get(file, frozenset())

    def _may_take(self, worker: int, needs: Needs) -> bool:
        if self.workers > 2 and needs and (SPARK in needs) == (worker >= self.workers - 1):
            return False
        return all(self._owners.get(server, worker) == worker for server in _shared(needs))

    def _rank(self, file: str) -> tuple[object, ...]:
        needs = self._needs(file)
        return not needs, bool(needs & LATE), needs.isdisjoint(SERVERS), -self.seconds.get(file, 0.0), file


def _shared(needs: Needs) -> list[tuple[str, bool]]:
    """The servers of a file; with Spark they are others than without, since the workers are."""
    return [(server, SPARK in needs) for server in needs & SERVERS]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[_FILE] = ROOT / ".twofold" / "durations" / f"needs-{os.getpid()}.json"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[FILE] = str(node.config.stash[_FILE])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a Spark session."""
    for item in items:
        if SPARK in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.hookimpl(tryfirst=True)  # before the worker says that it has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds what each file needs; the first worker of several notes it for the process that schedules."""
    needs = defaultdict[str, Needs](frozenset)
    for item in session.items:
        needs[_file(item)] |= _needs_of(item)
    session.stash[_NEEDS] = needs
    session.stash[_LEFT] = Counter(server for item in session.items for server in _shared(needs[_file(item)]))
    worker = getattr(session.config, "workerinput", {})
    if worker.get("workerid") == "gw0":
        file = Path(worker[FILE])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: sorted(used) for name, used in needs.items()}))


def _needs_of(item: pytest.Item) -> Needs:
    used = (SERVERS | {SPARK}).intersection(getattr(item, "fixturenames", ()))
    return used | {WAITS} if item.get_closest_marker("platform") else used


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Stops a server behind the last test of the files that use it: one that nobody needs goes on to take CPU."""
    try:
        return (yield)
    finally:
        left = item.session.stash[_LEFT]
        for server, with_spark in _shared(item.session.stash[_NEEDS][_file(item)]):
            left[server, with_spark] -= 1
            if not left[server, with_spark]:
                for fixture in item.session._fixturemanager.getfixturedefs(server, item) or ():
                    fixture.finish(item._request)  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands workers whole files, since the tests of one share what takes long to set up."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        _schedule: Schedule | None = None

        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            if self._schedule is None:
                needs = json.loads(config.stash[_FILE].read_text())
                config.stash[_FILE].unlink()
                seconds = {file: figures["seconds"] for file, figures in kept_run.kept().files.items()}
                self._schedule = Schedule({f: frozenset(n) for f, n in needs.items()}, seconds, self.numnodes)
            file = self._schedule.next(_number(node), self.workqueue)
            if file is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

        def remove_node(self, node: Any) -> Any:
            if self._schedule is not None:
                self._schedule.lose(_number(node))
            return super().remove_node(node)

    return ByFile(config, log)


def _number(node: Any) -> int:
    return int(node.gateway.id.removeprefix("gw"))

"""Chooses the tests of a run by tier, and how far tests go that could go on: `pytest --tier prove --kills 5`."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

import pytest

SLOW = frozenset({"spark", "platform"})
LONG = frozenset({"prove", "fuzz", "chaos"})
HOURS = frozenset({"fuzz", "chaos"})
TIERS: dict[str, Callable[[Set[str]], bool]] = {
    "": lambda marks: not marks & HOURS,
    "check": lambda marks: not marks & (SLOW | LONG),
    "test": lambda marks: not marks & LONG,
    "prove": lambda marks: bool(marks & {"prove", "kills", "worlds"}) and not marks & HOURS,
    "fuzz": lambda marks: bool(marks & {"fuzz", "worlds"}),
    "chaos": lambda marks: bool(marks & {"chaos", "kills"}),
}
"""Tier -> whether it has a test with these marks; without a tier all run that do not take hours."""
KILLS = {"prove": 5, "chaos": 50}
WORLDS = {"prove": 3, "fuzz": 30}


@dataclass
class ThisRun:
    """Options of the run, set before any test is imported.

    Attributes:
        kills: of real processes; 0: as few as a test wants, and of what may be an exception as well, none.
        worlds: random worlds; 0: as few as a test wants.
        months: of real flights.
        seed: the same for all workers, printed at the start.
    """

    tier: str = ""
    kills: int = 0
    worlds: int = 0
    months: int = 12
    seed: int = 1


this_run = ThisRun()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=[tier for tier in TIERS if tier], default="", help="run the tests of this tier")
    group.addoption("--kills", type=int, help=f"kill processes so many times; by tier: {KILLS}")
    group.addoption("--worlds", type=int, help=f"draw so many random worlds; by tier: {WORLDS}")
    group.addoption("--months", type=int, default=ThisRun.months, help="months of the year of flights")
    group.addoption("--seed", type=int, help="repeat what chance chose in a run that printed this number")


def in_package(argument: str) -> str:
    """A path below the package: by the name of its folder a module would be loaded a second time."""
    return re.sub(r"^(?:\./)?(?=(?:demo|features)/)", "src/twofold/", argument)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    given = early_config.known_args_namespace
    given.file_or_dir = [in_package(argument) for argument in given.file_or_dir]


def pytest_configure(config: pytest.Config) -> None:
    config.args = [in_package(argument) for argument in config.args]
    option = config.option
    this_run.tier, this_run.months = option.tier, option.months
    this_run.seed = option.seed or getattr(config, "workerinput", {}).get("seed") or random.randrange(1, 1_000_000)
    this_run.kills = KILLS.get(option.tier, 0) if option.kills is None else option.kills
    this_run.worlds = WORLDS.get(option.tier, 0) if option.worlds is None else option.worlds


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Gives a worker of xdist the seed that the run has drawn."""
    node.workerinput["seed"] = this_run.seed


def pytest_report_header() -> str:
    return (
        f"tier: {this_run.tier or 'none'}, --kills {this_run.kills} --worlds {this_run.worlds} --seed {this_run.seed}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_chosen = TIERS[this_run.tier]
    chosen = {item for item in items if is_chosen({mark.name for mark in item.iter_markers()})}
    if left_out := [item for item in items if item not in chosen]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in chosen]

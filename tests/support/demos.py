"""Runs demos in one home, one after the other, as a person does, and judges what they print."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests import ROOT
from twofold.demo.traffic.expected.expected_tables import KEYS
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.process import supervisor
from twofold.infra.process.ports import free_port
from twofold.infra.project.chosen_domains import driver_name
from twofold.infra.project.project import VARIABLE
from twofold.infra.project.settings import Settings
from twofold.status.parts.unloaded_dags import declared_dags, why_unloaded
from twofold.tables.declare.registry import load

DAYS = {"flights": 3, "shop": 2}
LONGEST_S = 1_500
PORTS = ("kafka", "controller", "airflow", "spark", "connect", "database", "webhook")


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A demo that has ended, and whatever it left running.

    Attributes:
        ran: the exit code and what it printed.
        green: DAGs of its domain with a run that succeeded.
        failed: run of its domain, task -> the end of its log.
        tables: table of its domain -> how many rows it has, and a hash of them.
    """

    domain: str
    ran: subprocess.CompletedProcess[str]
    unloaded: str | None
    green: set[str]
    failed: dict[str, str]
    tables: dict[str, tuple[object, ...]]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Demos in one home, and the processes that were left once the last was taken down."""

    demos: list[Demo]
    left: list[str]


def settings_of(home: Path) -> Settings:
    """Settings of a home, with ports that no other program has."""
    return Settings(home=home, **{f"{name}_port": free_port() for name in PORTS})  # type: ignore[arg-type]


def command(settings: Settings, *arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `./twofold` of a checkout, to whom a screen of 80 columns belongs that is no terminal."""
    return subprocess.run(
        [sys.executable, "-m", "twofold", *arguments],
        cwd=root,
        env={**os.environ, **settings.environment(), "COLUMNS": "80", VARIABLE: str(root)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def in_one_home(home: Path, demos: list[list[str]], root: Path = ROOT) -> Series:
    """Run demos of a checkout, each on what those before it left running, then take the platform down."""
    settings, ended = settings_of(home), []
    try:
        for arguments in demos:
            ended.append(run_demo(settings, *arguments, root=root))
    finally:
        command(settings, "down", root=root)
    return Series(demos=ended, left=[process.name() for process in processes_of(settings)])


def run_demo(settings: Settings, domain: str, *options: str, root: Path = ROOT) -> Demo:
    """Run one demo, and leave the platform running."""
    ran = command(settings, "demo", domain, *options, root=root)
    if ran.returncode:
        ran.stderr += _threads(settings, domain)
    client = Client(settings)
    runs = [run for run in client._all("/api/v2/dags/~/dagRuns", "dag_runs") if domain == _domain(run)]
    return Demo(
        domain=domain,
        ran=ran,
        unloaded=why_unloaded(settings, declared_dags(load(), domain)),
        green={run["dag_id"] for run in runs if run["state"] == "success"},
        failed=_failed(client, runs),
        tables=_tables(settings, domain),
    )


def processes_of(settings: Settings) -> list[psutil.Process]:
    """Every process that has this home in its environment."""
    return [process for process in psutil.process_iter() if str(settings.home) in _home(process)]


def _threads(settings: Settings, domain: str) -> str:
    """What its driver did last, and what each of its threads does now."""
    log = settings.logs / f"{driver_name(domain)}.log"
    for process in supervisor.state(settings):
        if process.name == driver_name(domain) and process.pid:
            os.kill(process.pid, signal.SIGUSR1)
            time.sleep(2)
    return log.read_text()[-20_000:] if log.exists() else ""


def _domain(run: dict[str, Any]) -> str:
    return str(run["dag_id"]).partition(".")[0]


def _failed(client: Client, runs: list[dict[str, Any]]) -> dict[str, str]:
    return {
        f"{run['dag_run_id']} of {run['dag_id']}, {task.task_id}": client.task_log(
            run["dag_id"], run["dag_run_id"], task.task_id, task.try_number, task.map_index
        )[-1_000:]
        for run in runs
        if run["state"] == "failed"
        for task in client.task_instances(run["dag_id"], run["dag_run_id"])
        if task.state == "failed"
    }


def _tables(settings: Settings, domain: str) -> dict[str, tuple[object, ...]]:
    """The tables that come of the demo's records alone: of a captured database what is written again is a change."""
    registry = load()
    names = [
        table.full_name
        for table in registry.in_order(domain)
        if not any(topic.captures for topic in registry.above(table).topics.values())
    ]
    each = (f"SELECT '{name}' AS name, count(*) AS n, bit_xor(hash(t)) AS hash FROM {name} t" for name in names)
    rows = json.loads(command(settings, "sql", " UNION ALL ".join(each), "--json").stdout)
    return {row["name"]: (row["n"], row["hash"]) for row in rows}


def _home(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("TWOFOLD_HOME", ""))
    except psutil.Error:
        return ""


def short(domain: str) -> list[str]:
    """The arguments of its short demo."""
    return [domain, "--days", str(DAYS[domain]), "--seconds", "10", "--steps", "none"]


def faults(demo: Demo) -> list[str]:
    """What a person would see that is wrong; the demo's own words first."""
    said = demo.ran.stdout
    last = "\n".join([*said.splitlines()[-25:], demo.ran.stderr[-20_000:]])
    found = [f"exit code {demo.ran.returncode}:\n{last}"] if demo.ran.returncode else []
    tables = sum(table.full_name in KEYS for table in load().in_order(demo.domain))
    if f"rows of {tables} tables equal what DuckDB computes" not in said or "✗" in said:
        found.append(f"the account is not right:\n{last}")
    if demo.domain == "shop" and "taken, one sent again, one with a wrong signature refused" not in said:
        found.append(f"the webhooks are not as sent:\n{last}")
    copies = sum(len(table.outputs) for table in load().in_order(demo.domain))
    if said.count("equal those of its copy in") != copies:
        found.append(f"not every copy equals its table:\n{last}")
    if demo.domain == "shop" and not (
        "called a receiver, each once" in said and "done by 4 workers" in said and "cannot be read" in said
    ):
        found.append(f"not every follower is named:\n{last}")
    found += [f"{len(line)} columns: {line}" for line in said.splitlines() if len(line) > 80]
    found += [demo.unloaded] if demo.unloaded else []
    found += [f"{task} failed:\n{log}" for task, log in demo.failed.items()]
    return found + [
        f"no run of {kind}" for kind in ("reconcile", "quality") if f"{demo.domain}.{kind}" not in demo.green
    ]


def own_checkout(folder: Path) -> Path:
    """A copy of this checkout, whose files a demo may edit."""
    left_out = shutil.ignore_patterns(".git", ".venv", ".twofold", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / ".twofold").mkdir()
    for name in ("jars", "classes"):
        (folder / ".twofold" / name).symlink_to(ROOT / ".twofold" / name)
    return folder

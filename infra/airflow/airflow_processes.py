"""Airflow on this machine: its environment and its processes."""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from twofold.infra import PACKAGE
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.ports import HOST
from twofold.infra.process.secret_files import ensure_secret
from twofold.infra.process.supervisord import Program
from twofold.infra.project.project import project
from twofold.infra.project.settings import ADMIN, PREFIX, Settings
from twofold.infra.sqlite_file import open_sqlite

DAGS = PACKAGE / "dags"
# Without --skip-serve-logs two of them would serve their logs to the world, on fixed ports.
COMPONENTS = {
    "api-server": [],
    "scheduler": ["--skip-serve-logs"],
    "dag-processor": [],
    "triggerer": ["--skip-serve-logs"],
}
DATABASE_TIMEOUT_S = 300
_TAIL_BYTES = 100_000
_LOGGED = re.compile(r"\d{4}-\d{2}-\d{2}T")  # how a line of Airflow's own log begins
DATABASE_WAIT_S = 30
"""How long a process waits for a database in use."""


def is_migrated(settings: Settings) -> bool:
    """Whether Airflow's database has the form that the installed version works with."""
    migrated = _migrated(settings)
    return migrated.exists() and migrated.read_text() == version("apache-airflow") and _database(settings).exists()


def prepare(settings: Settings) -> None:
    """Creates Airflow's secrets and database. Safe to repeat; returns at once if the database has this version.

    Raises:
        ProcessFailed: the database cannot be created; the message holds Airflow's output.
    """
    directory(settings).mkdir(parents=True, exist_ok=True)
    _passwords(settings).write_text(json.dumps(passwords(settings)))
    _passwords(settings).chmod(0o600)
    if is_migrated(settings):
        return
    _run(settings, "migrate")
    _migrated(settings).write_text(version("apache-airflow"))


def _run(settings: Settings, *arguments: str) -> None:
    """Runs a command on Airflow's database."""
    ran = subprocess.run(
        [sys.executable, "-m", "airflow", "db", *arguments],
        env={**os.environ, **environment(settings)},
        cwd=project().folder,
        capture_output=True,
        text=True,
        timeout=DATABASE_TIMEOUT_S,
        check=False,
    )
    if ran.returncode != 0:
        said = (ran.stdout + ran.stderr).strip()[-1000:]
        raise ProcessFailed(f"airflow db {arguments[0]} fails on this home's database: {said}")


def old_rows(settings: Settings, before: datetime) -> int:
    """Counts the runs, and the lines of the audit log, that this home's Airflow began before a moment."""
    if not is_migrated(settings):
        return 0
    counted = "SELECT (SELECT count(*) FROM dag_run WHERE start_date < ?) + (SELECT count(*) FROM log WHERE dttm < ?)"
    with closing(open_sqlite(_database(settings), wait_s=DATABASE_WAIT_S, read_only=True)) as connection:
        [[number]] = connection.execute(counted, [f"{before:%Y-%m-%d %H:%M:%S}"] * 2).fetchall()
    return int(number)


def remove_old_rows(settings: Settings, before: datetime) -> None:
    """Has Airflow remove what it knows of runs that began before a moment, but for the last run of each DAG.

    Raises:
        ProcessFailed: it cannot; the message holds its output.
    """
    _run(settings, "clean", "--clean-before-timestamp", before.isoformat(), "--skip-archive", "--yes")


def programs(settings: Settings, *, dags: Path = DAGS) -> list[Program]:
    """Lists the programs that the supervisor runs; `prepare` must have been called before."""
    return [
        Program(
            name=f"airflow-{component}",
            command=[sys.executable, "-m", "airflow", component, *options],
            environment=environment(settings, dags=dags),
            stage=2,
            start_s=5,
            stop_wait_s=15,
        )
        for component, options in COMPONENTS.items()
    ]


def environment(settings: Settings, *, dags: Path = DAGS) -> dict[str, str]:
    """Returns the environment variables of every Airflow process and task; they include secrets."""
    address = base_url(settings)
    options = {
        "CORE__DAGS_FOLDER": dags,
        "DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(_bundles(dags)),
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": 4,
        # A task that starts Spark takes all of these slots, so that two never run at once.
        "CORE__DEFAULT_POOL_TASK_SLOT_COUNT": 4,
        "CORE__LOAD_EXAMPLES": False,
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
        "CORE__DEFAULT_TIMEZONE": "utc",
        "CORE__FERNET_KEY": _secret(settings, "fernet.key"),
        "CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in settings.roles.items()),
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": _passwords(settings),
        # SQLite lets one write at a time; after five seconds, its default, the API would answer with an error.
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_database(settings)}?timeout={DATABASE_WAIT_S}",
        "API__HOST": HOST,
        "API__PORT": settings.airflow_port,
        "API__BASE_URL": settings.airflow_address,
        "API__WORKERS": 1,
        "API__SECRET_KEY": _secret(settings, "api.key"),
        "API_AUTH__JWT_SECRET": _secret(settings, "jwt.key"),
        # After five seconds, its default, a task that starts while the API is busy is left "running" for minutes.
        "WORKERS__EXECUTION_API_TIMEOUT": 60,
        "DAG_PROCESSOR__REFRESH_INTERVAL": 30,
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 30,
        "DAG_PROCESSOR__PARSING_PROCESSES": 1,
        "LOGGING__BASE_LOG_FOLDER": settings.logs / "airflow",
        "USAGE_DATA_COLLECTION__ENABLED": False,
    }
    return {
        **settings.environment(),
        **{f"AIRFLOW__{name}": str(value) for name, value in options.items()},
        "AIRFLOW_HOME": str(directory(settings)),
        "PYTHONUNBUFFERED": "1",
        # Tasks report to the API server of this machine, even if it reaches the network through a proxy.
        "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), HOST])),
    }


def _bundles(dags: Path) -> list[dict[str, object]]:
    """Returns what Airflow loads: the DAGs of declarations, and those of the project's own folder."""
    kind = "airflow.dag_processing.bundles.local.LocalDagBundle"
    own = project().dags
    folders = {"dags-folder": dags, **({"project": own} if own.is_dir() and own != DAGS else {})}
    return [{"name": name, "classpath": kind, "kwargs": {"path": str(path)}} for name, path in folders.items()]


def base_url(settings: Settings) -> str:
    """Returns the address of Airflow on this machine; its path is that of the address for people."""
    return f"http://{HOST}:{settings.airflow_port}{urlsplit(settings.airflow_address).path}"


def parser_log(settings: Settings) -> Path:
    """Returns the log of the process that loads DAG files."""
    return settings.logs / "airflow-dag-processor.log"


def parser_traceback(settings: Settings, most: int = 3) -> list[str]:
    """Returns the last lines of the newest traceback in the log of the DAG processor; empty if it has none.

    A child process that dies while it loads a file reports no import error; its traceback is only in that log.
    """
    try:
        with parser_log(settings).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    _, separator, newest = tail.rpartition("Traceback (most recent call last):")
    lines = itertools.takewhile(lambda line: not _LOGGED.match(line), newest.splitlines()[1:])
    return [line for line in lines if line.strip()][-most:] if separator else []


def directory(settings: Settings) -> Path:
    """Returns the path `AIRFLOW_HOME`."""
    return settings.home / "airflow"


def passwords(settings: Settings) -> dict[str, str]:
    """Maps each user to the password: of `admin` the setting, else one that was generated for this home."""
    made = {
        name: _secret(settings, f"{name}.password", lambda: secrets.token_urlsafe(9))
        for name in settings.roles
        if name != ADMIN or not settings.airflow_password
    }
    return {ADMIN: settings.airflow_password, **made}


def shown_users(settings: Settings, with_passwords: bool) -> list[str]:
    """Returns a line for each user, with the password or where it is."""
    words = passwords(settings)
    if not with_passwords:
        own = {ADMIN: f"as {PREFIX}AIRFLOW_PASSWORD has it"} if settings.airflow_password else {}
        words = {name: f"in {directory(settings)}/secrets/{name}.password" for name in words} | own
    return [f"user {name}, password {word}, {settings.roles[name]}" for name, word in words.items()]


def _secret(settings: Settings, name: str, make: Callable[[], str] | None = None) -> str:
    return ensure_secret(directory(settings) / "secrets" / name, make or _fernet_key)


def _fernet_key() -> str:
    """Generates 32 random bytes in the format of `cryptography.fernet`; other keys use them, too."""
    import base64

    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _migrated(settings: Settings) -> Path:
    return directory(settings) / "migrated"


def _database(settings: Settings) -> Path:
    return directory(settings) / "airflow.db"


def _passwords(settings: Settings) -> Path:
    return directory(settings) / "passwords.json"

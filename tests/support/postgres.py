"""PostgreSQL as the supervisor runs it, one for all tests of a worker, which they may kill."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from twofold.features.outputs.targets.postgres_output import COPIES
from twofold.infra.postgres import postgres_server
from twofold.infra.postgres.database_connection import query, supervised_address
from twofold.infra.process.ports import free_port
from twofold.infra.project.settings import Settings


@dataclass
class Server:
    """A PostgreSQL with the database of copies."""

    settings: Settings
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(postgres_server.program(self.settings).command, stderr=log)
        postgres_server.wait_ready(self.settings)

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.settings.home / "server.log"

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait() == 0

    def kill(self) -> None:
        """End all its processes at once."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()  # first, or it would start others for them
        for process in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        # The next one does not start while any of them has the shared memory.
        psutil.wait_procs(children)

    def with_tables(self, schema: str) -> Settings:
        """Settings of the usual database, which has what this SQL makes, and nothing of other tests."""
        for (publication,) in query(self.settings, "SELECT pubname FROM pg_publication"):
            query(self.settings, f'DROP PUBLICATION "{publication}"')
        query(self.settings, f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {schema}")
        return self.settings

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """What a statement gives in the database of copies."""
        at = supervised_address(self.settings, COPIES)
        with psycopg.connect(**at._asdict(), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def without_copies(self, *schemas: str) -> None:
        """Remove these schemas of copies, and all positions."""
        for schema in (*schemas, "_twofold"):
            self.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@contextmanager
def running(home: Path) -> Iterator[Server]:
    server = Server(Settings(home=home, database_port=free_port(), shuffle_partitions=1))
    postgres_server.prepare(server.settings)
    postgres_server.prepare(server.settings)  # safe to repeat
    server.start()
    try:
        postgres_server.ensure_database(server.settings, COPIES)
        yield server
    finally:
        server.stop()

"""Packs a home that was taken down into one archive, and unpacks it in another place, where it goes on.

Beside the archive a file of facts says what DuckDB has found in it when it was packed.
"""

from __future__ import annotations

import json
import lzma
import os
import pwd
import struct
import tarfile
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.demos import settings_of
from tests.support.duckdb_extensions import with_extension
from twofold.batch.plan.plan import LASTS, Plans
from twofold.features.persons.export import export
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.infra.delta.lake import Lake
from twofold.infra.postgres.postgres_server import UNPRIVILEGED, data_directory
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HOMES = Path(__file__).parent
LEFT_OUT = {
    "airflow/logs",
    "analytics.duckdb",
    "database/data/postmaster.opts",
    "logs",
    "quality/docs",
    "run/tasks",
    "spark",
    "supervisor",
}
"""What `up` and the commands make again: logs, views, Data Docs, scratch, and what is written of processes."""
WINDOW = 128 << 20
"""Of the compression: the databases of PostgreSQL repeat each other."""
CUSTOMERS = "shop.customer_changes"
_WAL_BYTES = 16 << 20
_CHECKPOINT = struct.Struct("<32xQ")
"""Where the control file of PostgreSQL has the place of the last checkpoint in its log."""

Content = tuple[int, int]
"""How many rows a table has, and the sum of their hashes."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was in a home when it was packed.

    Attributes:
        tables: of the lake -> how many rows, and the sum of their hashes.
        forgotten: the customer who was forgotten.
        mails: another customer -> the mail addresses, in the clear.
    """

    tables: dict[str, Content]
    forgotten: str
    mails: dict[str, list[str]]

    @classmethod
    def read(cls, archive: Path) -> Facts:
        facts = json.loads(archive.with_suffix(".json").read_text())
        return cls(**{**facts, "tables": {name: tuple(content) for name, content in facts["tables"].items()}})


def archive_of(name: str) -> Path:
    """The archive of a home, whether or not it is there."""
    return HOMES / f"{name}.xz"


def pack(settings: Settings, archive: Path) -> None:
    """Write the archive of a home, but for `LEFT_OUT`, and its facts."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if member.name in LEFT_OUT or _is_spare(settings.home / member.name, last):
            return None
        return member.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)

    last = _last_log_file(settings)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": WINDOW}]
    with (
        lzma.open(archive, "wb", filters=filters) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as packed,
    ):
        packed.add(settings.home, "", filter=kept)
    with reader() as connection:
        tables = {name: content(connection, scan_of(settings, name)) for name in Lake(settings).names()}
        customers = f"SELECT DISTINCT customer {scan_of(settings, CUSTOMERS)} ORDER BY customer"
        ids = [str(id) for (id,) in connection.execute(customers).fetchall()]
    facts = Facts(tables=tables, forgotten=ids[0], mails={id: mails_of(settings, id) for id in ids[1:3]})
    archive.with_suffix(".json").write_text(json.dumps(asdict(facts), indent=1) + "\n")


def unpack(archive: Path, home: Path) -> Settings:
    """Write the files of an archive below a home, as new ones, with settings of its own.

    Plans that were open last as long from now on as they did: a home is moved in less than three days.
    """

    def new(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo:
        return tarfile.tar_filter(member, place).replace(mtime=None, deep=False)  # type: ignore[arg-type]

    home.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter=new)
    settings = settings_of(home)
    if os.getuid() == 0:
        owner = pwd.getpwnam(UNPRIVILEGED)
        database = data_directory(settings).parent
        for path in (database, *database.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    plans, now = Plans(settings), datetime.now(UTC)
    for plan in plans.all():
        if plan.state(plan.created_at) == "open":
            plans.save(replace(plan, created_at=now, expires_at=now + LASTS))
    return settings


def scan_of(settings: Settings, name: str) -> str:
    """SQL of DuckDB that reads a table of the lake by its own reader."""
    return f"FROM delta_scan({DUCKDB.literal(Lake(settings).uri(name))}) AS t"


def reader() -> DuckDBPyConnection:
    """A DuckDB that reads tables of a lake."""
    connection = with_extension("delta")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def content(connection: DuckDBPyConnection, rows: str) -> Content:
    """The content of `FROM ... AS t`, whatever the order of its rows."""
    hashed = f"SELECT count(*), coalesce(sum(md5_number_lower(t::VARCHAR)), 0) {rows}"
    [(count, hashes)] = connection.execute(hashed).fetchall()
    return count, int(hashes)


def mails_of(settings: Settings, customer: str) -> list[str]:
    """The mail addresses of a customer, as `twofold export` has them: in the clear, unless they are forgotten."""
    with closing(KeyStore(settings)) as store:
        held = export(Lake(settings), load(), store, Person("customer", customer))
    return sorted({str(row["mail"]) for row in held[CUSTOMERS]})


def _last_log_file(settings: Settings) -> str:
    """The file of PostgreSQL's log with the checkpoint by which it has stopped."""
    [at] = _CHECKPOINT.unpack_from((data_directory(settings) / "global" / "pg_control").read_bytes())
    number, per_name = at // _WAL_BYTES, (1 << 32) // _WAL_BYTES
    return f"{1:08X}{number // per_name:08X}{number % per_name:08X}"


def _is_spare(path: Path, last: str) -> bool:
    """Whether it is another file of PostgreSQL's log; `pack_home` has waited until its captures need none of them."""
    return path.parent.name == "pg_wal" and path.is_file() and path.name != last

"""Settings: places, ports and limits, read once from the environment and from the project's file."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, TypeVar, get_args
from urllib.parse import urlsplit

from twofold.infra.errors import BadSetting
from twofold.infra.project.home_format import require_known_format
from twofold.infra.project.project import VARIABLE, project

Engine = Literal["auto", "spark", "delta-rs"]
Switch = Literal["off", "on"]

PREFIX = "TWOFOLD_"
SECRETS = frozenset({"airflow_password", "spark", "schema_registry", "database", "key_of_keys"})
IN_PROCESS = "local"
ADMIN = "admin"
"""The user of Airflow that is always there, and its role."""
ROLES = ("viewer", "user", "op", ADMIN)
_PLACES = frozenset({"home", "lake", "archive", "destinations", "keys", "webhook_secrets"})
"""Files and folders: in the project's file those that are not absolute lie below its folder."""
_CHOICES = {"Engine": get_args(Engine), "Switch": get_args(Switch)}
_NOT_IN_PATHS = r"%[]\^|{}*?"
"""delta-rs panics at some of these and mistakes others; Spark takes the rest for patterns."""


T = TypeVar("T")


def _setting(default: T, doc: str) -> T:
    setting: T = field(default=default, metadata={"doc": doc})
    return setting


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of the platform: `TWOFOLD_<NAME>` of the environment, `<name>` of the project's file."""

    home: Path = field(
        default_factory=lambda: project().folder / ".twofold",
        metadata={"doc": "directory that holds all state of the project"},
    )
    lake: str = _setting("", "the directory of the Delta tables; empty: `lake` under home")
    archive: str = _setting("", "where the broker keeps archived segments; empty: `tiered` under home")
    bootstrap: str = _setting("", "Kafka bootstrap servers of a cluster of yours; empty: the supervised broker")
    schema_registry: str = _setting(
        "",
        "URL of a schema registry with Confluent's REST interface, asked for schemas that are no files below "
        "`schemas`; may hold `user:password@`; empty: none",
    )
    kafka_port: int = _setting(19092, "port of the supervised broker")
    controller_port: int = _setting(19093, "port of the supervised broker's KRaft controller")
    database: str = _setting(
        "",
        "captured database, `postgresql://user:password@host:port/name`, with `wal_level=logical`; empty: the "
        "supervised one, if a topic captures a table",
    )
    slot_failover: Switch = _setting(
        "off",
        "`on`: the captured database, PostgreSQL 17 or later, keeps replication slots that are made from then on in "
        "its standby servers too, so that captures continue after a failover",
    )
    database_port: int = _setting(15432, "port of the supervised PostgreSQL")
    destinations: str = _setting(
        "",
        "file of lines `name = address` with the addresses of destinations of outputs, which only its owner can read; "
        "empty: none",
    )
    webhook_networks: str = _setting(
        "",
        "networks such as `127.0.0.0/8, 10.1.0.0/16` in which outputs may call receivers, also without TLS; elsewhere "
        "an address must be public and the URL begin with `https://`",
    )
    keys: str = _setting(
        "", "file of the keys of persons, outside of the lake; empty: `keys/persons.sqlite` under home"
    )
    key_of_keys: str = _setting(
        "",
        "what the keys of persons are encrypted by: a file of mode 0600 with the line `key = BASE64`, of 32 bytes, or "
        "`base64:...`, the key itself; empty: `keys/key-of-keys` under home, better kept apart",
    )
    forget_after_days: int = _setting(7, "days after `forget` in which `remember` can take it back; then the key ends")
    connect_port: int = _setting(18083, "port of the supervised Kafka Connect's REST interface")
    webhook_port: int = _setting(18084, "port of the receiver of webhooks, if a topic is declared `from_webhook`")
    webhook_secrets: str = _setting(
        "",
        "file of mode 0600 with a line `domain.topic = secret` for each topic of webhooks, several while one is "
        "replaced; empty: `webhook-secrets` under home, in which `up` makes those that are missing",
    )
    airflow_port: int = _setting(18080, "port of the Airflow UI and API")
    airflow_url: str = _setting(
        "",
        "address of Airflow for people, through a proxy of yours that passes paths on as they are, such as "
        "`https://data.example.org/airflow`; empty: the port on 127.0.0.1",
    )
    page_port: int = _setting(18085, "port of `twofold page`, the page without Airflow")
    airflow_notifier: str = _setting(
        "",
        "`module:name` of a notifier of Airflow, or of a function of a task's context, that is called when a task "
        "fails; empty: a failure is logged only",
    )
    airflow_password: str = _setting("", "password of the Airflow user `admin`; empty: made once, kept in home")
    airflow_users: str = _setting(
        "",
        "further users of Airflow and of the page, `name:role, name:role`; a `viewer` reads, a `user` also starts runs "
        "and approves, an `op` also sets pools and variables, an `admin` may all; `up` names the files of their "
        "passwords; empty: the user `admin` alone",
    )
    spark: str = _setting(
        "",
        "where batch work runs: `sc://host:port/...`, any Spark Connect endpoint; `local`, in each command's own "
        "process; empty: the supervised Spark server, or in process while the platform is down",
    )
    spark_port: int = _setting(15002, "port of the supervised Spark Connect server")
    spark_master: str = _setting(
        "local[2]", "Spark master of stream drivers, of the Spark server, and of work in process"
    )
    spark_cores: int = _setting(2, "cores of a Spark cluster that each stream driver, and the Spark server, take")
    driver_memory: str = _setting("1500m", "heap of a stream driver, of the Spark server, or of work in process")
    shuffle_partitions: int = _setting(2, "shuffle partitions; fixed for the life of a stateful checkpoint")
    engine: Engine = _setting("auto", "who commits to Delta: `spark`, `delta-rs`, or `auto`: by size")
    small_rows: int = _setting(50_000, "rows up to which `auto` commits through delta-rs")
    query_memory_mb: int = _setting(
        2_000,
        "memory that a query of `sql`, `mcp` or a notebook takes at most, MB; on disk it takes four times as much",
    )
    max_offsets: int = _setting(500_000, "records that one micro-batch of ingest takes at most")
    max_files: int = _setting(500, "data files of each input that one micro-batch of a table takes at most")
    ingest_trigger_ms: int = _setting(300, "least time between two micro-batches of ingest, milliseconds")
    table_trigger_ms: int = _setting(800, "least time between two micro-batches of a table, milliseconds")

    def of_copy(self, home: Path, lake: str = "") -> Settings:
        """Returns the settings of a copy with its own tables and state, which shares log, archive and persons' keys."""
        return replace(
            self,
            home=home,
            lake=lake,
            archive=self.archive_uri,
            bootstrap=self.bootstrap_servers,
            keys=str(self.keys_file),
            key_of_keys=self.key_of_keys or str(self.key_of_keys_file),
        )

    @property
    def lake_uri(self) -> str:
        """Root of the Delta tables: a path or an object store URI, without a trailing slash."""
        return self.lake.rstrip("/") or str(self.home / "lake")

    @property
    def archive_uri(self) -> str:
        """Root of the archived segments: a path or an object store URI, without a trailing slash."""
        return self.archive.rstrip("/") or str(self.home / "tiered")

    @property
    def webhook_secrets_file(self) -> Path:
        """The file with the secrets of webhooks."""
        return Path(self.webhook_secrets).expanduser() if self.webhook_secrets else self.home / "webhook-secrets"

    @property
    def keys_file(self) -> Path:
        """The file of the keys of persons."""
        return Path(self.keys).expanduser() if self.keys else self.home / "keys" / "persons.sqlite"

    @property
    def key_of_keys_file(self) -> Path:
        """The file with the key of keys."""
        return Path(self.key_of_keys).expanduser() if self.key_of_keys else self.home / "keys" / "key-of-keys"

    @property
    def receiver_address(self) -> str:
        """The address of the receiver of webhooks; a topic is `/DOMAIN/TOPIC` below it."""
        return f"http://127.0.0.1:{self.webhook_port}"

    @property
    def airflow_address(self) -> str:
        """The address of Airflow for people, without a trailing slash."""
        return self.airflow_url.rstrip("/") or f"http://127.0.0.1:{self.airflow_port}"

    @property
    def roles(self) -> dict[str, str]:
        """The users of Airflow, by name, and their roles."""
        return {ADMIN: ADMIN, **dict(_users(self.airflow_users))}

    @property
    def bootstrap_servers(self) -> str:
        return self.bootstrap or f"127.0.0.1:{self.kafka_port}"

    @property
    def supervises_broker(self) -> bool:
        return not self.bootstrap

    @property
    def supervises_database(self) -> bool:
        return not self.database

    @property
    def supervises_spark(self) -> bool:
        return not self.spark

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    @property
    def progress(self) -> Path:
        return self.home / "progress"

    @property
    def start_lock(self) -> Path:
        """The lock file held while `up` chooses domains and starts their processes."""
        return self.home / "run" / "start.lock"

    def driver_lock(self, domain: str) -> Path:
        """Returns the lock file that the domain's stream driver holds while it runs."""
        return self.home / "run" / f"{domain}.driver.lock"

    def stream_lock(self, table: str) -> Path:
        """Returns the lock file of a table's checkpoint, by the table's full name."""
        return self.home / "run" / f"{table}.stream.lock"

    @property
    def analytics(self) -> Path:
        """The file of DuckDB with views over all tables, for analysts."""
        return self.home / "analytics.duckdb"

    @property
    def plans(self) -> Path:
        """The folder of plans: one subfolder for each rewrite of history that waits for approval or was approved."""
        return self.home / "plans"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def jars(self) -> Path:
        """The JVM jars, which homes share."""
        return project().cache / "jars"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, *, of_any_home: bool = False) -> Settings:
        """Reads the settings: the variables `TWOFOLD_*`, the project's file, ports that the home keeps, the defaults.

        Args:
            of_any_home: they are only shown, so that a newer platform may have made the home.

        Raises:
            BadSetting: a value of the wrong type, a setting that there is not, a secret in the file, a folder that
                cannot hold tables, a home of a newer platform, or no project.
        """
        given = given_settings(os.environ if environment is None else environment)
        settings = cls(**{name: setting.value for name, setting in given.items()})  # type: ignore[arg-type]
        if not of_any_home:
            require_known_format(settings.home)
        _require_place("HOME", str(settings.home))
        _require_place("LAKE", settings.lake)
        _require_users(settings.airflow_users)
        return settings

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that pass these settings, and the project, to a child process."""
        settings = {PREFIX + f.name.upper(): str(getattr(self, f.name)) for f in fields(self)}
        return {VARIABLE: str(project().folder), **settings}

    def shown(self) -> dict[str, str]:
        """Returns the settings for display, with secrets masked."""
        return {
            f.name: "***" if f.name in SECRETS and getattr(self, f.name) else str(getattr(self, f.name))
            for f in fields(self)
        }


@dataclass(frozen=True, kw_only=True)
class Given:
    """A setting that has no default value.

    Attributes:
        origin: the environment variable, or the file.
    """

    value: object
    origin: str


def given_settings(environment: Mapping[str, str]) -> dict[str, Given]:
    """Returns the settings that the environment, the project's file or the home has, by name.

    Raises:
        BadSetting: a value of the wrong type, a setting that there is not, or a secret in the file.
    """
    named = named_settings(environment)
    home = named["home"].value if "home" in named else Settings().home
    return {**kept_ports(Path(str(home))), **named}


def ports_file(home: Path) -> Path:
    """Returns the file with the ports that were chosen for the servers of a home."""
    return home / "ports.json"


def kept_ports(home: Path) -> dict[str, Given]:
    """Returns the ports that were chosen for the servers of a home, by the names of their settings.

    Raises:
        BadSetting: the file has anything else.
    """
    file = ports_file(home)
    try:
        ports = json.loads(file.read_text("utf-8")) if file.exists() else {}
        known = [f.name for f in fields(Settings) if f.name.endswith("_port")]
        return {
            name: Given(value=_parse(name, str(ports[name]), "int", f"{file}: {name}"), origin=str(file))
            for name in known
            if name in ports
        }
    except (ValueError, TypeError) as error:
        raise BadSetting(
            f"{file}: {error}.", hint="Delete it while the platform is down: `up` chooses again."
        ) from None


def named_settings(environment: Mapping[str, str]) -> dict[str, Given]:
    """Returns the settings that the environment or the project's file has, by name.

    Raises:
        BadSetting: a value of the wrong type, a setting that there is not, or a secret in the file.
    """
    kinds = {f.name: f.type for f in fields(Settings)}
    file = project().file
    given: dict[str, Given] = {}
    for name, value in project().settings.items():
        _require_known(name, kinds, f"{file}: {name}")
        if name in SECRETS:
            raise BadSetting(
                f"{file}: {name} may hold a secret, which a file that is shared must not.",
                hint=f"Set {PREFIX}{name.upper()} in the environment.",
            )
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise BadSetting(f"{file}: {name}={value!r}: expected a text or a whole number.")
        text = str(file.parent / Path(str(value)).expanduser()) if _is_path(name, value) else str(value)
        given[name] = Given(value=_parse(name, text, kinds[name], f"{file}: {name}"), origin=str(file))
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != VARIABLE:
            name = variable.removeprefix(PREFIX).lower()
            _require_known(name, kinds, variable)
            given[name] = Given(value=_parse(name, text, kinds[name], variable), origin=variable)
    return given


def _is_path(name: str, value: object) -> bool:
    return name in _PLACES and bool(value) and "://" not in str(value)


def _require_known(name: str, names: Collection[str], place: str) -> None:
    if name not in names:
        listed = ", ".join(PREFIX + known.upper() if place.startswith(PREFIX) else known for known in names)
        raise BadSetting(f"{place} is not a setting.", hint=f"The settings are {listed}.")


def _require_place(name: str, place: str) -> None:
    if "://" not in place and (signs := [sign for sign in _NOT_IN_PATHS if sign in place]):
        raise BadSetting(
            f"{PREFIX}{name}={place!r}: Delta tables cannot lie below a folder with {' '.join(signs)} in its name.",
            hint=f"Set {PREFIX}{name} to a folder whose path has none of {' '.join(_NOT_IN_PATHS)}.",
        )


def _users(text: str) -> list[tuple[str, str]]:
    """Splits `name:role, name:role`."""
    return [(user.partition(":")[0], user.partition(":")[2]) for user in map(str.strip, text.split(",")) if user]


def _require_users(text: str) -> None:
    users = _users(text)
    for name, role in users:
        is_name = name.isascii() and name.translate(dict.fromkeys(map(ord, "-._"))).isalnum()
        if not is_name or role not in ROLES or [name for name, _ in [(ADMIN, ADMIN), *users]].count(name) > 1:
            raise BadSetting(
                f"{PREFIX}AIRFLOW_USERS={text!r}, at {name + ':' + role!r}: expected name:role, each name once, of "
                f"letters, digits and . - _, and a role of {', '.join(ROLES)}.",
                hint=f"Write for example ada:viewer; the user {ADMIN} is always there.",
            )


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)


def _parse(name: str, text: str, kind: object, place: str) -> object:
    """Parses a value; `place` says in errors where it was found."""
    if kind == "Path":
        return Path(text).expanduser().resolve()
    if kind == "int":
        try:
            number = int(text)
        except ValueError:
            number = -1
        if number < 0 or (name.endswith("_port") and not 0 < number < 65536):
            expected = "a port from 1 to 65535" if name.endswith("_port") else "a whole number, 0 or more"
            raise BadSetting(f"{place}={text!r}: expected {expected}.", hint=f"Unset {place} to get its default.")
        return number
    if name == "spark" and text not in ("", IN_PROCESS) and not text.startswith("sc://"):
        raise BadSetting(
            f"{place}={text!r}: expected sc://host:port/..., {IN_PROCESS}, or nothing.",
            hint=f"Unset {place} to use the supervised Spark server.",
        )
    if name == "airflow_url" and text and not _is_address(text):
        raise BadSetting(
            f"{place}={text!r}: expected http:// or https://, a host, and a path or none.",
            hint=f"Unset {place} if people reach Airflow on 127.0.0.1.",
        )
    choices = _CHOICES.get(str(kind), ())
    if choices and text not in choices:
        raise BadSetting(f"{place}={text!r}: expected one of {', '.join(choices)}.", hint=f"Unset {place}.")
    return text

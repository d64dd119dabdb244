"""The Delta tables of a home: their paths, and facts that are read cheaply from their logs."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from twofold.infra import COMMAND
from twofold.infra.atomic_write import settle
from twofold.infra.delta.file_statistics import forget_untrue_bounds, with_true_bounds
from twofold.infra.delta.history import REPLACED_IN_CHECKPOINTS, History
from twofold.infra.delta.logged_commit import LoggedCommit, info_of, parsed_commit
from twofold.infra.delta.version_checksum import write_checksum
from twofold.infra.errors import BadArgument, DamagedLog, SchemaMismatch

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.project.settings import Settings

QUARANTINE = "_quarantine"
COPIES = "_copies"
"""Folder of a lake for copies of it that are worked on."""
_log = logging.getLogger("twofold.lake")
_COMMENT = "comment"
"""The metadata key in which Delta, Spark and catalogs keep the comment of a column."""
_DESCRIPTION = "description"
_STATISTICS = "delta.dataSkippingStatsColumns"
_ATTEMPTS = 3  # of a commit that meets others
_WAITS_S = (0.05, 0.2, 0.5)  # for a commit that is being written
_PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": "100",
    # What goes from the log, and when, is decided by `infra.delta.trim` alone.
    "delta.logRetentionDuration": "interval 365 days",
    **REPLACED_IN_CHECKPOINTS,
}


@dataclass(frozen=True)
class Lake:
    """All Delta tables of a platform, by `domain.name`."""

    settings: Settings

    def uri(self, name: str) -> str:
        domain, _, bare = name.partition(".")
        return f"{self.settings.lake_uri}/{domain}/{bare}"

    @property
    def live_uri(self) -> str:
        """Root of the lake that this one is a copy of; its own root, if it is none."""
        return self.settings.lake_uri.partition(f"/{COPIES}/")[0]

    def history(self, name: str) -> History:
        """Returns the holds on the table's history, and from where on it is there."""
        return History(self.uri(name))

    def exists(self, name: str) -> bool:
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.uri(name)))

    def open(self, name: str, version: int | None = None) -> DeltaTable:
        """Opens the table at a version, or at its newest.

        Raises:
            BadArgument: it was never written.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.uri(name), version=version)
        except TableNotFoundError:
            raise BadArgument(
                f"The Delta table {name} does not exist yet.",
                hint=f"`{COMMAND} up` makes the tables of every domain that it runs.",
            ) from None

    def ensure(self, name: str, schema: pa.Schema, *, statistics: list[str], description: str | None = None) -> None:
        """Creates the table if it does not exist.

        Args:
            statistics: columns whose least and greatest values are kept per file; others would only cost time.
        """
        if self.exists(name):
            return
        import pyarrow as pa
        from deltalake import DeltaTable

        properties = {**_PROPERTIES, _STATISTICS: ",".join(with_true_bounds(schema, statistics))}
        if any("timestamp[us]" in str(field.type) for field in schema):
            # delta-rs 1.6 lists the feature timestampNtz alone; Spark opens no table that has one column of that type
            # and another one that is never null, since that is the feature invariants.
            schema = pa.schema([field.with_nullable(True) for field in schema])
        DeltaTable.create(
            self.uri(name),
            schema=schema,
            mode="ignore",
            name=name.replace(".", "_"),
            description=description or descriptions_of(schema)[0] or None,
            configuration=properties,
        )
        self.write_checksum(name, 0)

    def keep_statistics(self, name: str, columns: Sequence[str]) -> None:
        """Configures the table to keep the least and greatest values of these columns, as far as such bounds hold.

        Bounds that may not hold are removed from existing files; if others commit meanwhile, the next call does it.
        """
        import pyarrow as pa
        from deltalake.exceptions import CommitFailedError

        table = self.open(name)
        names = ",".join(with_true_bounds(pa.schema(table.schema()), columns))
        if table.metadata().configuration.get(_STATISTICS) == names:
            return
        try:
            # First, since entries show the bounds of those columns alone that the property names.
            if forget_untrue_bounds(table):
                table = self.open(name)
            table.alter.set_table_properties({_STATISTICS: names})
        except CommitFailedError as error:
            _log.info("bounds left table=%s error=%s", name, error)
            return
        self.write_checksum(name, table.version())

    def describe(self, name: str, description: str, columns: Mapping[str, str]) -> None:
        """Sets the comments of the table and of columns; for the one process that writes the table.

        A change of them makes concurrent writes fail.
        """
        table = self.open(name)
        if description and table.metadata().description != description:
            table.alter.set_table_description(description)
            self.write_checksum(name, table.version())
        for field_ in table.schema().fields:
            text = columns.get(field_.name)
            if text is not None and field_.metadata.get(_COMMENT) != text:
                table.alter.set_column_metadata(field_.name, {_COMMENT: text})
                self.write_checksum(name, table.version())

    def descriptions(self, name: str) -> tuple[str, dict[str, str]]:
        """Reads the comments of the table and of its columns."""
        table = self.open(name)
        comments = {field_.name: str(field_.metadata.get(_COMMENT) or "") for field_ in table.schema().fields}
        return table.metadata().description or "", {name: text for name, text in comments.items() if text}

    def extend(self, name: str, schema: pa.Schema) -> None:
        """Adds the columns of a schema that the table lacks; existing rows have nulls in them.

        Raises:
            SchemaMismatch: a column of the table has another type; nothing was changed.
        """
        from deltalake import Schema
        from deltalake.exceptions import CommitFailedError

        fields_of = Schema.from_arrow(schema).fields
        for attempt in range(_ATTEMPTS):
            table = self.open(name)
            types = {column.name: column.type for column in table.schema().fields}
            for column in fields_of:
                if column.name in types and column.type != types[column.name]:
                    raise SchemaMismatch(
                        f"{name}: the column {column.name} is declared as {_type(column.type)}, and its rows have "
                        f"{_type(types[column.name])}.",
                        hint="Declare it under a new name, or the topic under a new name.",
                    )
            new = [column for column in fields_of if column.name not in types]
            if not new:
                return
            try:
                table.alter.add_columns(new)
            except CommitFailedError:  # another process adds them, or writes
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            _log.info("extended table=%s columns=%s", name, ",".join(column.name for column in new))
            self.write_checksum(name, table.version())

    def names(self) -> list[str]:
        """Lists every Delta table that exists, sorted."""
        filesystem, root = _filesystem(self.settings.lake_uri)
        logs = filesystem.glob(f"{root}/*/*/_delta_log")
        return sorted(".".join(path.rstrip("/").split("/")[-3:-1]) for path in logs)

    def version(self, name: str) -> int:
        """Finds the newest version by file names, without reading the log: they have no gap after the last checkpoint.

        Raises:
            BadArgument: the table was never written.
        """
        filesystem, root = _filesystem(self.uri(name))
        there = partial(self.has_version, name)
        try:
            least = int(json.loads(filesystem.cat_file(f"{root}/_delta_log/_last_checkpoint"))["version"])
        except FileNotFoundError:
            least = 0 if there(0) else int(self.open(name).version())
        step = 1
        while there(least + step):
            step *= 2
        return least + bisect_left(range(1, step), True, key=lambda ahead: not there(least + ahead))

    def has_version(self, name: str, version: int) -> bool:
        """Whether the log still holds the commit of a version."""
        filesystem, root = _filesystem(self.uri(name))
        return bool(filesystem.exists(f"{root}/_delta_log/{version:020d}.json"))

    def commit_digest(self, name: str, version: int) -> str:
        """Computes a digest of the commit of a version, which no other commit has; empty if the log lacks it."""
        filesystem, root = _filesystem(self.uri(name))
        try:
            return hashlib.sha256(_commit_text(filesystem, f"{root}/_delta_log/{version:020d}.json")).hexdigest()
        except FileNotFoundError:
            return ""

    def rows(self, name: str) -> int:
        """Counts the rows of the table by the statistics of its files."""
        return int(self.open(name).count())

    def commits(self, name: str, after: int, through: int, *, kept: bool = False) -> Iterator[LoggedCommit]:
        """Yields the commits with `after < version <= through`, oldest first.

        Args:
            kept: begin with the oldest commit that still exists.

        Raises:
            FileNotFoundError: a commit file was cleaned up, and `kept` is False.
            DamagedLog: a commit file is empty or cut off.
        """
        filesystem, root = _filesystem(self.uri(name))
        if kept:
            after = self.oldest_commit(name, after, through) - 1
        for version in range(after + 1, through + 1):
            text = _commit_text(filesystem, f"{root}/_delta_log/{version:020d}.json")
            yield parsed_commit(version, [json.loads(line) for line in text.splitlines() if line.strip()])

    def oldest_commit(self, name: str, after: int, through: int) -> int:
        """Returns the oldest version in `(after, through]` whose commit the log has; `through` + 1 if there is none.

        Retention removes the oldest commits first.
        """
        if through <= after or self.has_version(name, after + 1):
            return after + 1
        oldest = after + 1 + bisect_left(range(after + 1, through + 1), True, key=partial(self.has_version, name))
        _log.warning("cleaned table=%s first=%d last=%d", name, after + 1, oldest - 1)
        return oldest

    def commit_of(self, name: str, app: str, number: int, after: int) -> LoggedCommit | None:
        """Finds the commit with `version > after` that carries this transaction id; None if there is none yet."""
        with suppress(FileNotFoundError):
            for version in count(after + 1):
                for commit in self.commits(name, version - 1, version):
                    if commit.transactions.get(app) == number:
                        return commit
        return None

    def newest_info(
        self, name: str, wanted: str, within: int = 100_000, *, at: int | None = None
    ) -> Mapping[str, Any] | None:
        """Returns the `info` of the newest commit that has the key `wanted` and whose rows the table has.

        A restored table has the rows of the version that it was restored to.

        Args:
            at: search the table as of this version.

        Returns:
            None if the last `within` commits have no such key.
        """
        version = begun = self.version(name) if at is None else at
        oldest = max(-1, version - within)
        filesystem, root = _filesystem(self.uri(name))
        while version > oldest:
            try:
                text = _commit_text(filesystem, f"{root}/_delta_log/{version:020d}.json")
            except FileNotFoundError:  # trimmed
                floor = self.history(name).floor()
                return floor.facts.get(wanted) if begun >= floor.changes - 1 else None
            version -= 1
            for line in text.splitlines():
                if b'"commitInfo"' in line:
                    commit = json.loads(line)["commitInfo"]
                    info = info_of(commit)
                    if wanted in info:
                        return info
                    if commit.get("operation") == "RESTORE":
                        version = _restored(commit)
        return None

    def write_checksum(self, name: str, version: int) -> None:
        """Writes the checksum of a version, which delta-rs leaves out, to save Spark a job."""
        filesystem, root = _filesystem(self.uri(name))
        write_checksum(filesystem, f"{root}/_delta_log", version)

    def remove_commit(self, name: str, version: int) -> None:
        """Removes a commit that is older than the history of the table."""
        filesystem, root = _filesystem(self.uri(name))
        filesystem.rm_file(f"{root}/_delta_log/{version:020d}.json")

    def settle(self, name: str, version: int | None) -> None:
        """Syncs a commit to disk, so that it survives a crash of the machine before others record that it was made.

        Only a local disk delays writes; None: nothing was committed.
        """
        if version is None or "://" in self.uri(name):
            return
        root = Path(self.uri(name))
        log = root / "_delta_log" / f"{version:020d}.json"
        actions = [json.loads(line) for line in log.read_bytes().splitlines() if line.strip()]
        paths = [action[kind]["path"] for action in actions for kind in ("add", "cdc") if kind in action]
        settle([log, *(root / unquote(path) for path in paths)])

    def frame(self, spark: SparkSession, name: str, version: int | None = None) -> DataFrame:
        """Opens the table in Spark, at its newest version or at `version`."""
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.uri(name))


def described(rows: str, columns: Iterable[tuple[str, pa.DataType, str]]) -> pa.Schema:
    """Builds the schema of a table that the platform writes itself.

    Args:
        rows: what a row is, and when it is written: the description of the table.
        columns: name, type and meaning of each, which is its comment.
    """
    import pyarrow as pa

    comments = [pa.field(name, kind, metadata={_COMMENT: meaning}) for name, kind, meaning in columns]
    return pa.schema(comments, metadata={_DESCRIPTION: rows})


def descriptions_of(schema: pa.Schema) -> tuple[str, dict[str, str]]:
    """Returns the description of a table and the comments of its columns, as `described` was given them."""
    comments = {field.name: (field.metadata or {}).get(_COMMENT.encode(), b"").decode() for field in schema}
    return (schema.metadata or {}).get(_DESCRIPTION.encode(), b"").decode(), comments


def with_comments(schema: pa.Schema, columns: Mapping[str, str]) -> pa.Schema:
    """Adds these texts to the schema as comments of columns."""
    for number, column in enumerate(schema):
        if column.name in columns:
            schema = schema.set(number, column.with_metadata({_COMMENT: columns[column.name]}))
    return schema


def _type(kind: Any) -> str:
    """Formats a Delta type for people."""
    return str(kind.to_json()).strip('"')


def _filesystem(uri: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    filesystem, root = url_to_fs(uri)
    return filesystem, str(root)


def _commit_text(filesystem: Any, path: str) -> bytes:
    """Reads a commit file; waits if it is incomplete, since another process may be writing it.

    Raises:
        DamagedLog: it stays incomplete.
    """
    for wait_s in (*_WAITS_S, None):
        text: bytes = filesystem.cat_file(path)
        with suppress(ValueError, IndexError):
            json.loads(text.rstrip().splitlines()[-1])
            return text
        if wait_s is not None:
            time.sleep(wait_s)
    raise DamagedLog(
        f"The commit {path} is {'cut off' if text.strip() else 'empty'}; its changes are unknown.",
        hint="The machine crashed while it was written. Restore the file from a backup; or where it is the newest of "
        f"its table, remove it; `{COMMAND} recover TABLE` then makes the stream of a table again.",
    )


def _restored(commit_info: Mapping[str, Any]) -> int:
    """Returns the version that a restore went back to; -1 if it was given as a time."""
    version = str((commit_info.get("operationParameters") or {}).get("version"))
    return int(version) if version.isdigit() else -1

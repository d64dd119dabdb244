"""Journals the records that the broker acknowledged, to prove loss and duplication.

A row is written when its acknowledgement arrives, before the sender is notified, and survives `kill -9` of the process.
Not promised: after such a kill, records that the broker appended and whose acknowledgement had not arrived are in the
topic and not in the journal; nothing survives a crash of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


class Row(msgspec.Struct, frozen=True):
    """An acknowledged record.

    Attributes:
        kind: `true`, `duplicate`, or `corrupt:` with its kind.
        crc: CRC-32 (as in zlib) of the value.
    """

    topic: str
    partition: int
    offset: int
    kind: str
    key: str
    crc: int


def checksum(value: bytes) -> int:
    """Computes the checksum of a value for `Row.crc`."""
    return crc32(value)


class AckJournal:
    """An append-only file of rows, one JSON object per line; one file per run, written by one thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._encoder = msgspec.json.Encoder()
        self._file = path.open("xb", buffering=0)

    @classmethod
    def begin(cls, settings: Settings, domain: str, now: datetime) -> AckJournal:
        """Opens the file of a new run of a domain's traffic."""
        name = f"{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.jsonl"
        return cls(directory(settings, domain) / name)

    def append(self, row: Row) -> None:
        """Writes a row through to the operating system."""
        self._file.write(self._encoder.encode(row) + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> AckJournal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def directory(settings: Settings, domain: str) -> Path:
    """Returns the directory of a domain's journal."""
    return settings.home / "journal" / domain


def files(settings: Settings, domain: str) -> tuple[Path, ...]:
    """Lists the files of a domain's journal, oldest first."""
    return tuple(sorted(directory(settings, domain).glob("*.jsonl")))


def read(*paths: Path) -> Iterator[Row]:
    """Yields the rows of journal files in the order of acknowledgement; an incomplete last line is left out."""
    decoder = msgspec.json.Decoder(Row)
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield decoder.decode(line)


def load(*paths: Path) -> pa.Table:
    """Loads the rows of journal files as an Arrow table.

    Raises:
        BadArgument: no file was named.
    """
    import pyarrow as pa
    from pyarrow import json

    if not paths:
        raise BadArgument("No journal was named.", hint=f"Run `{COMMAND} traffic` first: it writes one.")
    schema = pa.schema(
        {
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "kind": pa.string(),
            "key": pa.string(),
            "crc": pa.int64(),
        }
    )
    options = json.ParseOptions(explicit_schema=schema)
    tables = []
    for path in paths:
        whole = path.read_bytes().rpartition(b"\n")[0]
        tables.append(json.read_json(pa.py_buffer(whole), parse_options=options) if whole else schema.empty_table())
    return pa.concat_tables(tables)

"""Subjects with schemas, and records framed by their ids, for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.tables.typed_records import raw
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import Decoded, Decoder
from twofold_archive.format.record_columns import HEADERS, HEADERS_TYPE


def framed(id_: int, record: bytes, between: bytes = b"") -> bytes:
    """A record behind the id of its schema."""
    return struct.pack(">bI", 0, id_) + between + record


def decoded(topic: Topic, *values: bytes | None, headers: Sequence[Any] | None = None) -> Decoded:
    """What the topic makes of these values."""
    given = pa.array(headers or [None] * len(values), HEADERS_TYPE)
    return Decoder(topic).decode(raw(list(values)).append_column(pa.field(HEADERS, HEADERS_TYPE), given), None)


def reason(result: Decoded) -> str:
    """The one reason of the one record that was refused."""
    [[found]] = result.rejected["reasons"].to_pylist()
    return str(found)


def write_schemas(folder: Path, subject: str, suffix: str, texts: dict[int, str]) -> None:
    """Write the schemas of a subject."""
    (folder / subject).mkdir(exist_ok=True)
    for id_, text in texts.items():
        (folder / subject / f"{id_}{suffix}").write_text(text)

"""Decrypts values of persons in the bodies of webhooks, as they are sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing

import msgspec
import pyarrow as pa

from twofold.features.outputs.revealed import Revealed
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.json_values import to_json

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SIDES = ("before", "after")


def revealed_bodies(settings: Settings, output: str, columns: Sequence[str], bodies: Sequence[str]) -> list[str]:
    """Decrypts columns of the rows in bodies; a value is null without its key. All else stays, byte for byte.

    Args:
        output: whose accesses these are, for their ledger.

    Raises:
        BadSetting: this user cannot read the keys.
    """
    read = [_members(body) for body in bodies]
    rows = [
        (body, side, _MEMBERS.decode(body[side])) for body in read for side in _SIDES if bytes(body[side]) != b"null"
    ]
    # A body may have waited since before the declaration has these columns.
    cells = [(row, column) for _, _, row in rows for column in columns if bytes(row.get(column, b""))[:1] == b'"']
    texts = [msgspec.json.decode(row[column], type=str) for row, column in cells]
    with closing(Revealed(settings, output)) as revealed:
        shown = revealed.now(pa.chunked_array([pa.array(texts, pa.string())])).to_pylist()
    for (row, column), value in zip(cells, shown, strict=True):
        row[column] = msgspec.Raw(msgspec.json.encode(value))
    for body, side, row in rows:
        body[side] = msgspec.Raw(msgspec.json.encode(row))
    return [msgspec.json.encode(body).decode() for body in read]


def _members(body: str) -> dict[str, msgspec.Raw]:
    try:
        return _MEMBERS.decode(body)
    except msgspec.DecodeError:  # earlier code queued NaN and infinities in keys, which JSON has not
        return _MEMBERS.decode(to_json(json.loads(body, parse_constant=str)))

"""Parses bodies of webhooks that say no time: a header says when each was first received."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from twofold.infra.encodings.json.json_decoder import JsonParser
from twofold.infra.encodings.parsed_records import Parsed
from twofold.infra.encodings.record_format import RecordFormat
from twofold.infra.webhooks.delivery_headers import RECEIVED, RECEIVED_AT

TIMESTAMP = pa.timestamp("us", tz="UTC")


class DeliveryParser:
    """Parses JSON objects, and adds the time at which the receiver got each for the first time."""

    def __init__(self, format: RecordFormat) -> None:
        self.format = format

    def parse(self, raw: pa.Table) -> Parsed:
        """Parses records; one without the header, which no receiver of ours appended, has no time."""
        parsed = self._json.parse(raw)
        headers = raw["headers"].to_pylist()
        received = pa.array([_received(headers[row] or ()) for row in parsed.rows], TIMESTAMP)
        columns = {name: received if name == RECEIVED_AT else parsed.columns[name] for name in self.format.types}
        return replace(parsed, columns=columns)

    @cached_property
    def _json(self) -> JsonParser:
        types = {name: kind for name, kind in self.format.types.items() if name != RECEIVED_AT}
        return JsonParser(replace(self.format, types=types))


def _received(headers: Any) -> datetime | None:
    found = next((header["value"] for header in reversed(headers) if header["key"] == RECEIVED), b"")
    try:
        moment = datetime.fromisoformat(found.decode())
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else None

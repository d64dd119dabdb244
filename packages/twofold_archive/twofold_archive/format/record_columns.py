"""The columns of a record, as in Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from twofold_archive.format.archive_errors import BadArgument

HEADERS = "headers"
HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field(HEADERS, HEADERS_TYPE),
    ]
)
COLUMNS = tuple(name for name in SCHEMA.names if name != HEADERS)  # the columns that are read by default


def schema(columns: Sequence[str]) -> pa.Schema:
    """Returns the Arrow schema of these columns, in their order.

    Raises:
        BadArgument: a column that archived records do not have.
    """
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown or not columns:
        raise BadArgument(
            f"Archived records have no column {', '.join(unknown) or 'of no name'}.",
            hint=f"The columns are {', '.join(SCHEMA.names)}.",
        )
    return pa.schema([SCHEMA.field(name) for name in columns])


RECORD = (*COLUMNS, HEADERS)
"""Columns of a raw record, all of which are compared."""

"""Converts values to JSON and back, for ledgers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def to_json(values: Mapping[str, Any]) -> str:
    """Encodes a row as one line of strict JSON, with values as from `to_plain_json`."""
    try:
        return _STRICT.encode(values)
    except ValueError:  # it has what is no number
        return _STRICT.encode(to_plain_json(values))


def to_plain_json(value: Any) -> Any:
    """Converts a value to JSON form: ISO dates, hex bytes, maps as pairs, decimals and non-finite numbers as text."""
    if isinstance(value, Mapping):
        return {name: to_plain_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_json(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int) else str(value)


def from_plain_json(value: Any, kind: pa.DataType) -> Any:
    """Converts a value from JSON form to a column of type `kind`."""
    import pyarrow.types as is_type

    if value is None:
        return None
    if is_type.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if is_type.is_date(kind):
        return date.fromisoformat(value)
    if is_type.is_decimal(kind):
        return Decimal(value)
    if is_type.is_binary(kind) or is_type.is_large_binary(kind):
        return bytes.fromhex(value)
    if is_type.is_floating(kind):
        return float(value)
    return _nested(value, kind)


def _nested(value: Any, kind: pa.DataType) -> Any:
    import pyarrow.types as is_type

    if is_type.is_map(kind):
        return [(from_plain_json(k, kind.key_type), from_plain_json(v, kind.item_type)) for k, v in value]
    if is_type.is_list(kind) or is_type.is_large_list(kind):
        return [from_plain_json(inner, kind.value_type) for inner in value]
    if is_type.is_struct(kind):
        return {
            kind.field(n).name: from_plain_json(value.get(kind.field(n).name), kind.field(n).type)
            for n in range(kind.num_fields)
        }
    return value


_STRICT = json.JSONEncoder(allow_nan=False, default=to_plain_json)


EXACT_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

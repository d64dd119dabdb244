"""Values survive the way into a ledger and back."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from twofold.tables.refresh.json_values import from_plain_json, to_json, to_plain_json

KINDS: list[tuple[pa.DataType, Any]] = [
    (pa.string(), "é 'quoted'"),
    (pa.int64(), -(2**63)),
    (pa.bool_(), False),
    (pa.float64(), 0.1),
    (pa.float64(), math.inf),
    (pa.decimal128(10, 2), Decimal("1.50")),
    (pa.date32(), date(1969, 12, 31)),
    (pa.timestamp("us", tz="UTC"), datetime(2013, 1, 1, 10, 0, 0, 1, tzinfo=UTC)),
    (pa.binary(), b"\x00\xff"),
    (pa.list_(pa.timestamp("us", tz="UTC")), [datetime(2013, 1, 1, tzinfo=UTC), None]),
    (pa.struct([("a", pa.decimal128(4, 1)), ("b", pa.string())]), {"a": Decimal("2.5"), "b": None}),
    (pa.map_(pa.string(), pa.date32()), [("x", date(2013, 1, 1)), ("y", None)]),
]


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=lambda v: str(v))
def test_a_value_comes_back_as_it_was(kind: pa.DataType, value: Any) -> None:
    stored = pa.array([value, None], kind).to_pylist()
    text = to_json({"v": stored[0], "n": stored[1]})
    back = json.loads(text)
    assert from_plain_json(back["v"], kind) == stored[0]
    assert from_plain_json(back["n"], kind) is None


def test_what_is_no_number_is_text_in_strict_json() -> None:
    assert to_json({"v": math.nan}) == '{"v": "NaN"}'
    assert math.isnan(from_plain_json(to_plain_json(math.nan), pa.float64()))

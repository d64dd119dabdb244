"""The rows of a view, and the keys by which targets find them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from outputs.view import KEY, View
from tables import to_postgres
from tests.tables.declared import a_table

INFINITE = float("inf")


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (pa.array([1.5, float("nan"), INFINITE, -INFINITE, None]), [1.5, "nan", "inf", "-inf", None]),
        (pa.array([float("nan")], pa.float32()), ["nan"]),
        (pa.array(["nan", ":NaN}", "inf"]), ["nan", ":NaN}", "inf"]),
        (pa.array([7], pa.int64()), [7]),
    ],
)
def test_a_key_is_json_though_its_number_is_none(values: pa.Array, keys: list[Any]) -> None:
    table = a_table(primary_key=["k"], recompute_by=["k"], outputs=[to_postgres()])
    view = View.declared(table, table.outputs[0])
    rows = view.rows(pa.table({"k": values}), None)

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    assert [json.loads(key, parse_constant=refuse)["k"] for key in rows[KEY].to_pylist()] == keys

"""Types of columns."""

from __future__ import annotations

import pyarrow as pa

from infra.encodings.column_types import with_nullable_parts


def test_the_fields_of_a_struct_may_be_null_at_any_depth() -> None:
    def place(*, nullable: bool) -> pa.DataType:
        inner = pa.struct([pa.field("depth", pa.int32(), nullable)])
        return pa.struct([pa.field("name", pa.string(), nullable), pa.field("inner", inner, nullable)])

    def schema(*, nullable: bool) -> pa.Schema:
        return pa.schema(
            [
                pa.field("id", pa.string(), False),
                pa.field("place", place(nullable=nullable), False),
                pa.field("places", pa.list_(pa.field("element", place(nullable=nullable), False))),
                pa.field("by_name", pa.map_(pa.string(), place(nullable=nullable))),
            ]
        )

    assert with_nullable_parts(schema(nullable=False)) == schema(nullable=True)
    assert with_nullable_parts(schema(nullable=False)) != schema(nullable=False)

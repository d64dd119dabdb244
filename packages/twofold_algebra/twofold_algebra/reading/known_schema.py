"""Says the columns of a relation as a schema of Spark, as far as they are known without Spark."""

from __future__ import annotations

from functools import cache
from typing import Any

from twofold_algebra.relations import Relation
from twofold_algebra.value_kinds import kind_of


def schema_of(rows: Relation) -> Any:
    """Returns the schema of rows; a type that is not known raises when it is asked for.

    Raises:
        ValueError: not all columns are known.
    """
    from pyspark.sql.types import StructType

    if rows.is_open:
        raise ValueError("it asks for columns that only Spark knows")
    return StructType([_field()(column.name, kind_of(column.value)) for column in rows.columns])


@cache
def _field() -> Any:
    from pyspark.sql import types as T

    of_kind = {
        "byte": T.ByteType(), "tinyint": T.ByteType(), "short": T.ShortType(), "smallint": T.ShortType(),
        "int": T.IntegerType(), "long": T.LongType(), "bigint": T.LongType(), "float": T.FloatType(),
        "double": T.DoubleType(), "string": T.StringType(), "binary": T.BinaryType(), "boolean": T.BooleanType(),
        "date": T.DateType(), "timestamp": T.TimestampType(),
    }  # fmt: skip

    class Field(T.StructField):
        def __init__(self, name: str, kind: str) -> None:
            self._kind = kind
            super().__init__(name, T.NullType(), kind.endswith("?"))

        @property
        def dataType(self) -> T.DataType:
            """Its type."""
            if (known_type := of_kind.get(self._kind.removesuffix("?"))) is None:
                raise ValueError(f"it asks for the type of {self.name}, which only Spark knows")
            return known_type

        @dataType.setter
        def dataType(self, _: T.DataType) -> None:
            pass

        def needConversion(self) -> bool:
            """Whether values are converted, which none is."""
            return False

    return Field

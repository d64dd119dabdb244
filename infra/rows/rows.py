"""Operations on rows, which are in this process, or in Spark if they may be many."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import pyarrow as pa

from twofold.infra.duckdb_session import query
from twofold_algebra.sql.names import DUCKDB, SPARK, Dialect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType
    from typing_extensions import TypeIs

    Rows: TypeAlias = pa.Table | DataFrame

R = TypeVar("R", bound="Rows")


def dialect_of(*relations: Rows) -> Dialect:
    """Returns the SQL of the engine that reads relations: DuckDB's if all are in this process, else Spark's."""
    return DUCKDB if all(map(are_here, relations)) else SPARK


def run_sql(text: str, **relations: R) -> R:
    """Returns the rows of a query over relations by these names, by the engine that reads them.

    Args:
        text: in the SQL of `dialect_of` the relations.
    """
    if dialect_of(*relations.values()) is DUCKDB:
        return cast("R", query(text, (), **relations))
    spark = next(rows.sparkSession for rows in relations.values() if not are_here(rows))
    frames = {name: in_spark(spark, rows) for name, rows in relations.items()}
    named = ", ".join(f"{name} AS (SELECT * FROM {{{name}}})" for name in relations)
    return cast("R", spark.sql(f"WITH {named} {text.replace('{', '{{').replace('}', '}}')}", None, **frames))


def cast_like(rows: R, like: Rows) -> R:
    """Casts the rows to the columns of others: their order and types."""
    if are_here(rows):
        schema = like.schema if are_here(like) else here(like.limit(0)).schema
        return cast("R", rows.select(schema.names).cast(schema))
    schema = in_spark(rows.sparkSession, like).schema
    columns = [(field.name, rows[SPARK.name(field.name)].cast(with_null(field.dataType))) for field in schema]
    return cast("R", rows.select(*(column.alias(name) for name, column in columns)))


def with_null(kind: DataType) -> DataType:
    """Makes all parts of a type nullable: Spark casts a value that may have nulls to no other type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    return kind.toNullable() if isinstance(kind, ArrayType | MapType | StructType) else kind


def column_types(rows: Rows) -> dict[str, str]:
    """Maps each column to its type, in the words of its engine; both write `double`, `float` and `map<`."""
    return {f.name: str(f.type) for f in rows.schema} if are_here(rows) else dict(rows.dtypes)


def without_maps(value: str, rows: Rows, column: str, by: Dialect) -> str:
    """Writes a value of a column with its maps as ordered entries, since Spark cannot compare maps.

    Args:
        value: in the SQL of the engine.
    """
    if not are_here(rows):
        return _without_maps(value, rows.schema[column].dataType, by)
    if "map<" not in str(kind := rows.schema.field(column).type):
        return value
    from pyspark.sql.pandas.types import from_arrow_type

    return _without_maps(value, from_arrow_type(kind), by)


def _without_maps(value: str, kind: DataType, by: Dialect, depth: int = 0) -> str:
    from pyspark.sql import types as T

    def part(text: str, of: DataType) -> str:
        return _without_maps(text, of, by, depth + 1)

    def of_each(items: str, made: str) -> str:
        if by is SPARK:
            return f"transform({items}, {each} -> {made})"
        return f"list_transform({items}, lambda {each}: {made})"

    each, record = f"_e{depth}", "struct" if by is SPARK else "row"
    match kind:
        case T.MapType() if "map<" in kind.valueType.simpleString():
            entry = f"{record}({each}.key, {part(f'{each}.value', kind.valueType)})"
            return f"array_sort({of_each(f'map_entries({value})', entry)})"
        case T.MapType():
            return f"array_sort(map_entries({value}))"
        case T.ArrayType() if "map<" in kind.simpleString():
            return of_each(value, part(each, kind.elementType))
        case T.StructType() if "map<" in kind.simpleString():
            fields = ", ".join(part(f"{value}.{by.name(f.name)}", f.dataType) for f in kind)
            return f"CASE WHEN {value} IS NOT NULL THEN {record}({fields}) END"
    return value


def are_here(rows: Rows) -> TypeIs[pa.Table]:
    """Whether the rows are in this process."""
    return isinstance(rows, pa.Table)


def here(rows: Rows) -> pa.Table:
    """Collects the rows into this process."""
    return rows if are_here(rows) else rows.toArrow()


def in_spark(spark: SparkSession, rows: Rows) -> DataFrame:
    """Converts the rows to a Spark frame, also if there are none, when Spark Connect takes no schema from Arrow."""
    if not are_here(rows):
        return rows
    if len(rows):
        return spark.createDataFrame(rows)
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame([], from_arrow_schema(rows.schema))


def count(rows: Rows) -> int:
    """Counts the rows."""
    return len(rows) if are_here(rows) else rows.count()


def is_empty(rows: Rows) -> bool:
    """Whether there are no rows."""
    return not len(rows) if are_here(rows) else rows.isEmpty()


def column_names(rows: Rows) -> list[str]:
    """Returns the names of the columns, in order."""
    return list(rows.column_names if are_here(rows) else rows.columns)

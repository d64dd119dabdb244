"""Writes expressions over a row as Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence

from twofold_algebra.relations import Call, Column, Expr, Literal, parts
from twofold_algebra.sql.names import SPARK

PLAIN_TYPES = {
    "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "STRING", "binary": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP",
}  # fmt: skip
"""Kind of a type in the client's plans -> its name in SQL."""
OF_UNITS = frozenset({"timestampdiff", "timestampadd", "datediff", "date_diff", "dateadd", "date_add"})
"""Functions whose first of three arguments is a unit, a word."""
ROW = "row"
"""The name of the one relation that expressions of text are over."""


def column_of(name: str) -> Column:
    """Returns a column of the one relation `ROW`."""
    return Column(ROW, name)


def names_in(value: Expr) -> set[str]:
    """Returns the columns that a value is made of."""
    return {part.name for part in parts(value) if isinstance(part, Column)}


def path_of(value: Expr) -> list[str] | None:
    """Returns the names of a column, or of a field in one; None if the value is computed."""
    match value:
        case Column(name=name):
            return [name]
        case Call(function="field", arguments=(struct, Literal(text=name))):
            path = path_of(struct)
            return path and [*path, name]
    return None


def sql_of(value: Expr) -> str | None:
    """Writes a value of a row in Spark SQL, a plain name for a column; None if it cannot be written."""
    match value:
        case Column():
            return _written(value.name)
        case Literal():
            return value.sql or None
        case Call(function="field", arguments=(struct, Literal(text=name))):
            outer = sql_of(struct)
            return outer and f"{outer}.{_written(name)}"
        case Call(function="case", arguments=(Literal(text=marks), *values)):
            count, has_operand = marks.split()
            return _case_sql(values, int(count), has_operand=has_operand == "True")
        case Call(function="when", arguments=values):
            return _case_sql(values, len(values) // 2 * 2, has_operand=False)
        case Call():
            texts = [sql for one in value.arguments if (sql := sql_of(one))]
            return _call_sql(value.function, texts) if len(texts) == len(value.arguments) else None
    return None


def _case_sql(values: Sequence[Expr], count: int, *, has_operand: bool) -> str | None:
    """Writes a CASE of branches, so many conditions and values, an operand and what else holds."""
    texts = [sql for one in values if (sql := sql_of(one))]
    if len(texts) != len(values):
        return None
    branches, rest = texts[:count], texts[count:]
    operand = f"{rest.pop(0)} " if has_operand else ""
    whens = [f"WHEN {one} THEN {value}" for one, value in zip(branches[::2], branches[1::2], strict=True)]
    return f"CASE {operand}{' '.join([*whens, *(f'ELSE {one}' for one in rest)])} END"


def _written(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else SPARK.name(name)


def _call_sql(function: str, texts: Sequence[str]) -> str | None:
    if function in ("cast", "try_cast"):
        return f"{function}({texts[0]} AS {texts[1]})"
    unit = texts[0].strip("'") if texts else ""
    if function == "extract":
        return f"extract({unit} FROM {texts[1]})"
    if function in OF_UNITS and len(texts) == 3:
        return f"{function}({unit}, {texts[1]}, {texts[2]})"
    if function == "get":
        return f"{texts[0]}[{texts[1]}]"
    if function == "in":
        return f"({texts[0]} IN ({', '.join(texts[1:])}))"
    if function == "between":
        return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
    if function == "filter":
        return None
    if function in ("and", "or", "like", "ilike", "rlike", "div") or not function[0].isalpha():
        return f"({texts[0]} {function} {texts[1]})" if len(texts) == 2 else None
    if function == "not":
        return f"(NOT {texts[0]})"
    return f"{function}({', '.join(texts)})"

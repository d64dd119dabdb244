"""Writes expressions of the algebra as SQL, which Spark and DuckDB read alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.sql.names import SPARK
from tables.algebra.relations import Call, Column, Expr, Literal

_PLAIN = re.compile(r"[A-Za-z_]\w*\Z")


def sql_of(value: Expr) -> str | None:
    """A value of a row in Spark's SQL: a plain name for a column; None: it cannot be written."""
    match value:
        case Column():
            return _written(value.name)
        case Literal():
            return value.sql or None
        case Call(function="field", arguments=(struct, Literal(text=name))):
            outer = sql_of(struct)
            return outer and f"{outer}.{_written(name)}"
        case Call():
            texts = [sql for one in value.arguments if (sql := sql_of(one))]
            return _call_sql(value.function, texts) if len(texts) == len(value.arguments) else None
    return None


def _written(name: str) -> str:
    return name if _PLAIN.match(name) else SPARK.name(name)


def _call_sql(function: str, texts: Sequence[str]) -> str | None:
    if function in ("cast", "try_cast"):
        return f"{function}({texts[0]} AS {texts[1]})"
    if function == "get":
        return f"{texts[0]}[{texts[1]}]"
    if function in ("case", "in", "between", "filter"):
        return None
    if function in ("and", "or", "like", "ilike", "rlike", "div") or not function[0].isalpha():
        return f"({texts[0]} {function} {texts[1]})" if len(texts) == 2 else None
    if function == "not":
        return f"(NOT {texts[0]})"
    if function == "extract":
        return None
    return f"{function}({', '.join(texts)})"

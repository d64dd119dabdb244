"""Expressions that call a function of Spark with a column of each type, made from its own examples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twofold_algebra.spark_functions import AGGREGATES, GENERATORS, TIME_WINDOWS, WINDOW
from twofold_algebra.sql.impure_functions import IMPURE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Template = tuple[str, str, str]
"""Function, kind and an expression with `{x}` for the column."""

_EXAMPLE = re.compile(r"^\s*> SELECT (.*?);?\s*$", re.MULTILINE)
_CALLED = re.compile(r"`?([A-Za-z_]\w*)`?\s*\(")
_LITERAL = re.compile(r"\b[A-Z]*'[^']*'|\b\d+(?:\.\d+)?\b")
_WORDS = {
    "between": "{x} BETWEEN {x} AND {x}",
    "case": "CASE WHEN {x} IS NULL THEN NULL ELSE {x} END",
    **{name: f"{{x}} {name} {{x}}" for name in ("!=", "<>", "||", "and", "or", "div", "mod", "in", "like", "rlike")},
}
"""Operators without an example, or whose example has no place for a column."""
_FRAMES = ("PARTITION BY k", "PARTITION BY k ORDER BY id", "PARTITION BY k ORDER BY {x}")

_SIZED = {"array_insert", "array_repeat", "format_number", "lpad", "repeat", "rpad", "sequence", "space"}
_LONG = ("hll", "theta", "kll_", "tuple_")
"""Types of some kilobytes, which `listagg` would repeat in each row of a window."""
_LARGE = {"int", "bigint", "float", "double", "decimal", "wide"}
"""Types with numbers that are no size of a result: the JVM would end for want of memory."""


@dataclass(frozen=True)
class Shape:
    """A declaration: an expression over a column of a type.

    Attributes:
        kind: `row`, `group`, `window` or `generator`; `key`: the column is what rows are grouped by.
    """

    function: str
    type: str
    kind: str
    sql: str


def described(spark: SparkSession, name: str) -> Iterator[Template]:
    """Yields the expressions of a function; none of one that is impure."""
    if name in IMPURE or name in TIME_WINDOWS:
        return
    rows = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect()
    for sql in dict.fromkeys(_expressions(name, "\n".join(row[0] for row in rows))):
        if name in WINDOW:
            yield from ((name, "window", f"{sql} OVER ({frame})") for frame in _FRAMES[1:])
        elif {one.lower() for one in _CALLED.findall(sql)} & AGGREGATES:
            yield name, "group", sql
            if sql == f"{name}({{x}})":
                yield from ((name, "window", f"{sql} OVER ({frame})") for frame in _FRAMES)
        else:
            yield name, "generator" if name in GENERATORS else "row", sql


def _expressions(name: str, description: str) -> Iterator[str]:
    if name in _WORDS:
        yield _WORDS[name]
    elif not name[0].isalpha():
        yield from (f"{{x}} {name} {{x}}", f"{{x}} {name} 2", f"{name}{{x}}")
    else:
        yield from (f"{name}({{x}})", f"{name}({{x}}, {{x}})", f"{name}({{x}}, 2)")
        if name in WINDOW:
            yield f"{name}()"
        if name in AGGREGATES:
            yield from (f"{name}(DISTINCT {{x}})", f"{name}({{x}}, d)", f"{name}({{x}}) WITHIN GROUP (ORDER BY d)")
    for example in _EXAMPLE.findall(description):
        text, _, source = example.replace("{", "{{").replace("}", "}}").partition(" FROM ")
        if source:
            columns = re.findall(r"\w+", source.rpartition("(")[2])
            yield re.sub(rf"\b({'|'.join(columns)})\b(?!\s*\()", "{x}", text)
        else:
            yield from _with_column(text)


def _with_column(text: str) -> Iterator[str]:
    """Yields a call with the column in place of each of its arguments, or of each literal of an operator."""
    head, _, rest = text.partition("(")
    if _CALLED.fullmatch(f"{head}(") and (values := arguments_of(rest)):
        for n in range(len(values)):
            yield f"{head}({', '.join([*values[:n], '{x}', *values[n + 1 :]])})"
    else:
        for found in _LITERAL.finditer(text):
            yield text[: found.start()] + "{x}" + text[found.end() :]


def arguments_of(text: str) -> list[str]:
    """Returns the arguments of a call, from its bracket on."""
    depth, start, is_quoted, found = 0, 0, False, list[str]()
    for n, letter in enumerate(text):
        is_quoted ^= letter == "'"
        if not is_quoted and letter in ",)" and depth == 0:
            found.append(text[start:n].strip())
            start = n + 1
            if letter == ")":
                return found
        depth += 0 if is_quoted else (letter in "([") - (letter in ")]")
    return []


def resolved(spark: SparkSession, rows: DataFrame, types: Mapping[str, str], wanted: Sequence[Template]) -> list[Shape]:
    """Returns the shapes that Spark resolves: each template with each type that it takes.

    Args:
        types: type -> the expression of a column of it.
    """
    rows.createOrReplaceTempView("shapes")
    shapes = []
    for function, kind, sql in wanted:
        is_growing = kind == "window" and function in ("listagg", "string_agg")
        of_types = {n: column for n, column in types.items() if function not in _SIZED or n not in _LARGE}
        of_types = {n: column for n, column in of_types.items() if not (is_growing and n.startswith(_LONG))}
        texts = {name: sql.format(x=column) for name, column in of_types.items()} if "{x}" in sql else {"": sql}
        are_resolved = _are_resolved(spark, kind, list(texts.values()))
        pairs = zip(texts.items(), are_resolved, strict=True)
        shapes += [Shape(function, name, kind, text) for (name, text), is_resolved in pairs if is_resolved]
    return shapes


def _are_resolved(spark: Any, kind: str, texts: list[str]) -> list[bool]:
    """Whether each resolves: in one pass of the analyser, which is not asked for errors, or else one by one."""
    if kind == "generator":  # the analyser replaces it by the columns that it makes
        return [True] * len(texts)
    state, grouped = spark._jsparkSession.sessionState(), " GROUP BY k" if kind == "group" else ""
    named = ", ".join(f"{text} AS v{n}" for n, text in enumerate(texts))
    try:
        plan = state.analyzer().execute(state.sqlParser().parsePlan(f"SELECT {named} FROM shapes{grouped}"))
    except Exception as error:
        is_arity = "WRONG_NUM_ARGS" in str(error) or "PARSE_SYNTAX_ERROR" in str(error)
        if is_arity or len(texts) == 1:
            return [False] * len(texts)
        return [one for text in texts for one in _are_resolved(spark, kind, [text])]
    found = plan.expressions()
    made = [bool(found.apply(n).resolved()) for n in range(found.size())][-len(texts) :]
    return made if len(made) == len(texts) else [bool(plan.resolved())] * len(texts)

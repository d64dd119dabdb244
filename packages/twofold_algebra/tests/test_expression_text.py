"""Expressions are read from Spark's SQL and written as it: what is written is read as what it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold_algebra.expression_sql import column_of, path_of, sql_of
from twofold_algebra.reading.expression_text import fault_of, value_of
from twofold_algebra.relations import Call, Expr, Literal, field_of
from twofold_algebra.sql.names import SPARK

NAMES = st.text(st.sampled_from("ab_ .`'\"ü1"), min_size=1, max_size=5)
TEXTS = st.text(st.sampled_from("ab'\\ü%"), max_size=4).map(lambda text: Literal(text, SPARK.literal(text)))
NUMBERS = st.integers(0, 99).map(lambda number: Literal(str(number), str(number)))


def _nested(values: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    binary = st.sampled_from(["+", "-", "*", "/", "%", "div", "||", "==", "<", "<=>", "and", "or", "like", "rlike"])
    unary = st.sampled_from(["lower", "trim", "to_date", "year", "abs", "isnull"])
    return (
        st.builds(lambda f, a, b: Call(f, (a, b)), binary, values, values)
        | st.builds(lambda f, a: Call(f, (a,)), unary, values)
        | st.builds(lambda a: Call("cast", (a, Literal("DECIMAL(3, 2)", "DECIMAL(3, 2)"))), values)
        | st.builds(lambda a, b, c: Call("between", (a, b, c)), values, values, values)
        | st.builds(lambda a, b, c: Call("in", (a, b, c)), values, values, values)
        | st.builds(lambda a, b: Call("coalesce", (a, b)), values, values)
        | st.builds(lambda a, b: Call("case", (Literal("2 False", ""), a, b)), values, values)
        | st.builds(lambda a, b, c: Call("case", (Literal("2 True", ""), a, b, c, c)), values, values, values)
    )


COLUMNS = st.builds(column_of, NAMES) | st.builds(lambda a, b: field_of(column_of(a), b), NAMES, NAMES)
VALUES = st.recursive(COLUMNS | TEXTS | NUMBERS, _nested, max_leaves=8)


@given(VALUES)
def test_an_expression_that_is_written_is_read_as_itself(value: Expr) -> None:
    written = sql_of(value)
    assert written is not None
    assert value_of(written) == value


@pytest.mark.parametrize(
    ("written", "path"),
    [("a", ["a"]), ("a.b.c", ["a", "b", "c"]), ("`a.b`.`c d`", ["a.b", "c d"]), ("lower(a)", None), ("a[0]", None)],
)
def test_a_column_or_a_field_has_a_path(written: str, path: list[str] | None) -> None:
    assert path_of(value_of(written)) == path


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("max(a)", "is no value of one row"),
        ("foo(a)", "has foo(), of which nothing is known"),
        ("a +", "has SQL text that cannot be parsed"),
        ("transform(a, x -> x + 1)", "is no value of one row that can be written again"),
        ("lower(a)", ""),
    ],
)
def test_text_that_is_no_value_of_a_row_has_a_fault(written: str, why: str) -> None:
    fault = fault_of(written)
    assert fault.startswith(why)
    assert bool(fault) is bool(why)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("if(a > 1, b, c)", "CASE WHEN a > 1 THEN b ELSE c END"),
        (
            "if(if(a, b, c), b, if(a LIKE 'x', b, c))",
            "CASE WHEN CASE WHEN a THEN b ELSE c END THEN b ELSE CASE WHEN a LIKE 'x' THEN b ELSE c END END",
        ),
        ("a IS NOT FALSE", "NOT (a <=> false)"),
        ("a IS DISTINCT FROM b", "NOT (a <=> b)"),
        ("a NOT LIKE 'x'", "NOT (a LIKE 'x')"),
        ("a LIKE ANY ('x', 'y')", "a LIKE 'x' OR a LIKE 'y'"),
        ("a NOT ILIKE ALL ('x', 'y')", "NOT (a ILIKE 'x') AND NOT (a ILIKE 'y')"),
    ],
)
def test_what_is_short_for_other_syntax_is_read_as_that(short: str, long: str) -> None:
    assert value_of(short) == value_of(long)


@pytest.mark.parametrize(
    "written", ["timestampdiff(MINUTE, a, b)", "datediff(a, b)", "dateadd(DAY, 1, a)", "extract(HOUR FROM a)"]
)
def test_a_unit_of_time_is_no_column(written: str) -> None:
    assert sql_of(value_of(written)) == written

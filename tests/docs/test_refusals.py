"""Every shape that is refused is on its page: with the error that its example gives, and the same written right."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from docs.function_examples import FUNCTION_EXAMPLES
from docs.parameter_examples import PARAMETER_EXAMPLES, SEEN
from docs.refused_examples import EXAMPLES, REFUSALS, errors_of
from tests import ROOT
from tests.tables.declared import a_table
from twofold.tables.declare.analysis import wrong_columns, wrong_types
from twofold_algebra.refusal import Refusal

PAGE = (ROOT / "docs" / "reference" / "refusals.md").read_text("utf-8")
SHOWN = [(one, *pair) for one in REFUSALS for pair in EXAMPLES.get(one.name, [])]


def section_of(refusal: Refusal) -> str:
    return re.split(r"\n###? ", PAGE.partition(f"\n### {refusal.name}\n")[2])[0]


def pattern_of(template: str) -> str:
    """The texts that a template gives, whatever fills it in."""
    return re.sub(r"\\\{\w+(!r)?\\\}", ".*", re.escape(template)).replace(r"\{\{", r"\{").replace(r"\}\}", r"\}")


@pytest.mark.parametrize(("refusal", "refused", "accepted"), SHOWN, ids=[one.name for one, _, _ in SHOWN])
def test_an_example_gives_the_error_of_its_section(refusal: Refusal, refused: str, accepted: str) -> None:
    [error] = errors_of(refusal, refused)
    assert f"```python\n{refused.strip()}\n```\n\n```text\n{error}\n```\n" in section_of(refusal)
    assert re.fullmatch(f"(t )?{pattern_of(refusal.shape)}: {pattern_of(refusal.why)}\\.", error.message)
    assert re.match(pattern_of(refusal.instead), str(error.hint))
    assert errors_of(refusal, accepted) == []
    assert f"```python\n{accepted.strip()}\n```\n" in section_of(refusal)


def test_each_refusal_has_a_section_of_its_own() -> None:
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert headings == [one.name for one in REFUSALS]
    assert len(set(headings)) == len(headings)


def test_each_refusal_has_examples_and_each_example_a_refusal() -> None:
    assert sorted([*FUNCTION_EXAMPLES, *PARAMETER_EXAMPLES]) == sorted(one.name for one in REFUSALS)
    assert all(EXAMPLES.values())
    assert set(SEEN) == {*SEEN_BY_SPARK, "column-of-the-platform"}


def schema_of(**columns: Any) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


BY_SENSOR = {"primary_key": ["sensor"], "event_time": None, "closes_at": None, "depends_within": None}
TEXT, TIME = T.StringType(), T.TimestampType()
SEEN_BY_SPARK: dict[str, tuple[dict[str, Any], T.DataType, T.DataType]] = {
    "type-that-delta-has-not": (BY_SENSOR, T.DayTimeIntervalType(), T.LongType()),
    "column-with-a-collation": (BY_SENSOR, T.StringType("UTF8_LCASE"), TEXT),
    "time-of-another-type": ({**BY_SENSOR, "event_time": "day"}, TEXT, T.DateType()),
    "map-in-a-key": ({**BY_SENSOR, "primary_key": ["by"]}, T.MapType(TEXT, T.DoubleType()), TEXT),
}
"""Name -> parameters of the table, and the type of the column of the example, refused and accepted."""


@pytest.mark.parametrize("refusal", [one for one in REFUSALS if one.name in SEEN], ids=lambda one: one.name)
def test_the_analysis_of_types_gives_the_error_of_the_page(refusal: Refusal) -> None:
    if refusal.name == "column-of-the-platform":
        found = [
            list(wrong_columns(a_table(), [*schema, "hour", "closes_at"]))
            for schema in (["sensor", "_day"], ["sensor", "day"])
        ]
    else:
        given, *kinds = SEEN_BY_SPARK[refusal.name]
        column = SEEN[refusal.name]["column"]
        found = [list(wrong_types(a_table(**given), schema_of(sensor=TEXT, **{column: kind}))) for kind in kinds]
    [[error], nothing] = found
    assert str(error).removeprefix("tables/plant/hours.py: ") == str(refusal.error(**SEEN[refusal.name]))
    assert nothing == []


WITHOUT_A_SHAPE = {
    "refusal.py": {"mistake"},
    "inference.py": {"kept"},
    "analysis.py": {"require_no_mistake", "_explained", "_wrong_rules", "_wrong_tolerances"},
    "registry.py": {"require_sound", "_in_order", "_check_inputs"},
    "table.py": {"__post_init__", "_require"},
    "mistake_list.py": {"require_none", "split"},
}
"""Functions that make an error of another one, or of one parameter or file without looking at the rest."""


def functions_that_make_errors(path: Path) -> set[str]:
    return {
        function.name
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id in ("PlanMistake", "BadDeclaration")
    }


def test_what_a_table_is_refused_for_is_a_refusal() -> None:
    declare = [
        ROOT / "tables" / "declare" / name for name in ("inference.py", "analysis.py", "registry.py", "table.py")
    ]
    folders = ROOT / "tables" / "declare" / "refusals", ROOT / "packages" / "twofold_algebra"
    files = [*declare, *(path for folder in folders for path in folder.rglob("*.py"))]
    found = {path.name: functions_that_make_errors(path) for path in files}
    assert {name: names for name, names in found.items() if names} == WITHOUT_A_SHAPE

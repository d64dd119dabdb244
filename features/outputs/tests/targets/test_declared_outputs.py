"""Outputs are refused at load if their table cannot have them."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.plant import HOURS, plant
from tests.tables.declared import TABLE_FILE, edited
from twofold import between, expression, matches, not_null, one_of, to_postgres, to_webhook
from twofold.infra.errors import BadDeclaration
from twofold.quality.rules import RECORD_RULES, Rule
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.output import Output, kinds

CLOSING = edited(
    HOURS, "from twofold import F, table", "from twofold import F, between, table, to_postgres, to_webhook"
)


def hours(folder: Path, outputs: str) -> Any:
    registry = plant(folder, hours=edited(CLOSING, "@table(", f"@table(outputs={outputs}, "))
    if fault := registry.faults.get("plant.hours"):
        raise fault
    return registry.find_table("hours")


def test_a_table_has_the_outputs_that_it_declares(tmp_path: Path) -> None:
    table = hours(tmp_path, '[to_postgres(), to_postgres(name="warm", where=[between("total", 5, None)])]')
    assert [(output.kind, output.name, output.when) for output in table.outputs] == [
        ("postgres", "", "changed"),
        ("postgres", "warm", "changed"),
    ]


@pytest.mark.parametrize(
    ("outputs", "message", "hint"),
    [
        ("to_postgres()", "expected a list of outputs", "Write outputs="),
        ('["postgres"]', "outputs='postgres': expected a list of outputs", "Write outputs="),
        ('[to_postgres(columns=["totl"])]', "the output hours reads totl, which the table lacks", "mean 'total'"),
        ('[to_postgres(where=[between("n", 1, 2)])]', "reads n, which the table lacks", "It has sensor, hour"),
        ("[to_postgres(), to_postgres()]", "two outputs are named 'hours'", "another name="),
        ('[to_postgres(name="hours"), to_postgres()]', "two outputs are named 'hours'", "another name="),
    ],
)
def test_an_output_that_does_not_fit_is_named(tmp_path: Path, outputs: str, message: str, hint: str) -> None:
    with pytest.raises(BadDeclaration) as refused:
        hours(tmp_path, outputs)
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")


def test_closed_rows_of_a_table_that_never_closes_are_refused(tmp_path: Path) -> None:
    text = edited(
        edited(TABLE_FILE, "import table", "import table, to_postgres"),
        "@table(",
        '@table(outputs=[to_postgres(when="closed")], ',
    )
    fault = plant(tmp_path, newest=text).faults["plant.newest"]
    assert "the output newest has when='closed', and no row of newest ever closes" in fault.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "Hours"}, "to_postgres(name='Hours'): expected a name of lower-case letters"),
        ({"name": "h" * 64}, "expected 63 characters at most"),
        ({"destination": "postgresql://me:secret@db"}, "expected a name of lower-case letters"),
        ({"when": "done"}, "to_postgres(when='done'): expected 'changed' or 'closed'"),
        ({"columns": "total"}, "to_postgres(columns='total'): expected a list of columns"),
        ({"columns": []}, "expected a list of columns"),
        ({"columns": ["a", "a"]}, "expected a list of columns, each once"),
        ({"where": between("n", 1, 2)}, "expected a list of rules"),
        ({"where": ["n > 1"]}, "to_postgres(where='n > 1'): expected rules that one row decides"),
        ({"where": [expression("n > 1")]}, "expression(n > 1)'): expected rules that one row decides: between"),
    ],
)
def test_a_parameter_that_is_wrong_by_itself_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDeclaration) as refused:
        to_postgres(**given)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"destination": ""}, "to_webhook(destination=''): expected a name of the file of the setting destinations"),
        ({"destination": "https://host/x"}, "expected a name of lower-case letters"),
        ({"destination": "hook", "begin": "1"}, "to_webhook(begin='1'): expected 'now' or 'all'"),
        ({"destination": "hook", "when": "done"}, "to_webhook(when='done'): expected 'changed' or 'closed'"),
    ],
)
def test_a_parameter_of_a_webhook_that_is_wrong_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDeclaration) as refused:
        to_webhook(**given)
    assert message in refused.value.message


def test_a_webhook_has_the_name_of_its_destination(tmp_path: Path) -> None:
    table = hours(tmp_path, '[to_postgres(), to_webhook("alerts"), to_webhook("alerts", name="calls")]')
    assert [output.name_for("hours") for output in table.outputs] == ["hours", "alerts", "calls"]


@pytest.mark.parametrize("kind", kinds().values())
def test_every_name_of_a_kind_is_there(kind: type[Output]) -> None:
    assert all(isinstance(resolve_name(name), type) for name in (kind.opens, *kind.steps))
    assert kind.elsewhere


def test_a_column_that_postgresql_cannot_have_is_refused(tmp_path: Path) -> None:
    text = edited(
        edited(CLOSING, '"total", "greatest"\n', 'F.col("total").alias("xmin")\n'),
        "@table(",
        "@table(outputs=[to_postgres()], ",
    )
    fault = plant(tmp_path, hours=text).faults["plant.hours"]
    assert "the output hours cannot have the column 'xmin'" in fault.message


def test_outputs_are_no_part_of_the_definition(tmp_path: Path) -> None:
    without = plant(tmp_path / "without", hours=CLOSING).find_table("hours")
    assert fingerprint(hours(tmp_path / "with", "[to_postgres()]")) == fingerprint(without)


RULES: list[Rule] = [
    not_null("k"),
    between("n", 1, None),
    between("at", "2026-01-01", "2026-01-02"),
    one_of("k", ["a"]),
    matches("k", "a+"),
]


def test_a_rule_is_had_again_from_its_kind_and_arguments() -> None:
    from twofold.quality import rules

    again = [getattr(rules, rule.kind)(*rule.arguments) for rule in RULES]
    assert (again, [str(rule) for rule in again]) == (RULES, [str(rule) for rule in RULES])
    assert {rule.kind for rule in RULES} == RECORD_RULES

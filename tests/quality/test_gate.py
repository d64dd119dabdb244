"""The batch gate: Great Expectations agrees with the one-pass check, and what it finds is kept."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twofold.infra.errors import BadDeclaration, QualityFailed
from twofold.infra.project.settings import Settings
from twofold.quality.gate import Subject, gate
from twofold.quality.great_expectations_suite import open_suites, rows_to_judge
from twofold.quality.row_checks import measure
from twofold.quality.rules import Between, Rule, between, expression, fresh_within, matches, not_null, one_of, unique

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)

GOOD = """
    SELECT * FROM VALUES
        (1, 0.5D, 'EWR', timestamp'2013-01-01 11:00:00Z', date'2013-01-01', true, 1.5, array(1)),
        (2, NULL, NULL, timestamp'2013-01-01 00:00:00Z', date'2013-01-01', NULL, NULL, array(2)),
        (NULL, 1D, 'JFK', NULL, NULL, true, 2.5, array(3))
    AS (n, x, k, at, day, b, price, parts)
"""
BAD = """
    SELECT * FROM VALUES
        (1, double('NaN'), 'ewr', timestamp'2012-12-31 23:59:59.999999Z', date'2012-12-31', false, 9.5, NULL),
        (1, -1D, 'EWR\n', timestamp'2013-01-01 00:00:00Z', date'2013-01-02', false, NULL, NULL),
        (9, double('Infinity'), 'é', timestamp'2012-12-31 00:00:00Z', date'2013-01-01', true, 1.5, array(1)),
        (9, double('Infinity'), NULL, NULL, NULL, NULL, 1.5, array(1)),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
    AS (n, x, k, at, day, b, price, parts)
"""
NOTHING_BUT_NULL = """
    SELECT int(NULL) AS n, double(NULL) AS x, string(NULL) AS k, timestamp(NULL) AS at, date(NULL) AS day,
        boolean(NULL) AS b, cast(NULL AS decimal(2, 1)) AS price, cast(NULL AS array<int>) AS parts
    FROM range(2)
"""
RULES = [
    between("n", 1, 3),
    between("n", 0.5, None),
    between("x", 0, 1),
    between("x", 0, None),
    between("x", None, 1),
    between("price", 1, 2.5),
    between("at", "2013-01-01T00:00:00Z", "2013-01-02T00:00:00+01:00"),
    between("at", "2013-01-01", None),
    between("day", "2013-01-01", "2013-01-01"),
    one_of("n", [1, 2]),
    one_of("x", [0.5, 1]),
    one_of("k", ["EWR", "JFK"]),
    one_of("b", [True]),
    matches("k", "[A-Z]{3}"),
    unique("n"),
    unique("x"),
    unique("n", "x"),
    unique("k", "b"),
    expression("n < 3.5"),
    expression("n < 4 AND `b`"),
    fresh_within("at", "2 hours"),
    fresh_within("day", "12 hours"),
]
COMPLETE = [not_null("parts"), not_null("b"), not_null("at")]


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


def trial(spark: SparkSession, sql: str, rules: Sequence[Rule], table: str = "flights.trial") -> Subject:
    return Subject(df=spark.sql(sql), table=table, rules=rules, key=["n"])


@pytest.mark.parametrize(
    ("engine", "sql", "broken"),
    [
        pytest.param("pandas", GOOD, 2, id="pandas good"),
        pytest.param("pandas", BAD, 22, id="pandas bad"),
        pytest.param("pandas", NOTHING_BUT_NULL, 3, id="pandas null"),
        pytest.param("pandas", GOOD + " LIMIT 0", 0, id="pandas empty"),
        # Seconds each, as Spark judges expectation by expectation.
        pytest.param("spark", BAD, 22, id="spark bad"),
        pytest.param("spark", NOTHING_BUT_NULL, 3, id="spark null"),
    ],
)
def test_great_expectations_counts_what_measure_counts(
    spark: SparkSession, home: Settings, engine: str, sql: str, broken: int
) -> None:
    df, rules = spark.sql(sql), RULES + COMPLETE
    measured = measure(df, rules, NOW)
    with open_suites(home) as suites:
        rows = rows_to_judge(df, rules, NOW, on_spark=engine == "spark")
        report = suites.validate(rows, "flights.trial", rules, NOW)
    assert list(zip(map(str, rules), report.failing, strict=True)) == [
        (str(one.rule), one.failing) for one in measured.rules
    ]
    assert len(measured.failed) == broken
    assert report.validation["success"] is measured.passed


def test_the_gate_keeps_every_run_and_its_pages(spark: SparkSession, home: Settings) -> None:
    rules = [unique("n"), between("x", 0, None), expression("n < 4")]
    later = NOW + dt.timedelta(hours=1)
    [bad] = gate([trial(spark, BAD, rules)], home, NOW)
    good, other = gate([trial(spark, GOOD, rules), trial(spark, GOOD, rules, "weather.trial")], home, later)

    assert (bad.passed, good.passed, other.passed) == (False, True, True)
    assert [rule.failing for rule in bad.rules] == [4, 2, 2]
    with pytest.raises(QualityFailed, match=r"docs/index\.html"):
        bad.raise_if_failed()
    good.raise_if_failed()

    kept = sorted((home.home / "quality" / "results" / "flights.trial").iterdir())
    assert kept == [bad.results, good.results]
    assert bad.results
    found = json.loads(bad.results.read_text(), parse_constant=pytest.fail)
    assert (found["passed"], found["rules"][1]["failing"]) == (False, 2)
    assert found["great_expectations"]["statistics"]["unsuccessful_expectations"] == 3

    assert bad.report
    assert bad.report == home.home / "quality" / "docs" / "index.html"
    index = bad.report.read_text()
    assert "flights.trial" in index
    assert "weather.trial" in index
    pages = list((home.home / "quality" / "docs" / "validations").rglob("*.html"))
    assert len(pages) == 3


def test_without_great_expectations_the_gate_counts_once_and_keeps_no_page(
    spark: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    [bad] = gate([trial(spark, BAD, [unique("n"), between("x", 0, None)])], home, NOW)
    assert ([rule.failing for rule in bad.rules], bad.report) == ([4, 2], None)
    assert bad.results
    found = json.loads(bad.results.read_text(), parse_constant=pytest.fail)
    assert (found["passed"], "great_expectations" in found) == (False, False)
    assert [path.name for path in (home.home / "quality").iterdir()] == ["results"]


def test_the_oldest_runs_leave_the_pages_and_keep_their_results(
    spark: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.quality.great_expectations_suite.KEPT_RUNS", 2)
    for hour in range(4):
        gate([trial(spark, GOOD, [unique("n")])], home, NOW + dt.timedelta(hours=hour))
    shown = home.home / "quality" / "docs" / "validations" / "flights" / "trial"
    assert sorted(run.name[9:11] for run in shown.iterdir()) == ["14", "15"]
    assert len(list((home.home / "quality" / "results" / "flights.trial").iterdir())) == 4


def test_an_expectation_that_cannot_be_computed_is_an_error_and_no_pass(
    spark: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"column": "n", "min_value": dt.date(2013, 1, 1)}
    monkeypatch.setattr(Between, "expectation", lambda rule: ("ExpectColumnValuesToBeBetween", wrong))
    with pytest.raises(QualityFailed, match="cannot judge the rule between"):
        gate([trial(spark, GOOD, [between("n", 0, None)])], home, NOW)


def test_tables_judged_before_one_with_a_faulty_rule_are_kept_and_shown(spark: SparkSession, home: Settings) -> None:
    faulty = trial(spark, GOOD, [expression("1 / 0 > n")], "flights.faulty")
    with pytest.raises(BadDeclaration, match="1 / 0"):
        gate([trial(spark, GOOD, [unique("n")]), faulty], home, NOW)
    assert "flights.trial" in (home.home / "quality" / "docs" / "index.html").read_text()
    assert len(list((home.home / "quality" / "results" / "flights.trial").iterdir())) == 1


def test_a_table_without_rules_passes_the_gate(spark: SparkSession, home: Settings) -> None:
    [verdict] = gate([trial(spark, GOOD, [])], home, NOW)
    assert (verdict.passed, verdict.rows) == (True, 3)


def test_a_rule_on_which_the_counts_differ_fails(
    spark: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    expectation = between("n", 5, None).expectation()
    monkeypatch.setattr(Between, "expectation", lambda rule: expectation)
    [verdict] = gate([trial(spark, GOOD, [between("n", 0, None)])], home, NOW)
    assert (verdict.passed, verdict.rules[0].failing) == (False, 2)
    assert "Great Expectations counts 2" in verdict.rules[0].observed

"""Rules on Spark rows and on whole tables."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.quality.rule_cases import CASES, Case, numbered, reasons
from twofold.infra.errors import BadArgument, BadDeclaration, QualityFailed, SchemaMismatch
from twofold.quality.row_checks import measure, naming, split
from twofold.quality.rules import Rule, between, expression, fresh_within, matches, not_null, one_of, unique

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_row_gets_the_reasons_worked_out_by_hand(spark: SparkSession, case: Case) -> None:
    assert reasons(numbered(spark, case.table), case.rules, len(case.rows)) == case.reasons


def test_accepted_rows_have_their_own_columns_and_rejected_rows_one_more(spark: SparkSession) -> None:
    df = spark.sql("SELECT 1 AS v, 'a' AS k")
    accepted, rejected = split(df, [not_null("v")])
    assert accepted.schema == df.schema
    assert rejected.schema.simpleString() == "struct<v:int,k:string,_reasons:array<string>>"


FLIGHTS = """
    SELECT * FROM VALUES
        ('UA1', 'EWR', 10, timestamp'2013-01-01 09:00:00Z', date'2013-01-01'),
        ('UA2', 'JFK', 20, timestamp'2013-01-01 10:00:00Z', date'2013-01-01'),
        ('UA2', 'lga', 99, timestamp'2013-01-01 08:00:00Z', date'2012-12-31'),
        ('UA2', NULL, NULL, NULL, NULL),
        (NULL, 'JFK', 0, timestamp'2013-01-01 07:00:00Z', date'2013-01-01'),
        (NULL, 'JFK', 0, timestamp'2013-01-01 07:00:00Z', date'2013-01-01')
    AS (id, origin, delay, at, day)
"""


def test_a_table_is_measured_as_counted_by_hand(spark: SparkSession) -> None:
    expected: list[tuple[Rule, int, str]] = [
        (not_null("id"), 2, ""),
        (not_null("day"), 1, ""),
        (between("delay", 0, 50), 1, "0 to 99"),
        (between("delay", 0, 99), 0, "0 to 99"),
        (matches("origin", "[A-Z]{3}"), 1, ""),
        (one_of("origin", ["EWR"]), 4, ""),
        (unique("id"), 3, "2 distinct"),
        (unique("id", "origin"), 0, "3 distinct"),
        (unique("origin", "at"), 2, "4 distinct"),
        (fresh_within("at", "2 hours"), 0, "newest 2013-01-01 10:00:00"),
        (fresh_within("at", "119 minutes"), 5, "newest 2013-01-01 10:00:00"),
        (fresh_within("day", "12 hours"), 0, "newest 2013-01-01"),
        (fresh_within("day", "11 hours"), 5, "newest 2013-01-01"),
        (expression("delay < 20"), 2, ""),
        (expression("origin = 'JFK' OR delay > 5"), 0, ""),
    ]
    verdict = measure(spark.sql(FLIGHTS), [rule for rule, _, _ in expected], NOON)
    assert (verdict.rows, verdict.passed) == (6, False)
    assert [(one.rule, one.failing, one.observed) for one in verdict.rules] == expected


@pytest.mark.parametrize(
    ("rule", "passes", "shows"),
    [
        (expression("origin = 'JFK' OR delay > 5"), True, False),
        (between("delay", 0, 50), False, True),
        (fresh_within("day", "11 hours"), False, False),
    ],
    ids=["kept", "broken", "not fresh"],
)
def test_rows_that_break_a_rule_are_shown(spark: SparkSession, rule: Rule, passes: bool, shows: bool) -> None:
    verdict = measure(spark.sql(FLIGHTS), [rule], NOON)
    assert (verdict.passed, bool(verdict.samples)) == (passes, shows)


def test_a_table_that_keeps_its_rules_is_read_by_one_query(spark: SparkSession) -> None:
    df = spark.range(1_000).selectExpr("id", "id % 7 AS v", "timestamp_seconds(id) AS at")
    rules = [
        unique("id"),
        unique("id", "v"),
        not_null("v"),
        between("v", 0, 6),
        expression("v < 7"),
        one_of("v", list(range(7))),
    ]
    spark.sparkContext.setJobGroup("one", "measure")
    measure(df, [*rules, fresh_within("at", "300000 days")], NOON)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("one")
    spark.sparkContext.setJobGroup("", "")
    # Adaptive execution submits each shuffle of the one query as a job of its own.
    assert len(jobs) <= 4


def test_an_empty_table_keeps_every_rule(spark: SparkSession) -> None:
    rules = [
        not_null("id"),
        between("delay", 0, 1),
        unique("id"),
        fresh_within("at", "1 second"),
        expression("delay > 9"),
    ]
    verdict = measure(spark.sql(FLIGHTS).limit(0), rules, NOON)
    assert (verdict.rows, verdict.passed, verdict.samples) == (0, True, ())


def test_a_failed_verdict_raises_with_counts_and_sample_keys(spark: SparkSession) -> None:
    rules = [between("delay", 0, 50), expression("at >= '2013-01-01 08:30:00Z'"), unique("id"), not_null("day")]
    verdict = measure(spark.sql(FLIGHTS), rules, NOON, key=["id"], table="flights.flights")
    with pytest.raises(QualityFailed, match=r"flights.flights breaks 4 of 4 rules") as failed:
        verdict.raise_if_failed()
    assert failed.value.facts["rules"] == {
        "between(delay, 0, 50)": 1,
        "expression(at >= '2013-01-01 08:30:00Z')": 3,
        "unique(id)": 3,
        "not_null(day)": 1,
    }
    shown = {"id": "UA2", "delay": "99", "at": "2013-01-01 08:00:00", "day": "2012-12-31"}
    samples = failed.value.facts["samples"]
    assert isinstance(samples, list)
    assert shown in samples
    assert {"id": "UA2"} in samples


def test_a_runtime_error_in_an_expression_names_the_rule(spark: SparkSession) -> None:
    rules = [expression("delay >= 0"), expression("100 / delay > 0")]
    with pytest.raises(BadDeclaration, match=r"The rule expression\(100 / delay > 0\).*DIVIDE_BY_ZERO"):
        measure(spark.sql(FLIGHTS), rules, NOON)
    accepted, _ = split(spark.sql(FLIGHTS), rules)
    with pytest.raises(BadDeclaration, match=r"100 / delay"), naming(rules):
        accepted.collect()


def test_an_error_of_the_table_itself_is_not_blamed_on_a_rule(spark: SparkSession) -> None:
    from pyspark.errors import ArithmeticException

    df = spark.sql(FLIGHTS).selectExpr("7 / delay AS v")
    with pytest.raises(ArithmeticException):
        measure(df, [expression("v > 0")], NOON)


@pytest.mark.parametrize("sql", ["nope > 1", "delay + 1", "max(delay) > 1", "delay >", "explode(array(true))"])
def test_an_expression_that_does_not_fit_the_table_is_refused_by_name(spark: SparkSession, sql: str) -> None:
    with pytest.raises(BadDeclaration, match="does not fit the table") as refused:
        split(spark.sql(FLIGHTS), [expression(sql)])
    assert sql in str(refused.value)


def test_rules_that_cannot_judge_the_table_are_refused(spark: SparkSession) -> None:
    df = spark.sql(FLIGHTS)
    with pytest.raises(BadDeclaration, match="delay is int"):
        measure(df, [matches("delay", "1")], NOON)
    with pytest.raises(SchemaMismatch, match="reads nope"):
        measure(df, [unique("id", "nope")], NOON)
    with pytest.raises(BadArgument, match="cannot be decided on a row alone"):
        split(df, [unique("id")])
    with pytest.raises(BadArgument, match="has no offset"):
        measure(df, [], dt.datetime(2013, 1, 1))

"""Checks rules on Spark rows and on whole tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import BadArgument, BadDeclaration
from twofold.quality.check_result import RuleVerdict, Sample, Verdict
from twofold.quality.rule import first_line, spark_column
from twofold.quality.rules import ROW_RULES, Rule
from twofold_algebra.sql.names import words_of

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

REASONS = "_reasons"
SAMPLES = 5


def split(df: DataFrame, rules: Sequence[Rule]) -> tuple[DataFrame, DataFrame]:
    """Splits rows into those that keep every rule, and those that break one, with `_reasons array<string>`.

    Both are lazy and come from the same projection: persist `df` if it is costly. Run their actions inside
    `naming(rules)`.

    Raises:
        BadArgument: a rule that no single row decides.
        BadDeclaration: a rule that cannot judge its column, or SQL that does not fit the table.
        SchemaMismatch: a rule's column is missing.
    """
    from pyspark.sql import functions as F

    _require_fit(df, rules)
    judged = df.withColumn(REASONS, _reasons(df, rules))
    return judged.where(F.size(REASONS) == 0).drop(REASONS), judged.where(F.size(REASONS) > 0)


def measure(
    df: DataFrame, rules: Sequence[Rule], now: datetime, *, key: Sequence[str] = (), table: str = ""
) -> Verdict:
    """Computes the result of every rule on the table, in one aggregate job.

    Only when something failed, further jobs fetch a few rows that show it; a broken `unique` needs them for its count
    too.

    Args:
        now: the clock for `fresh_within`, with its offset.
        key: columns that name a row in the samples.

    Raises:
        BadDeclaration: a rule that cannot judge its column, SQL that does not fit the table or fails on a row.
        SchemaMismatch: a rule's column is missing.
    """
    if now.tzinfo is None:
        raise BadArgument(f"now={now} has no offset.", hint="Pass datetime.now(UTC).")
    from pyspark.sql import functions as F

    _require_fit(df, rules)
    measures = [F.struct(*rule.measures(df, now)) for rule in rules]
    with naming(rules):
        [[rows, *found]] = df.agg(F.count(F.lit(1)), *measures).collect()
        verdicts = [_verdict(df, rule, rows, *measured) for rule, measured in zip(rules, found, strict=True)]
        broken = [verdict.rule for verdict in verdicts if not verdict.passed]
        samples = tuple(_samples(df, broken, key)) if broken else ()
    return Verdict(table=table, rows=rows, rules=tuple(verdicts), samples=samples)


@contextmanager
def naming(rules: Sequence[Rule]) -> Iterator[None]:
    """Turns a runtime error inside an expression, such as a division by zero, into one that names the rule.

    Raises:
        BadDeclaration: instead of Spark's error, when that points into the SQL of a rule.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        rule = _blamed(error, rules)
        if rule is None:
            raise
        raise BadDeclaration(
            f"The rule {rule} cannot be computed on every row: {first_line(error)}",
            hint="Guard it, for example with try_divide, try_cast or nullif; null passes.",
        ) from error


def _require_fit(df: DataFrame, rules: Sequence[Rule]) -> None:
    types = {field.name: field.dataType.simpleString() for field in df.schema}
    for rule in rules:
        rule.require_fit(types)


def _reasons(df: DataFrame, rules: Sequence[Rule]) -> Column:
    from pyspark.sql import functions as F

    if not rules:
        return F.array().cast("array<string>")
    return F.array_compact(F.array(*[F.when(~rule.spark(df), F.lit(str(rule))) for rule in rules]))


def _verdict(df: DataFrame, rule: Rule, rows: int, failing: int, observed: str) -> RuleVerdict:
    from pyspark.sql import functions as F

    repeated = rule.repeated(df) if failing else None
    if repeated is not None:
        [[failing]] = repeated.agg(F.sum("_count")).collect()
    return RuleVerdict(rule=rule, rows=rows, failing=failing, observed=observed)


def _samples(df: DataFrame, broken: Sequence[Rule], key: Sequence[str]) -> Iterator[Sample]:
    by_row = [rule for rule in broken if rule.kind in ROW_RULES]
    if by_row:
        shown = _shown(df, by_row, key)
        bad = split(df, by_row)[1].select(*[spark_column(name).cast("string").alias(name) for name in shown], REASONS)
        for row in bad.limit(SAMPLES).collect():
            yield Sample(values={name: row[name] for name in shown}, reasons=tuple(row[REASONS]))
    for rule in broken:
        repeated = rule.repeated(df)
        for row in repeated.drop("_count").limit(SAMPLES).collect() if repeated is not None else ():
            yield Sample(values=row.asDict(), reasons=(str(rule),))


def _shown(df: DataFrame, rules: Sequence[Rule], key: Sequence[str]) -> list[str]:
    """Returns the columns of a sample: the key, those that rules read, and those named in expressions."""
    words = set(words_of(" ".join(rule.condition for rule in rules)))
    read = {name for rule in rules for name in rule.columns}
    others = [name for name in df.columns if name not in key and (name in read or name.lower() in words)]
    return [*key, *others]


def _blamed(error: Any, rules: Sequence[Rule]) -> Rule | None:
    """Returns the rule whose SQL contains the text to which Spark's error points, or None."""
    fragments = [context.fragment() for context in error.getQueryContext() or [] if context.contextType().name == "SQL"]
    return next(
        (rule for rule in rules if any(fragment and fragment in rule.condition for fragment in fragments)), None
    )

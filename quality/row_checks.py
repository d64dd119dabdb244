"""Checks rules on Spark rows and on whole tables.

Dates and zoneless timestamps count as UTC, so the session's time zone must be UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from infra.errors import BadArgument, BadDeclaration, SchemaMismatch
from infra.spark.spark_literals import literal_of
from infra.sql.names import SPARK
from quality.check_result import RuleVerdict, Sample, Verdict
from quality.rules import (
    ROW_RULES,
    Between,
    Expression,
    FreshWithin,
    Matches,
    NotNull,
    OneOf,
    Rule,
    Unique,
    require_domain,
    utc,
)

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType

REASONS = "_reasons"
SAMPLES = 5


def split(df: DataFrame, rules: Sequence[Rule]) -> tuple[DataFrame, DataFrame]:
    """The rows that keep every rule, and those that break one, with `_reasons array<string>`, in the order of `rules`.

    Both are lazy and come from the same projection: persist `df` where it is costly. Run their actions inside
    `naming(rules)`.

    Raises:
        BadArgument: a rule that no single row decides.
        BadDeclaration: a rule that cannot judge its column, or SQL that does not fit the table.
        SchemaMismatch: a rule's column is missing.
    """
    from pyspark.sql import functions as F

    for rule in rules:
        if rule.kind not in ROW_RULES:
            raise BadArgument(f"The rule {rule} cannot be decided on a row alone.", hint=f"Use {sorted(ROW_RULES)}.")
    judged = df.withColumn(REASONS, _reasons(df, rules))
    return judged.where(F.size(REASONS) == 0).drop(REASONS), judged.where(F.size(REASONS) > 0)


def measure(
    df: DataFrame, rules: Sequence[Rule], now: datetime, *, key: Sequence[str] = (), table: str = ""
) -> Verdict:
    """The result of every rule on the table, in one aggregate job.

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

    aggregates = [F.count(F.lit(1)).alias("rows")]
    for number, rule in enumerate(rules):
        aggregates += [column.alias(f"{name}_{number}") for name, column in _aggregates(df, rule, now).items()]
    with naming(rules):
        row = df.agg(*aggregates).first()
        assert row is not None
        verdicts = [_judged(df, rule, row, number) for number, rule in enumerate(rules)]
        broken = [verdict.rule for verdict in verdicts if not verdict.passed]
        samples = tuple(_samples(df, broken, key)) if broken else ()
    return Verdict(table=table, rows=row["rows"], rules=tuple(verdicts), samples=samples)


@contextmanager
def naming(rules: Sequence[Rule]) -> Iterator[None]:
    """Turn a runtime error inside an expression, such as a division by zero, into one that names the rule.

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
            f"The rule {rule} cannot be computed on every row: {_first_line(error)}",
            hint="Guard it, for example with try_divide, try_cast or nullif; null passes.",
        ) from error


def holds(df: DataFrame, rule: Rule) -> Column:
    """Whether each row keeps a row rule; null where that is unknown.

    Raises:
        BadDeclaration, SchemaMismatch: as `split`.
    """
    from pyspark.sql import functions as F

    _require_fit(df, rule)
    match rule:
        case NotNull():
            return _column(rule).isNotNull()
        case Between(low=low, high=high):
            return _within(df, rule, low, high)
        case OneOf(values=values):
            return _column(rule).isin(list(values))
        case Matches(portable=pattern):
            return _column(rule).rlike(rf"\A(?:{pattern})\z")
        case Expression(sql=sql):
            return F.expr(sql)
        case _:
            raise BadArgument(f"The rule {rule} cannot be decided on a row alone.")


def _within(df: DataFrame, rule: Between, low: object, high: object) -> Column:
    from pyspark.sql import functions as F

    column, of = _column(rule), df.schema[rule.columns[0]].dataType
    within = F.lit(True)
    if low is not None:
        within = within & (column >= _literal(low, of))
    if high is not None:
        within = within & (column <= _literal(high, of))
    if of.typeName() in ("float", "double"):
        # Spark orders NaN above every number; here it is between no two.
        within = within & ~F.isnan(column)
    return F.when(column.isNotNull(), within)


def _literal(value: object, of: DataType) -> Column:
    from pyspark.sql import functions as F

    if _domain(of) != "timestamp":
        return F.lit(value)
    return literal_of(utc(value))


def _reasons(df: DataFrame, rules: Sequence[Rule]) -> Column:
    from pyspark.sql import functions as F

    if not rules:
        return F.array().cast("array<string>")
    return F.array_compact(F.array(*[F.when(~holds(df, rule), F.lit(str(rule))) for rule in rules]))


def _aggregates(df: DataFrame, rule: Rule, now: datetime) -> Mapping[str, Column]:
    """The aggregates of a table that one rule needs: `failing`, `seen`, `least`, `most`."""
    from pyspark.sql import functions as F

    _require_fit(df, rule)
    if isinstance(rule, Unique):
        complete = F.count_if(_complete(rule))
        distinct = F.count_distinct(*[_named(name) for name in rule.columns])
        return {"failing": complete - distinct, "most": distinct.cast("string")}
    if isinstance(rule, FreshWithin):
        newest, oldest = F.max(_column(rule)), F.lit(now - rule.age)
        return {"failing": F.when(newest < oldest, F.count(_column(rule))).otherwise(0), "most": newest.cast("string")}
    failing = F.count_if(~holds(df, rule))
    if isinstance(rule, Between):
        least, most = F.min(_column(rule)), F.max(_column(rule))
        return {"failing": failing, "least": least.cast("string"), "most": most.cast("string")}
    return {"failing": failing}


def _judged(df: DataFrame, rule: Rule, found: Row, number: int) -> RuleVerdict:
    values: dict[str, Any] = found.asDict()
    failing, most = values[f"failing_{number}"], values.get(f"most_{number}")
    observed = ""
    if isinstance(rule, Unique):
        observed = f"{most} distinct"
        failing = _count_repeated(df, rule) if failing else 0
    elif isinstance(rule, FreshWithin):
        observed = f"newest {most}" if most is not None else "no value"
    elif isinstance(rule, Between):
        observed = f"{values[f'least_{number}']} to {most}" if most is not None else "no value"
    return RuleVerdict(rule=rule, rows=values["rows"], failing=failing, observed=observed)


def _samples(df: DataFrame, broken: Sequence[Rule], key: Sequence[str]) -> Iterator[Sample]:
    by_row = [rule for rule in broken if rule.kind in ROW_RULES]
    if by_row:
        shown = _shown(df, by_row, key)
        bad = split(df, by_row)[1].select(*[_named(name).cast("string").alias(name) for name in shown], REASONS)
        for row in bad.limit(SAMPLES).collect():
            yield Sample(values={name: row[name] for name in shown}, reasons=tuple(row[REASONS]))
    for rule in broken:
        if isinstance(rule, Unique):
            for row in _repeated(df, rule).limit(SAMPLES).collect():
                yield Sample(values={name: row[name] for name in rule.columns}, reasons=(str(rule),))


def _shown(df: DataFrame, rules: Sequence[Rule], key: Sequence[str]) -> list[str]:
    """The key, the columns that the rules read, and those that an expression seems to."""
    words = {word.lower() for rule in rules if isinstance(rule, Expression) for word in re.findall(r"\w+", rule.sql)}
    read = {name for rule in rules for name in rule.columns}
    others = [name for name in df.columns if name not in key and (name in read or name.lower() in words)]
    return [*key, *others]


def _repeated(df: DataFrame, rule: Unique) -> DataFrame:
    """The values, as texts, that several rows share, and `count`, how many."""
    from pyspark.sql import functions as F

    groups = df.where(_complete(rule)).groupBy(*[_named(name) for name in rule.columns])
    shared = groups.agg(F.count(F.lit(1)).alias("_count")).where("_count > 1")
    return shared.select(*[_named(name).cast("string").alias(name) for name in rule.columns], "_count")


def _count_repeated(df: DataFrame, rule: Unique) -> int:
    from pyspark.sql import functions as F

    row = _repeated(df, rule).agg(F.sum("_count")).first()
    assert row is not None
    return int(row[0])


def _complete(rule: Unique) -> Column:
    from pyspark.sql import functions as F

    complete = F.lit(True)
    for name in rule.columns:
        complete = complete & _named(name).isNotNull()
    return complete


def _require_fit(df: DataFrame, rule: Rule) -> None:
    for name in rule.columns:
        if name not in df.columns:
            raise SchemaMismatch(f"The rule {rule} reads {name}; the table has {', '.join(df.columns)}.")
    if rule.domains:
        of = df.schema[rule.columns[0]].dataType
        require_domain(rule, _domain(of), of.simpleString())
    if isinstance(rule, Expression):
        from pyspark.errors import AnalysisException, ParseException

        try:
            # Analysed as a filter, so that aggregates, windows and anything but a condition are refused.
            _ = df.where(rule.sql).schema
        except (AnalysisException, ParseException) as error:
            raise BadDeclaration(
                f"The rule {rule} does not fit the table: {_first_line(error)}",
                hint=f"Write a condition in Spark SQL on {', '.join(df.columns)}.",
            ) from error


def _blamed(error: Any, rules: Sequence[Rule]) -> Expression | None:
    """The rule whose SQL holds the piece of text that Spark points at."""
    fragments = [context.fragment() for context in error.getQueryContext() or [] if context.contextType().name == "SQL"]
    for rule in rules:
        if isinstance(rule, Expression) and any(fragment and fragment in rule.sql for fragment in fragments):
            return rule
    return None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(";")


def _column(rule: Rule) -> Column:
    return _named(rule.columns[0])


def _named(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(SPARK.name(name))


def _domain(of: DataType) -> str:
    name = of.typeName()
    if name in ("byte", "short", "integer", "long", "float", "double", "decimal"):
        return "number"
    return {"timestamp_ntz": "timestamp"}.get(
        name, name if name in ("string", "boolean", "date", "timestamp") else "other"
    )

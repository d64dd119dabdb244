"""Rules for good rows and good tables: a class for each kind, and the function that declares it.

Null passes every rule except `not_null`, as it passes a CHECK constraint in SQL: a rule is broken where its condition
is false, not where it is unknown. An empty table keeps every rule. Dates and zoneless timestamps count as UTC, so the
session's time zone must be UTC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, ClassVar

from twofold.infra.duration import parse_duration
from twofold.infra.errors import BadDeclaration
from twofold.infra.spark.spark_literals import literal_of
from twofold.quality.portable_regex import portable
from twofold.quality.rule import Expectation, first_line, kinds_with, spark_column
from twofold.quality.rule import Rule as Rule
from twofold.quality.rule_values import bound_of, column_name, comparable, domains_of, is_finite, spark_bound, utc
from twofold_algebra.sql.impure_functions import find_undecided

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Bound = int | float | str
Value = str | int | float | bool


@dataclass(frozen=True)
class NotNull(Rule):
    """The column has a value."""

    kind: ClassVar[str] = "not_null"

    def arrow(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        return columns[self.columns[0]].is_valid()

    def spark(self, df: DataFrame) -> Column:
        return spark_column(self.columns[0]).isNotNull()

    def expectation(self) -> Expectation:
        return "ExpectColumnValuesToNotBeNull", {"column": self.columns[0]}


def not_null(column: str) -> NotNull:
    """Requires that the column has a value."""
    return NotNull((column_name("not_null", column),))


@dataclass(frozen=True)
class Between(Rule):
    """The value is between two bounds, both included; NaN is not.

    Attributes:
        low, high: numbers, dates or UTC timestamps, both of one type; None: no bound.
        written: the bounds as they were declared.
    """

    kind: ClassVar[str] = "between"
    low: int | float | date | datetime | None
    high: int | float | date | datetime | None
    written: tuple[Bound | None, Bound | None] = field(compare=False)

    @property
    def arguments(self) -> list[object]:
        return [*self.columns, *self.written]

    @property
    def domains(self) -> tuple[str, ...]:
        return domains_of(self.low if self.low is not None else self.high)

    def __str__(self) -> str:
        low, high = self.written
        return f"between({self.columns[0]}, {low}, {high})"

    def arrow(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        import pyarrow.compute as pc

        column, (low, high) = comparable(columns[self.columns[0]], (self.low, self.high))
        within = [pc.greater_equal(column, low)] if low.is_valid else []
        return reduce(pc.and_, [*within, pc.less_equal(column, high)] if high.is_valid else within)

    def spark(self, df: DataFrame) -> Column:
        from pyspark.sql import functions as F

        column, of = spark_column(self.columns[0]), df.schema[self.columns[0]].dataType
        # Spark orders NaN above every number; here it is between no two.
        within = ~F.isnan(column) if of.typeName() in ("float", "double") else F.lit(True)
        if self.low is not None:
            within = within & (column >= spark_bound(self.low, of))
        if self.high is not None:
            within = within & (column <= spark_bound(self.high, of))
        return F.when(column.isNotNull(), within)

    def measures(self, df: DataFrame, now: datetime) -> tuple[Column, Column]:
        from pyspark.sql import functions as F

        column = spark_column(self.columns[0])
        least, most = F.min(column).cast("string"), F.max(column).cast("string")
        seen = F.coalesce(F.concat(least, F.lit(" to "), most), F.lit("no value"))
        return super().measures(df, now)[0], seen

    def expectation(self) -> Expectation:
        bounds: list[object] = [self.low, self.high]
        if self.domains != ("number",):  # instants, which both engines compare as texts
            bounds = [None if bound is None else utc(bound).isoformat() for bound in bounds]
        elif self.high is None:  # never open above, where Spark has NaN
            bounds[1] = math.inf
        between = dict(zip(("min_value", "max_value"), bounds, strict=True))
        return "ExpectColumnValuesToBeBetween", {"column": self.columns[0], **between}


def between(column: str, low: Bound | None, high: Bound | None) -> Between:
    """Requires that the value is at least `low` and at most `high`; NaN never is.

    Args:
        low, high: numbers; or dates, `"2013-01-31"`; or timestamps with an offset, `"2013-01-31T00:00:00Z"`. None: no
            bound. A date means its midnight in UTC on a timestamp column.

    Raises:
        BadDeclaration: bounds of two types, in the wrong order, not finite, or none at all.
    """
    column_name("between", column)
    lowest, highest = bound_of(column, low), bound_of(column, high)
    rule = f"between({column}, {low}, {high})"
    if lowest is None and highest is None:
        raise BadDeclaration(f"{rule} has no bound.", hint="Give a low or a high bound.")
    if lowest is not None and highest is not None:
        if domains_of(lowest) != domains_of(highest):
            raise BadDeclaration(
                f"{rule} has bounds of two types.",
                hint="Write two numbers, two dates, or two timestamps with an offset.",
            )
        if lowest > highest:  # type: ignore[operator]
            raise BadDeclaration(f"{rule} is empty: low is above high.", hint="Swap the bounds.")
    return Between((column,), lowest, highest, (low, high))


@dataclass(frozen=True)
class OneOf(Rule):
    """The value is one of a few."""

    kind: ClassVar[str] = "one_of"
    values: tuple[Value, ...]

    @property
    def arguments(self) -> list[object]:
        return [*self.columns, list(self.values)]

    @property
    def domains(self) -> tuple[str, ...]:
        return domains_of(self.values[0])

    def __str__(self) -> str:
        return f"one_of({self.columns[0]}, {list(self.values)})"

    def arrow(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        import pyarrow.compute as pc

        column, values = comparable(columns[self.columns[0]], self.values)
        return pc.if_else(column.is_valid(), pc.is_in(column, value_set=values), None)

    def spark(self, df: DataFrame) -> Column:
        return spark_column(self.columns[0]).isin(list(self.values))

    def expectation(self) -> Expectation:
        return "ExpectColumnValuesToBeInSet", {"column": self.columns[0], "value_set": list(self.values)}


def one_of(column: str, values: Sequence[Value]) -> OneOf:
    """Requires that the value is one of these; all are of one type.

    Raises:
        BadDeclaration: no values, values of several types, None or NaN.
    """
    column_name("one_of", column)
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise BadDeclaration(f"one_of({column}, {values!r}): expected a list of values.", hint=f"Write [{values!r}].")
    distinct = tuple(dict.fromkeys(values))
    rule = f"one_of({column}, {list(distinct)})"
    if not distinct:
        raise BadDeclaration(f"{rule} lists no value.", hint="List the values that are allowed.")
    for value in distinct:
        if not isinstance(value, str | int | float) or not is_finite(value):
            raise BadDeclaration(
                f"{rule} holds {value!r}; expected texts, numbers or booleans.",
                hint="Null passes without being listed; forbid it with not_null.",
            )
    if len({domains_of(value) for value in distinct}) > 1:
        raise BadDeclaration(
            f"{rule} mixes types.", hint="List texts, or numbers, or booleans, as the column holds them."
        )
    return OneOf((column,), distinct)


@dataclass(frozen=True)
class Matches(Rule):
    """The whole value matches a regular expression.

    Attributes:
        regex: as it was declared.
        portable: spelled so that every engine reads it alike; without anchors.
    """

    kind: ClassVar[str] = "matches"
    regex: str
    portable: str = field(compare=False, repr=False)

    @property
    def arguments(self) -> list[object]:
        return [*self.columns, self.regex]

    @property
    def domains(self) -> tuple[str, ...]:
        return ("string",)

    def __str__(self) -> str:
        return f"matches({self.columns[0]}, {self.regex})"

    def arrow(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        import pyarrow.compute as pc

        return pc.match_substring_regex(columns[self.columns[0]], rf"\A(?:{self.portable})\z")

    def spark(self, df: DataFrame) -> Column:
        return spark_column(self.columns[0]).rlike(rf"\A(?:{self.portable})\z")

    def expectation(self) -> Expectation:
        # Java and Python spell the end of the text differently; that nothing follows, they spell alike.
        pattern = rf"^(?:{self.portable})(?![\s\S])"
        return "ExpectColumnValuesToMatchRegex", {"column": self.columns[0], "regex": pattern}


def matches(column: str, regex: str) -> Matches:
    r"""Requires that the whole value matches a regular expression.

    `\d`, `\w`, `\s` mean ASCII characters, `.` any character but a newline. Anchors and look-around are refused, since
    engines read them differently.

    Raises:
        BadDeclaration: it does not compile, or not every engine reads it alike (`quality.portable_regex`).
    """
    return Matches((column_name("matches", column),), regex, portable(regex))


@dataclass(frozen=True)
class Unique(Rule):
    """No two rows agree in all these columns."""

    kind: ClassVar[str] = "unique"

    def measures(self, df: DataFrame, now: datetime) -> tuple[Column, Column]:
        from pyspark.sql import functions as F

        distinct = F.count_distinct(*map(spark_column, self.columns))
        return F.count_if(self._complete) - distinct, F.concat(distinct.cast("string"), F.lit(" distinct"))

    def repeated(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        groups = df.where(self._complete).groupBy(*map(spark_column, self.columns))
        shared = groups.agg(F.count(F.lit(1)).alias("_count")).where("_count > 1")
        return shared.select(*[spark_column(name).cast("string").alias(name) for name in self.columns], "_count")

    def expectation(self) -> Expectation:
        if len(self.columns) == 1:
            return "ExpectColumnValuesToBeUnique", {"column": self.columns[0]}
        ignored = {"ignore_row_if": "any_value_is_missing"}
        return "ExpectCompoundColumnsToBeUnique", {"column_list": list(self.columns), **ignored}

    @property
    def _complete(self) -> Column:
        return reduce(and_, (spark_column(name).isNotNull() for name in self.columns))


def unique(*columns: str) -> Unique:
    """Requires that no two rows agree in all these columns; a row with null in one of them agrees with none.

    Raises:
        BadDeclaration: no column, or one named twice.
    """
    for column in columns:
        column_name("unique", column)
    if not columns or len(set(columns)) < len(columns):
        raise BadDeclaration(
            f"unique({', '.join(columns)}): expected columns, each once.", hint="Name the columns of the key."
        )
    return Unique(columns)


@dataclass(frozen=True)
class FreshWithin(Rule):
    """The newest value is at most so old."""

    kind: ClassVar[str] = "fresh_within"
    interval: str

    @property
    def domains(self) -> tuple[str, ...]:
        return ("timestamp", "date")

    @property
    def age(self) -> timedelta:
        return timedelta(milliseconds=parse_duration(self.interval, "fresh_within"))

    def __str__(self) -> str:
        return f"fresh_within({self.columns[0]}, {self.interval})"

    def measures(self, df: DataFrame, now: datetime) -> tuple[Column, Column]:
        from pyspark.sql import functions as F

        column = spark_column(self.columns[0])
        newest = F.max(column)
        failing = F.when(newest < literal_of(now - self.age), F.count(column)).otherwise(0)
        return failing, F.coalesce(F.concat(F.lit("newest "), newest.cast("string")), F.lit("no value"))

    def expectation(self) -> Expectation:
        return "ExpectColumnValuesToBeBetween", {"column": self._title, "max_value": self.age.total_seconds()}

    def own_column(self, df: DataFrame, now: datetime) -> Column:
        from pyspark.sql import functions as F

        value = spark_column(self.columns[0]).cast("timestamp")
        newest = df.agg(F.max(value)).scalar()
        age = (F.unix_micros(F.lit(now)) - F.unix_micros(newest)) / 1_000_000
        return F.when(value.isNotNull(), age).alias(self._title)

    @property
    def _title(self) -> str:
        return f"age of the newest {self.columns[0]} in seconds, at most {self.interval}"


def fresh_within(column: str, interval: str) -> FreshWithin:
    """Requires that the newest value is at most `interval` older than the clock of the check.

    A table without any value keeps the rule.

    Args:
        column: a timestamp, or a date, which counts from its midnight in UTC.
        interval: such as `"2 hours"` or `"1 day 12 hours"`.

    Raises:
        BadDeclaration: not a length of time.
    """
    column_name("fresh_within", column)
    if not isinstance(interval, str):
        raise BadDeclaration(
            f"fresh_within({column}, {interval!r}): expected a length of time.", hint="Write '2 hours'."
        )
    parse_duration(interval, f"fresh_within({column})")
    return FreshWithin((column,), interval)


@dataclass(frozen=True)
class Expression(Rule):
    """A condition in Spark SQL is not false."""

    kind: ClassVar[str] = "expression"
    sql: str

    def __str__(self) -> str:
        return f"expression({self.sql})"

    @property
    def condition(self) -> str:
        return self.sql

    def spark(self, df: DataFrame) -> Column:
        from pyspark.errors import AnalysisException, ParseException
        from pyspark.sql import functions as F

        try:
            # Analysed as a filter, so that aggregates, windows and anything but a condition are refused.
            _ = df.where(self.sql).schema
        except (AnalysisException, ParseException) as error:
            raise BadDeclaration(
                f"The rule {self} does not fit the table: {first_line(error)}",
                hint=f"Write a condition in Spark SQL on {', '.join(df.columns)}.",
            ) from error
        return F.expr(self.sql)

    def expectation(self) -> Expectation:
        return "ExpectColumnValuesToBeInSet", {"column": self._title, "value_set": [True]}

    def own_column(self, df: DataFrame, now: datetime) -> Column:
        return self.spark(df).alias(self._title)

    @property
    def _title(self) -> str:
        """Its SQL without dots and backticks, which Spark would read as paths."""
        return self.sql.replace(".", "·").replace("`", "·")


def expression(sql: str) -> Expression:
    """Requires that a condition in Spark SQL (ANSI) is not false on any row; null passes.

    The same row must always get the same answer, so clocks, chance and places are refused.

    Raises:
        BadDeclaration: empty, or calls a function whose result is not decided by the row. Unknown columns and wrong
            types show when it first meets a table.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise BadDeclaration(f"expression({sql!r}): expected a condition in SQL.", hint="Write 'landed <= flights'.")
    if undecided := find_undecided(sql):
        raise BadDeclaration(
            f"expression({sql}) uses {undecided}, which the row does not decide.",
            hint="Compare columns with each other or with literals; for age use fresh_within; quote a column `so`.",
        )
    return Expression((), sql.strip())


RECORD_RULES = kinds_with("arrow")
"""Kinds that can be decided on one record alone."""

ROW_RULES = kinds_with("spark")
"""Kinds that can be decided on one row of a table alone."""

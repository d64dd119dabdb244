"""Rules for good rows and good tables, as data.

Null passes every rule except `not_null`, as it passes a CHECK constraint in SQL: a rule is broken where its condition
is false, not where it is unknown. An empty table keeps every rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, Literal

from infra.duration import parse_duration
from infra.errors import BadDeclaration
from infra.sql.impure_functions import code_of, find_impure
from quality.portable_regex import portable

Kind = Literal["not_null", "between", "one_of", "matches", "unique", "fresh_within", "expression"]
Bound = int | float | str
Value = str | int | float | bool

RECORD_RULES: frozenset[str] = frozenset({"not_null", "between", "one_of", "matches"})
"""Kinds that can be decided on one record alone."""

ROW_RULES: frozenset[str] = RECORD_RULES | {"expression"}
"""Kinds that can be decided on one row of a table alone."""


@dataclass(frozen=True)
class Rule:
    """The base of all rules; `str()` of one is how people, quarantine and reports name it.

    Attributes:
        kind: which rule it is.
        columns: the columns that it reads; empty for an expression, which only Spark can parse.
        domains: the kinds of column that it can judge: `number`, `string`, `boolean`, `date`, `timestamp`; empty: any.
    """

    kind: ClassVar[Kind]
    columns: tuple[str, ...]

    @property
    def domains(self) -> tuple[str, ...]:
        return ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})"


@dataclass(frozen=True)
class NotNull(Rule):
    """The column has a value."""

    kind: ClassVar[Kind] = "not_null"


@dataclass(frozen=True)
class Between(Rule):
    """The value is between two bounds, both included; NaN is not.

    Attributes:
        low, high: numbers, dates or UTC timestamps, both of one type; None: no bound.
        written: the bounds as they were declared.
    """

    kind: ClassVar[Kind] = "between"
    low: int | float | date | datetime | None
    high: int | float | date | datetime | None
    written: tuple[Bound | None, Bound | None] = field(compare=False)

    @property
    def domains(self) -> tuple[str, ...]:
        return _domains(self.low if self.low is not None else self.high)

    def __str__(self) -> str:
        low, high = self.written
        return f"between({self.columns[0]}, {low}, {high})"


@dataclass(frozen=True)
class OneOf(Rule):
    """The value is one of a few."""

    kind: ClassVar[Kind] = "one_of"
    values: tuple[Value, ...]

    @property
    def domains(self) -> tuple[str, ...]:
        return _domains(self.values[0])

    def __str__(self) -> str:
        return f"one_of({self.columns[0]}, {list(self.values)})"


@dataclass(frozen=True)
class Matches(Rule):
    """The whole value matches a regular expression.

    Attributes:
        regex: as it was declared.
        portable: spelled so that every engine reads it alike; without anchors.
    """

    kind: ClassVar[Kind] = "matches"
    regex: str
    portable: str = field(compare=False, repr=False)

    @property
    def domains(self) -> tuple[str, ...]:
        return ("string",)

    def __str__(self) -> str:
        return f"matches({self.columns[0]}, {self.regex})"


@dataclass(frozen=True)
class Unique(Rule):
    """No two rows agree in all these columns."""

    kind: ClassVar[Kind] = "unique"


@dataclass(frozen=True)
class FreshWithin(Rule):
    """The newest value is at most so old."""

    kind: ClassVar[Kind] = "fresh_within"
    interval: str

    @property
    def domains(self) -> tuple[str, ...]:
        return ("timestamp", "date")

    @property
    def age(self) -> timedelta:
        return timedelta(milliseconds=parse_duration(self.interval, "fresh_within"))

    def __str__(self) -> str:
        return f"fresh_within({self.columns[0]}, {self.interval})"


@dataclass(frozen=True)
class Expression(Rule):
    """A condition in Spark SQL is not false."""

    kind: ClassVar[Kind] = "expression"
    sql: str

    def __str__(self) -> str:
        return f"expression({self.sql})"


def require_domain(rule: Rule, domain: str, found: str) -> None:
    """Refuse a rule on a column of a type that it cannot judge.

    Args:
        domain: `number`, `string`, `boolean`, `date`, `timestamp` or `other`.
        found: the column's type, for the error.

    Raises:
        BadDeclaration: names the rule, the type and what would fit.
    """
    if rule.domains and domain not in rule.domains:
        raise BadDeclaration(
            f"The rule {rule} judges a {' or a '.join(rule.domains)}; {rule.columns[0]} is {found}.",
            hint="Write the rule's values as the column holds them.",
        )


def utc(moment: object) -> datetime:
    """The instant of a bound: a date means its midnight in UTC."""
    if isinstance(moment, datetime):
        return moment
    if isinstance(moment, date):
        return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    raise TypeError(f"{moment!r} is no moment")


def not_null(column: str) -> NotNull:
    """The column must have a value."""
    return NotNull((_column("not_null", column),))


def between(column: str, low: Bound | None, high: Bound | None) -> Between:
    """The value must be at least `low` and at most `high`; NaN never is.

    Args:
        low, high: numbers; or dates, `"2013-01-31"`; or timestamps with an offset, `"2013-01-31T00:00:00Z"`. None: no
            bound. On a timestamp column a date means its midnight in UTC.

    Raises:
        BadDeclaration: bounds of two types, in the wrong order, not finite, or none at all.
    """
    _column("between", column)
    lowest, highest = _bound(column, low), _bound(column, high)
    rule = f"between({column}, {low}, {high})"
    if lowest is None and highest is None:
        raise BadDeclaration(f"{rule} has no bound.", hint="Give a low or a high bound.")
    if lowest is not None and highest is not None:
        if _domains(lowest) != _domains(highest):
            raise BadDeclaration(
                f"{rule} has bounds of two types.",
                hint="Write two numbers, two dates, or two timestamps with an offset.",
            )
        if lowest > highest:  # type: ignore[operator]
            raise BadDeclaration(f"{rule} is empty: low is above high.", hint="Swap the bounds.")
    return Between((column,), lowest, highest, (low, high))


def one_of(column: str, values: Sequence[Value]) -> OneOf:
    """The value must be one of these; all of one type.

    Raises:
        BadDeclaration: no values, values of several types, None or NaN.
    """
    _column("one_of", column)
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise BadDeclaration(f"one_of({column}, {values!r}): expected a list of values.", hint=f"Write [{values!r}].")
    distinct = tuple(dict.fromkeys(values))
    rule = f"one_of({column}, {list(distinct)})"
    if not distinct:
        raise BadDeclaration(f"{rule} lists no value.", hint="List the values that are allowed.")
    for value in distinct:
        if not isinstance(value, str | int | float) or _not_finite(value):
            raise BadDeclaration(
                f"{rule} holds {value!r}; expected texts, numbers or booleans.",
                hint="Null passes without being listed; forbid it with not_null.",
            )
    if len({_domains(value) for value in distinct}) > 1:
        raise BadDeclaration(
            f"{rule} mixes types.", hint="List texts, or numbers, or booleans, as the column holds them."
        )
    return OneOf((column,), distinct)


def matches(column: str, regex: str) -> Matches:
    r"""The whole value must match a regular expression.

    `\d`, `\w`, `\s` mean ASCII characters, `.` any character but a newline. Anchors and look-around are refused, since
    engines read them differently.

    Raises:
        BadDeclaration: it does not compile, or not every engine reads it alike (`quality.portable_regex`).
    """
    return Matches((_column("matches", column),), regex, portable(regex))


def unique(*columns: str) -> Unique:
    """No two rows may agree in all these columns; a row with null in one of them agrees with none.

    Raises:
        BadDeclaration: no column, or one named twice.
    """
    for column in columns:
        _column("unique", column)
    if not columns or len(set(columns)) < len(columns):
        raise BadDeclaration(
            f"unique({', '.join(columns)}): expected columns, each once.", hint="Name the columns of the key."
        )
    return Unique(columns)


def fresh_within(column: str, interval: str) -> FreshWithin:
    """The newest value may be at most `interval` older than the clock of the check.

    A table without any value keeps the rule.

    Args:
        column: a timestamp, or a date, which counts from its midnight in UTC.
        interval: such as `"2 hours"` or `"1 day 12 hours"`.

    Raises:
        BadDeclaration: not a length of time.
    """
    _column("fresh_within", column)
    if not isinstance(interval, str):
        raise BadDeclaration(
            f"fresh_within({column}, {interval!r}): expected a length of time.", hint="Write '2 hours'."
        )
    parse_duration(interval, f"fresh_within({column})")
    return FreshWithin((column,), interval)


def expression(sql: str) -> Expression:
    """A condition in Spark SQL (ANSI) must not be false on any row: null passes.

    The same row must always get the same answer, so clocks, chance and places are refused.

    Raises:
        BadDeclaration: empty, or calls a function whose result is not decided by the row. Unknown columns and wrong
            types show when it first meets a table.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise BadDeclaration(f"expression({sql!r}): expected a condition in SQL.", hint="Write 'landed <= flights'.")
    found = _SEVERAL_ROWS.search(code_of(sql)) or _RELATIVE_LITERAL.search(sql)
    if undecided := find_impure(sql) or (found and found[0]):
        raise BadDeclaration(
            f"expression({sql}) uses {undecided}, which the row does not decide.",
            hint="Compare columns with each other or with literals; for age use fresh_within; quote a column `so`.",
        )
    return Expression((), sql.strip())


_RELATIVE_LITERAL = re.compile(r"\b(?:date|timestamp\w*)\s*['\"]\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_SEVERAL_ROWS = re.compile(r"\b(?:over|select)\b", re.IGNORECASE)


def _column(kind: str, column: object) -> str:
    if not isinstance(column, str) or not column:
        raise BadDeclaration(f"{kind}({column!r}): expected the name of a column.", hint="Write the name as a text.")
    return column


def _bound(column: str, written: object) -> int | float | date | datetime | None:
    if written is None:
        return None
    if isinstance(written, str):
        return _moment(column, written)
    if isinstance(written, bool) or not isinstance(written, int | float) or _not_finite(written):
        raise BadDeclaration(
            f"between({column}) has the bound {written!r}; expected a finite number or a text.",
            hint="None means no bound.",
        )
    return written


def _moment(column: str, written: str) -> date | datetime:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", written, re.ASCII):
            return date.fromisoformat(written)
        moment = datetime.fromisoformat(written)
        if moment.tzinfo is None:
            raise ValueError("it has no offset")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadDeclaration(
            f"between({column}) has the bound {written!r}: {error}.",
            hint="Write a date, '2013-01-31', or a timestamp with its offset, '2013-01-31T00:00:00Z'.",
        ) from error


def _not_finite(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _domains(value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, str):
        return ("string",)
    if isinstance(value, datetime):
        return ("timestamp",)
    if isinstance(value, date):
        return ("date", "timestamp")
    return ("number",)

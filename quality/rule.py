"""The base of the kinds of rules, and how tables are judged by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from infra.errors import BadArgument, BadDeclaration, SchemaMismatch
from infra.sql.names import SPARK

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Kind = Literal["not_null", "between", "one_of", "matches", "unique", "fresh_within", "expression"]
Expectation: TypeAlias = tuple[str, dict[str, Any]]
"""The name of a class of Great Expectations, and its arguments."""

TABLE_METHODS = frozenset({"require_fit", "spark", "measures", "repeated", "expectation", "own_column", "condition"})
"""Methods of rules that judge tables alone: no record is decoded otherwise when they change."""


@dataclass(frozen=True)
class Rule:
    """The base of all rules; `str()` of one is how people, quarantine and reports name it.

    Attributes:
        kind: which rule it is, the name of the function that declares it.
        columns: the columns that it reads; empty for an expression, which only Spark can parse.
        domains: the kinds of column that it can judge: `number`, `string`, `boolean`, `date`, `timestamp`; empty: any.
        condition: the SQL in which it was declared; empty for other kinds.
    """

    kind: ClassVar[Kind]
    columns: tuple[str, ...]

    @property
    def domains(self) -> tuple[str, ...]:
        return ()

    @property
    def condition(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})"

    def require_fit(self, df: DataFrame) -> None:
        """Refuses a table that the rule cannot judge.

        Raises:
            BadDeclaration: its column is of another type, or its SQL does not fit.
            SchemaMismatch: a column is missing.
        """
        for name in self.columns:
            if name not in df.columns:
                raise SchemaMismatch(f"The rule {self} reads {name}; the table has {', '.join(df.columns)}.")
        if self.domains:
            of = df.schema[self.columns[0]].dataType
            require_domain(self, spark_domain(of), of.simpleString())

    def spark(self, df: DataFrame) -> Column:
        """Returns whether each row keeps the rule; null if that is unknown.

        Raises:
            BadArgument: no single row decides the rule.
        """
        raise BadArgument(
            f"The rule {self} cannot be decided on a row alone.", hint=f"Use {sorted(kinds_with('spark'))}."
        )

    def measures(self, df: DataFrame, now: datetime) -> tuple[Column, Column]:
        """Returns two aggregates of the table: how many rows break the rule, and what was seen, as text for people."""
        from pyspark.sql import functions as F

        return F.count_if(~self.spark(df)), F.lit("")

    def repeated(self, df: DataFrame) -> DataFrame | None:
        """Returns the values, as texts, that several rows share, and `_count`, how many; None if that is allowed.

        A rule that allows none is broken by so many rows as these counts say.
        """
        return None

    def expectation(self) -> Expectation:
        """Returns the expectation that counts the same failing rows."""
        raise NotImplementedError

    def own_column(self, df: DataFrame, now: datetime) -> Column | None:
        """Returns the column that the expectation reads, named; None if it reads those of the table."""
        return None


def kinds_with(method: str) -> frozenset[str]:
    """Returns the kinds of rules that have a method of their own."""
    return frozenset(c.kind for c in Rule.__subclasses__() if getattr(c, method) is not getattr(Rule, method))


def require_domain(rule: Rule, domain: str, found: str) -> None:
    """Refuses a rule on a column of a type that it cannot judge.

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


def spark_column(name: str) -> Column:
    """Returns a column of whatever name."""
    from pyspark.sql import functions as F

    return F.col(SPARK.name(name))


def spark_domain(of: DataType) -> str:
    """Returns the kind of a column's type, as in `require_domain`."""
    name = of.typeName()
    if name in ("byte", "short", "integer", "long", "float", "double", "decimal"):
        return "number"
    return {"timestamp_ntz": "timestamp"}.get(
        name, name if name in ("string", "boolean", "date", "timestamp") else "other"
    )


def first_line(error: Exception) -> str:
    """Returns what an error of Spark says first."""
    return str(error).strip().split("\n", 1)[0].rstrip(";")

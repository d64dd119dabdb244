"""The base of the kinds of rules, and how records and tables are judged by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from twofold.infra.errors import BadArgument, BadDeclaration, SchemaMismatch
from twofold_algebra.sql.names import SPARK

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Expectation: TypeAlias = tuple[str, dict[str, Any]]
"""The name of a class of Great Expectations, and its arguments."""

_DOMAINS = re.compile(
    r"(?P<number>(?:tiny|small|big)?int\b|u?int\d|float|half|double|decimal)"
    r"|(?P<string>string|large_string)|(?P<boolean>bool)|(?P<date>date)|(?P<timestamp>timestamp)"
)
"""The kinds of column, by the names that Spark and Arrow have for their types."""
TABLE_METHODS = frozenset({"spark", "measures", "repeated", "expectation", "own_column", "condition", "arguments"})
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

    kind: ClassVar[str]
    columns: tuple[str, ...]

    @property
    def domains(self) -> tuple[str, ...]:
        return ()

    @property
    def condition(self) -> str:
        return ""

    @property
    def arguments(self) -> list[Any]:
        """The arguments by which the function of its kind declares the same rule, for kinds that one record decides."""
        return list(self.columns)

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})"

    def require_fit(self, types: Mapping[str, str]) -> None:
        """Refuses columns that the rule cannot judge.

        Args:
            types: column -> type, as Spark or Arrow name it.

        Raises:
            BadDeclaration: its column is of another type.
            SchemaMismatch: a column is missing.
        """
        for name in self.columns:
            if name not in types:
                raise SchemaMismatch(f"The rule {self} reads {name}; there are {', '.join(types)}.")
            found = _DOMAINS.match(types[name])
            if self.domains and (not found or found.lastgroup not in self.domains):
                raise BadDeclaration(
                    f"The rule {self} judges a {' or a '.join(self.domains)}; {name} is {types[name]}.",
                    hint="Write the rule's values as the column holds them.",
                )

    def arrow(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Returns whether each record keeps the rule; null if that is unknown.

        Raises:
            BadArgument: no single record decides the rule.
        """
        raise BadArgument(
            f"The rule {self} cannot be decided on a record alone.", hint=f"Use {sorted(kinds_with('arrow'))}."
        )

    def spark(self, df: DataFrame) -> Column:
        """Returns whether each row keeps the rule; null if that is unknown.

        Raises:
            BadArgument: no single row decides the rule.
            BadDeclaration: its SQL does not fit.
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


def spark_column(name: str) -> Column:
    """Returns a column of whatever name."""
    from pyspark.sql import functions as F

    return F.col(SPARK.name(name))


def first_line(error: Exception) -> str:
    """Returns what an error of Spark says first."""
    return str(error).strip().split("\n", 1)[0].rstrip(";")

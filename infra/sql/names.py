"""Writes names and constants as an engine's SQL reads them: the only code that quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

Constant: TypeAlias = "str | int | float | Decimal | date | bytes | None"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUOTED = re.compile(r"""(["'])((?:(?!\1).|\1\1)*)\1""", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How an engine writes names and constants.

    Attributes:
        quote: the sign around a name.
        apostrophe: how a text has one; with a backslash, a text has that sign twice, too.
        double: the type of a `float`.
        instant: a time, of its ISO 8601 text or of its microseconds since 1970.
        binary: bytes, of their hexadecimal digits.
    """

    quote: str = '"'
    apostrophe: str = "''"
    double: str = "DOUBLE PRECISION"
    instant: str = "TIMESTAMPTZ '{iso}'"
    binary: str

    def name(self, *path: str) -> str:
        """Quotes a name, or a path of names: a relation, its column, a field of that."""
        return ".".join(self.quote + part.replace(self.quote, self.quote * 2) + self.quote for part in path)

    def path(self, name: str) -> list[str]:
        """Returns the names of a path; a name that needs no quotes may have none."""
        sign = self.quote
        parts = re.findall(f"{sign}((?:[^{sign}]|{sign * 2})*){sign}|([^.{sign}]+)", name)
        return [(quoted or plain).replace(sign * 2, sign) for quoted, plain in parts]

    def names(self, columns: Iterable[str]) -> str:
        """Quotes columns, as a list."""
        return ", ".join(map(self.name, columns))

    def literal(self, value: Constant) -> str:
        """Writes a constant of its own type; a whole number beyond 64 bits is a decimal.

        Raises:
            ValueError: a time without a zone.
        """
        match value:
            case None:
                return "NULL"
            case str():
                return f"'{self._escaped(value)}'"
            case bool():
                return str(value).lower()
            case int() if -(2**63) <= value < 2**63:
                return str(value)
            case int() | Decimal():
                return self._decimal(format(Decimal(value), "f"))
            case float():
                return f"CAST('{value!r}' AS {self.double})"
            case datetime():
                return self._instant(value)
            case date():
                return f"DATE '{value.isoformat()}'"
        return self.binary.format(value.hex())

    def literals(self, values: Iterable[Constant]) -> str:
        """Writes constants, as a list."""
        return ", ".join(map(self.literal, values))

    def _escaped(self, text: str) -> str:
        escaped = text.replace("\\", "\\\\") if "\\" in self.apostrophe else text
        return escaped.replace("'", self.apostrophe)

    def _decimal(self, digits: str) -> str:
        whole, _, fraction = digits.lstrip("-").partition(".")
        precision = len(whole.lstrip("0")) + len(fraction)
        return f"CAST('{digits}' AS DECIMAL({max(precision, 1)}, {len(fraction)}))"

    def _instant(self, at: datetime) -> str:
        if at.tzinfo is None:
            raise ValueError(f"expected a time with a zone, got {at}")
        micros = (at - _EPOCH) // timedelta(microseconds=1)
        return self.instant.format(iso=at.astimezone(UTC).isoformat(), micros=micros)


SPARK = Dialect(quote="`", apostrophe="\\'", double="DOUBLE", instant="TIMESTAMP '{iso}'", binary="X'{}'")
DUCKDB = Dialect(binary="from_hex('{}')")
DATAFUSION = Dialect(
    # It takes a text for a time in nanoseconds, which end in 2262.
    instant="arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')",
    binary="X'{}'",
)
POSTGRES = Dialect(binary="decode('{}', 'hex')")


def for_spark(sql: str) -> str:
    """Returns SQL as Spark reads it, of SQL with names and texts as DuckDB reads them."""

    def quoted(found: re.Match[str]) -> str:
        sign, written = found.groups()
        plain = written.replace(sign * 2, sign)
        return SPARK.name(plain) if sign == DUCKDB.quote else SPARK.literal(plain)

    return _QUOTED.sub(quoted, sql)

"""Writes names and constants as an engine's SQL reads them: the only code that quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

Constant: TypeAlias = "str | int | float | Decimal | date | bytes | None"

_EPOCH, _DAY_MS = datetime(1970, 1, 1, tzinfo=UTC), 86_400_000


def words_of(sql: str) -> list[str]:
    """Returns the words of SQL in lower case: its names, parts of quoted ones, and all others."""
    return re.findall(r"\w+", sql.lower())


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The syntax of names and constants of an engine.

    Attributes:
        quote: the quotation mark of names.
        apostrophe: its escape in a text; if it has a backslash, backslashes are doubled, too.
        double: the type of a `float`.
        instant, local: the template of a time with a zone, and without one, from microseconds since 1970.
        day: the template of a date, from days since 1970.
        binary: the template of bytes, from hexadecimal digits.
    """

    quote: str = '"'
    apostrophe: str = "''"
    double: str = "DOUBLE PRECISION"
    instant: str
    local: str
    day: str
    binary: str

    def name(self, *path: str) -> str:
        """Quotes a name, or a path of names: a relation, its column, a field of that."""
        return ".".join(self.quote + part.replace(self.quote, self.quote * 2) + self.quote for part in path)

    def path(self, name: str) -> list[str]:
        """Splits a path into its names; names that need no quotes may have none."""
        sign = self.quote
        parts = re.findall(f"{sign}((?:[^{sign}]|{sign * 2})*){sign}|([^.{sign}]+)", name)
        return [(quoted or plain).replace(sign * 2, sign) for quoted, plain in parts]

    def names(self, columns: Iterable[str]) -> str:
        """Quotes the names of columns, separated by commas."""
        return ", ".join(map(self.name, columns))

    def literal(self, value: Constant) -> str:
        """Writes a constant with its own type; an integer beyond 64 bits is a decimal."""
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

    def moment(self, kind: pa.DataType, ms: int) -> str:
        """Writes a time in any year as a constant of a column's type, a date or a timestamp.

        Args:
            ms: epoch milliseconds; a date is the day that contains them.
        """
        import pyarrow as pa

        if pa.types.is_date(kind):
            return self.day.format(days=ms // _DAY_MS)
        return (self.instant if kind.tz else self.local).format(micros=ms * 1_000)

    def literals(self, values: Iterable[Constant]) -> str:
        """Writes constants, separated by commas."""
        return ", ".join(map(self.literal, values))

    def _escaped(self, text: str) -> str:
        escaped = text.replace("\\", "\\\\") if "\\" in self.apostrophe else text
        return escaped.replace("'", self.apostrophe)

    def _decimal(self, digits: str) -> str:
        whole, _, fraction = digits.lstrip("-").partition(".")
        precision = len(whole.lstrip("0")) + len(fraction)
        return f"CAST('{digits}' AS DECIMAL({max(precision, 1)}, {len(fraction)}))"

    def _instant(self, at: datetime) -> str:
        micros = (at.replace(tzinfo=at.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
        return (self.instant if at.tzinfo else self.local).format(micros=micros)


# Each engine's own text of a time ends at some year, or is of another calendar before 1582.
SPARK = Dialect(
    quote="`",
    apostrophe="\\'",
    double="DOUBLE",
    instant="timestamp_micros({micros})",
    local="CAST(timestamp_micros({micros}) AS TIMESTAMP_NTZ)",
    day="date_from_unix_date({days})",
    binary="X'{}'",
)
DUCKDB = Dialect(
    instant="make_timestamptz({micros})",
    local="make_timestamp({micros})",
    day="(DATE '1970-01-01' + {days})",
    binary="from_hex('{}')",
)
DATAFUSION = Dialect(
    instant="arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')",
    local="arrow_cast({micros}, 'Timestamp(Microsecond, None)')",
    day="arrow_cast({days}, 'Date32')",
    binary="X'{}'",
)
POSTGRES = Dialect(
    instant="(TIMESTAMPTZ 'epoch' + {micros} * INTERVAL '1 microsecond')",
    local="(TIMESTAMP 'epoch' + {micros} * INTERVAL '1 microsecond')",
    day="(DATE 'epoch' + {days})",
    binary="decode('{}', 'hex')",
)

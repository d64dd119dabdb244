"""The output that keeps a table's rows in a table of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from twofold.infra.extras import require_extra
from twofold.quality.rules import Rule
from twofold.tables.declare.output import Output

COPIES = "outputs"
"""The database of the supervised server that has copies without a destination."""
_LONGEST = 63  # bytes of a name; PostgreSQL cuts longer ones off
_TAKEN = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "_key"})
"""Columns that each table of PostgreSQL has, and the one by which a copy finds its rows."""


@dataclass(frozen=True, kw_only=True)
class PostgresOutput(Output):
    """A table of PostgreSQL, in the schema of the domain's name."""

    kind: ClassVar[str] = "postgres"
    opens: ClassVar[str] = "twofold.features.outputs.targets.postgres_copy:PostgresCopy"
    elsewhere: ClassVar[str] = (
        "the copy was written to new files; the write-ahead log and the backups of the database are its operator's, "
        "and keep values until they are removed"
    )
    server: ClassVar[str] = "database"

    def __post_init__(self) -> None:
        require_extra("capture")
        super().__post_init__()
        if len(self.name) > _LONGEST:
            raise self.mistake("name", self.name, f"{_LONGEST} characters at most")

    def unfit(self, columns: Iterable[str]) -> Iterator[str]:
        return (column for column in columns if column in _TAKEN or len(column.encode()) > _LONGEST)


def to_postgres(
    *,
    name: str = "",
    columns: Sequence[str] | None = None,
    where: Sequence[Rule] = (),
    when: Literal["changed", "closed"] = "changed",
    reveal: Sequence[str] = (),
    destination: str = "",
) -> PostgresOutput:
    """Keeps the rows of the table in a table of PostgreSQL, in the schema of the domain's name.

    Args:
        name: of the copy; empty: the table's.
        columns: of the copy; None: all.
        where: rules that one row decides, such as `between("cents", 500_000, None)`: the copy has the rows that keep
            all of them. Null keeps each but `not_null`.
        when: `changed`: the copy has rows as they are now; `closed`: a row is in it once it has closed.
        reveal: columns with values of persons, which the copy has decrypted; null once a person is forgotten.
        destination: a name of the file of the setting `destinations`, which has the address of the database; empty:
            the database `outputs` of the supervised server.

    Raises:
        BadDeclaration: a name that a table cannot have, or a condition that one row does not decide.
    """
    return PostgresOutput(name=name, columns=columns, where=where, when=when, reveal=reveal, destination=destination)

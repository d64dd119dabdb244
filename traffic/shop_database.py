"""The shop's own programs: their changes of its database, and a connection for them.

It follows from the records of `shop_source`: who logs in is noted and now and then moves, and what is paid is shipped,
then sent and delivered, or cancelled. It can be done again: what is there already stays.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import IO, Literal

from infra.capture import postgres_server
from infra.errors import BadArgument, ProcessFailed
from infra.settings import Settings
from infra.sql.names import POSTGRES
from traffic import shop_source
from traffic.shop_source import CUSTOMERS, FIRST_DAY, ZONE, Login, Order, Payment, home_of

TABLES = """
CREATE TABLE IF NOT EXISTS customers (
    customer text PRIMARY KEY, country text NOT NULL, street text NOT NULL, moved_at timestamptz NOT NULL,
    last_login timestamptz);
CREATE TABLE IF NOT EXISTS shipments (
    shipment_id text PRIMARY KEY, order_id text NOT NULL, customer text NOT NULL, state text NOT NULL);
"""
STREETS = ("Alder", "Birch", "Cedar", "Elm", "Poet's", "Ødegård")
COLUMNS = {
    "customers": ("customer", "country", "street", "moved_at", "last_login"),
    "shipments": ("shipment_id", "order_id", "customer", "state"),
}
"""Table -> its columns, the key first."""
ROWS = {
    "customers": """SELECT concat_ws('|', customer, country, street, extract(epoch FROM moved_at)::bigint,
        extract(epoch FROM last_login)::bigint) AS row""",
    "shipments": "SELECT concat_ws('|', shipment_id, order_id, customer, state) AS row",
}
"""Table -> its rows as text, for PostgreSQL and for DuckDB."""


@dataclass(frozen=True)
class Change:
    """A row that is inserted, changed, or deleted; `row` has the key and the columns that are set."""

    table: str
    kind: Literal["insert", "update", "delete"]
    row: Mapping[str, str]

    @property
    def statement(self) -> str:
        """The change as SQL; a row that is there already is not inserted again."""
        key = COLUMNS[self.table][0]
        condition = f"{key} = {POSTGRES.literal(self.row[key])}"
        if self.kind == "delete":
            return f"DELETE FROM {self.table} WHERE {condition};"
        if self.kind == "update":
            new = ", ".join(f"{c} = {POSTGRES.literal(value)}" for c, value in self.row.items() if c != key)
            return f"UPDATE {self.table} SET {new} WHERE {condition};"
        values = POSTGRES.literals(self.row.values())
        return f"INSERT INTO {self.table} ({', '.join(self.row)}) VALUES ({values}) ON CONFLICT DO NOTHING;"


@dataclass(frozen=True)
class Transaction:
    """Changes of one commit, and when it is made."""

    send_at: datetime
    changes: Sequence[Change]


def transactions(start: date, end: date) -> list[Transaction]:
    """Those of `[start, end)`, in order of time."""
    opened = datetime.combine(start, time(tzinfo=ZONE))
    found = [Transaction(opened, [_customer(number) for number in range(CUSTOMERS)])]
    for _, records in shop_source.records(start, end):
        unpaid = {record.order_id: record for record in records if isinstance(record, Order)}
        for record in records:
            if isinstance(record, Login):
                found.append(_login(record))
            elif isinstance(record, Payment) and record.outcome == "accepted" and record.order_id in unpaid:
                found += _shipment(unpaid.pop(record.order_id), record.at)
    closed = datetime.combine(end, time(tzinfo=ZONE))
    return sorted((t for t in found if t.send_at < closed), key=lambda transaction: transaction.send_at)


class Connection:
    """A connection to the database."""

    def __init__(self, statements: IO[str]) -> None:
        self._statements = statements

    def commit(self, transaction: Transaction) -> None:
        """Hand the transaction to the database, which commits it soon."""
        statements = " ".join(change.statement for change in transaction.changes)
        self._statements.write(f"BEGIN; {statements} COMMIT;\n")
        self._statements.flush()


def create_tables(settings: Settings) -> None:
    """Have the shop's tables in the supervised database.

    Raises:
        BadArgument: the database is one of yours.
        DatabaseUnreachable: retryable.
    """
    if not settings.supervises_database:
        raise BadArgument(
            "The shop writes to tables of the database, and TWOFOLD_DATABASE names one of yours.",
            hint="Unset it: the shop then uses the database that the platform starts.",
        )
    postgres_server.query(settings, TABLES)


def rows(settings: Settings, table: str) -> list[str]:
    """The rows of a table in the database itself, each as text, in order."""
    return sorted(postgres_server.query(settings, f"{ROWS[table]} FROM {table}"))


@contextmanager
def connected(settings: Settings) -> Iterator[Connection]:
    """A connection to the captured database, which has the shop's tables; when the block ends, all is committed.

    Raises:
        BadArgument: the database is one of yours.
        ProcessFailed: the database refused a statement, or the connection ended.
    """
    create_tables(settings)
    command, environment = postgres_server.psql(settings)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stdin is not None
        try:
            yield Connection(process.stdin)
        except BrokenPipeError:
            pass  # psql says why
        finally:
            _, said = process.communicate()
        if process.returncode != 0:
            raise ProcessFailed(
                f"The database did not take what the shop's programs wrote: {said.strip()[-500:]}",
                hint="./twofold status says whether it runs.",
            )


def _customer(number: int) -> Change:
    customer, dice = f"c{number:04}", random.Random(f"street {number}")
    row = {
        "customer": customer,
        "country": home_of(number),
        "street": _street(dice),
        "moved_at": f"{FIRST_DAY}T00:00:00Z",
    }
    return Change("customers", "insert", row)


def _login(login: Login) -> Transaction:
    dice = random.Random(login.login_id)
    new = {"customer": login.customer, "last_login": login.at.isoformat()}
    if dice.random() < 0.1:
        # Only now the customer says that he moved, up to some days ago.
        new |= {"street": _street(dice), "moved_at": (login.at - timedelta(hours=dice.randrange(60))).isoformat()}
    return Transaction(login.at, [Change("customers", "update", new)])


def _shipment(order: Order, paid_at: datetime) -> Iterator[Transaction]:
    """Packed within the hour, in a transaction that now and then has the customer move; then sent, or cancelled."""
    dice = random.Random(order.order_id)
    key = {"shipment_id": f"p{order.order_id}"}
    packed_at = paid_at + timedelta(minutes=dice.randint(5, 50))
    customer = order.buyer.customer
    packed = Change("shipments", "insert", {**key, "order_id": order.order_id, "customer": customer, "state": "packed"})
    moved = {"customer": customer, "street": _street(dice), "moved_at": packed_at.isoformat()}
    moves = Change("customers", "update", moved)
    yield Transaction(packed_at, dice.choice([[moves, packed], [packed, moves]]) if dice.random() < 0.1 else [packed])
    if dice.random() < 0.05:
        yield Transaction(packed_at + timedelta(hours=2), [Change("shipments", "delete", key)])
        return
    for state, hours in (("sent", 4), ("delivered", 22)):
        yield Transaction(packed_at + timedelta(hours=hours), [Change("shipments", "update", {**key, "state": state})])


def _street(dice: random.Random) -> str:
    return f"{dice.randint(1, 99)} {dice.choice(STREETS)} street"

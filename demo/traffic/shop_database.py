"""The database transactions of the shop's own programs, and a connection for them.

They follow from the records of `shop_source`: customers who log in are stored and sometimes move, and paid orders are
shipped, then sent and delivered, or cancelled. They can be repeated: existing rows stay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Literal

from twofold.demo.traffic import shop_source
from twofold.demo.traffic.shop_source import CUSTOMERS, FIRST_DAY, ZONE, Login, Order, Payment, home_of
from twofold.infra.errors import BadArgument
from twofold.infra.postgres import database_connection
from twofold.infra.postgres.database_connection import Connection, query
from twofold.infra.project.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS customers (
    customer text PRIMARY KEY, country text NOT NULL, street text NOT NULL, moved_at timestamptz NOT NULL,
    last_login timestamptz, mail text);
CREATE TABLE IF NOT EXISTS shipments (
    shipment_id text PRIMARY KEY, order_id text NOT NULL, customer text NOT NULL, state text NOT NULL);
"""
HOSTS = ("Example.com", "example.net", "example.org")
STREETS = ("Alder", "Birch", "Cedar", "Elm", "Poet's", "Ødegård")
COLUMNS = {
    "customers": ("customer", "country", "street", "moved_at", "last_login", "mail"),
    "shipments": ("shipment_id", "order_id", "customer", "state"),
}
"""Table -> its columns, the key first."""
ROWS = {
    "customers": """SELECT customer, country, street, extract(epoch FROM moved_at)::bigint,
        extract(epoch FROM last_login)::bigint, mail_domain""",
    "shipments": "SELECT shipment_id, order_id, customer, state",
}
"""Table -> its rows, in SQL of PostgreSQL and of DuckDB."""
_ORIGINALS = {"customers": "(SELECT *, lower(split_part(mail, '@', 2)) AS mail_domain FROM customers) customers"}
"""Table -> what has the columns of its copy, if that is not the table."""


@dataclass(frozen=True)
class Change:
    """A row that is inserted, changed, or deleted; `row` has the key and the columns that are set."""

    table: str
    kind: Literal["insert", "update", "delete"]
    row: Mapping[str, str]

    @property
    def statement(self) -> str:
        """The change as SQL, with placeholders for the row's values; an existing row is not inserted again."""
        key = COLUMNS[self.table][0]
        if self.kind == "delete":
            return f"DELETE FROM {self.table} WHERE {key} = %({key})s"
        if self.kind == "update":
            new = ", ".join(f"{column} = %({column})s" for column in self.row if column != key)
            return f"UPDATE {self.table} SET {new} WHERE {key} = %({key})s"
        values = ", ".join(f"%({column})s" for column in self.row)
        return f"INSERT INTO {self.table} ({', '.join(self.row)}) VALUES ({values}) ON CONFLICT DO NOTHING"


@dataclass(frozen=True)
class Transaction:
    """The changes of one commit, and its time."""

    send_at: datetime
    changes: Sequence[Change]


def transactions(start: date, end: date) -> list[Transaction]:
    """Lists the transactions of `[start, end)`, ordered by time."""
    opened = datetime.combine(start, time(tzinfo=ZONE))
    transactions = [Transaction(opened, [_customer(number) for number in range(CUSTOMERS)])]
    for _, records in shop_source.records(start, end):
        unpaid = {record.order_id: record for record in records if isinstance(record, Order)}
        for record in records:
            if isinstance(record, Login):
                transactions.append(_login(record))
            elif isinstance(record, Payment) and record.outcome == "accepted" and record.order_id in unpaid:
                transactions += _shipment(unpaid.pop(record.order_id), record.at)
    closed = datetime.combine(end, time(tzinfo=ZONE))
    return sorted((t for t in transactions if t.send_at < closed), key=lambda transaction: transaction.send_at)


def commit(connection: Connection, transaction: Transaction) -> None:
    """Commits the changes in one transaction of the database."""
    with connection.transaction():
        for change in transaction.changes:
            connection.execute(change.statement, change.row)


def create_tables(settings: Settings) -> None:
    """Creates the shop's tables in the supervised database, unless they exist.

    Raises:
        BadArgument: the database is not the supervised one.
        DatabaseUnreachable: retryable.
    """
    if not settings.supervises_database:
        raise BadArgument(
            "The shop writes to tables of the database, and TWOFOLD_DATABASE names one of yours.",
            hint="Unset it: the shop then uses the database that the platform starts.",
        )
    query(settings, TABLES)


def rows(settings: Settings, table: str, condition: str) -> list[tuple[object, ...]]:
    """Reads the rows of a table that satisfy a condition from the database itself."""
    return query(settings, f"{ROWS[table]} FROM {_ORIGINALS.get(table, table)} WHERE {condition}")


def connected(settings: Settings) -> AbstractContextManager[Connection]:
    """Opens a connection to the captured database, with the shop's tables.

    Raises:
        BadArgument: the database is not the supervised one.
        DatabaseUnreachable, StatementRefused: it ends meanwhile, or refuses a write.
    """
    create_tables(settings)
    return database_connection.connected(settings)


def _customer(number: int) -> Change:
    customer, dice = f"c{number:04}", random.Random(f"street {number}")
    row = {
        "customer": customer,
        "country": home_of(number),
        "street": _street(dice),
        "moved_at": f"{FIRST_DAY}T00:00:00Z",
        "mail": f"{customer}@{HOSTS[number % len(HOSTS)]}",
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
    """Yields the transactions of a shipment: packed within the hour, sometimes with a move; then sent, or cancelled."""
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

"""Declarations of a bank whose tables are captured, and the SQL that makes, fills and changes these."""

from __future__ import annotations

COLUMNS = {
    "name": "string",
    "balance": "decimal(20,4)",
    "exact": "string",
    "ratio": "double",
    "active": "boolean",
    "born": "date",
    "woke_at": "timestamp_ntz",
    "seen_at": "timestamp",
    "profile": "json",
    "photo": "binary",
    "tags": "array<string>",
    "scores": "array<int>",
    "big": "array<long>",
    "token": "string",
    "tokens": "array<string>",
    "mood": "string",
    "span": "string",
    "price": "decimal(19,2)",
    "slots": "string",
    "twice": "long",
}


def changes(table: str, columns: str, key: list[str]) -> str:
    return f'''\
"""Changes of a table."""
from twofold import changes_of, domain_of, personal

TOPIC = changes_of("public.{table}", columns={columns}, primary_key={key})
'''


def copy(table: str, kind: str, columns: list[str], key: list[str]) -> str:
    """A table with the rows that another one has (`latest_rows`), or had (`history`)."""
    name, of_changes = ("before", ["cdc_commit_lsn"]) if kind == "history" else ("now", [])
    return f'''\
"""The rows of a table of the database."""
from twofold import {kind}, table


@table(primary_key={key + of_changes}, recompute_by={key})
def {table}_{name}({table}):
    return {kind}({table}, key={key}, columns={columns})
'''


PAID = '{"id": "long", "paid_on": "date", "amount": "decimal(12,2)"}'
LET = """{
    "id": "long", "tenant": "string", "flat": "int", "mail": personal("tenant"), "letter": personal("tenant"),
    "mail_domain": domain_of("mail"),
}"""
FILES = {
    "bank/people.py": changes("people", str({"id": "long", **COLUMNS}), ["id"]),
    "bank/people_now.py": copy("people", "latest_rows", [*COLUMNS], ["id"]),
    "bank/people_before.py": copy("people", "history", ["name", "balance", "photo"], ["id"]),
    "bank/payments.py": changes("payments", PAID, ["id", "paid_on"]),
    "bank/payments_now.py": copy("payments", "latest_rows", ["amount"], ["id", "paid_on"]),
    "bank/payments_before.py": copy("payments", "history", ["amount"], ["id", "paid_on"]),
    "bank/tenants.py": changes("tenants", LET, ["id"]),
    "bank/tenants_now.py": copy("tenants", "latest_rows", ["tenant", "flat", "mail", "letter", "mail_domain"], ["id"]),
    "bank/orders.py": '''\
"""Orders of a service."""
from twofold import outbox_of

TOPIC = outbox_of(
    "public.outbox", schema={"basket": "long", "version": "long", "at": "timestamp"}, event_time="at"
)
''',
    "bank/orders_made.py": '''\
"""The orders, once each."""
from twofold import table


@table(primary_key=["event_id"], sequence_by=["version"])
def orders_made(orders):
    return orders.select("event_id", "basket", "version")
''',
}
LARGE = "(SELECT string_agg(md5((i + random())::text), '') FROM generate_series(1, 200) i)"
"""Stored out of line, so that an update of another column does not bring it along."""
MANY = "(SELECT array_agg((random() * 1e9)::{0}) FROM generate_series(1, 3000))"


def people(first: int, last: int) -> str:
    """Rows with a value of every type, the large ones large enough to be stored out of line."""
    return f"""
    INSERT INTO people SELECT n, 'name ' || n || {LARGE}, n * 1.5, n / 3.0, n / 7.0::float8, n % 2 = 0,
        date '1970-01-01' + n * 37 - 9000, timestamp '1969-12-31 23:59:59.999999' + n * interval '1 day 1 us',
        timestamptz '1965-03-04 05:06:07.000008+09' + n * interval '1 hour', jsonb_build_object('a', {LARGE}, 'n', 1.5),
        convert_to({LARGE}, 'UTF8'), ARRAY['x', {LARGE}, NULL], {MANY.format("int")}, {MANY.format("bigint")},
        gen_random_uuid(), (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 300)), 'happy',
        n * interval '1 year 1 month -1 day 2 hours 1 us', n + 0.25,
        tstzrange('2020-01-01 00:00+02', '2021-01-01 00:00+02')
    FROM generate_series({first}, {last}) n;
    """


def tenants(first: int, last: int) -> str:
    """Tenants with a mail address, and a letter that is stored out of line."""
    return f"""
    INSERT INTO tenants SELECT n, 't' || n % 3, n, 'Secret.' || n || '@Example-' || n % 2 || '.org', {LARGE},
        'of Secret.' || n
    FROM generate_series({first}, {last}) n;
    """


def order(basket: int | str, after: str = "", end: str = "COMMIT") -> str:
    """A transaction of the service: the next order of a basket, and the event that says so."""
    return f"""
    BEGIN;
    UPDATE baskets SET version = version + 1 WHERE id = {basket};
    INSERT INTO orders SELECT id, version FROM baskets WHERE id = {basket};
    INSERT INTO outbox (aggregatetype, aggregateid, type, payload) SELECT 'basket', id, 'ordered',
        jsonb_build_object('basket', id, 'version', version, 'at', clock_timestamp(), 'note', NULL,
            'tags', ARRAY[]::int[])
        FROM baskets WHERE id = {basket};
    {after}
    {end};
    """


MARKS = {
    "people": ("INSERT INTO people (id) VALUES ({0});", '{{"id":{0}}}'),
    "payments": ("INSERT INTO payments VALUES ({0}, '2019-01-01', 0);", '{{"id":{0},"paid_on":17897}}'),
    "tenants": ("INSERT INTO tenants (id) VALUES ({0});", '{{"id":{0}}}'),
    "orders": ("INSERT INTO baskets VALUES ({0}, 0);" + order("{0}"), "{0}"),
}
"""Topic -> SQL that commits a row of this number, and the key of its record."""
SCHEMA = f"""
CREATE TYPE mood AS ENUM ('happy', 'sad');
CREATE TABLE people (id bigint PRIMARY KEY, name text, balance numeric(20,4), exact numeric, ratio float8,
    active boolean, born date, woke_at timestamp, seen_at timestamptz, profile jsonb, photo bytea, tags text[],
    scores int[], big bigint[], token uuid, tokens uuid[], mood mood, span interval, price money, slots tstzrange,
    twice bigint GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE payments (id bigint, paid_on date, amount numeric(12,2), PRIMARY KEY (id, paid_on))
    PARTITION BY RANGE (paid_on);
CREATE TABLE payments_2019 PARTITION OF payments FOR VALUES FROM ('2019-01-01') TO ('2020-01-01');
CREATE TABLE payments_2020 PARTITION OF payments FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
INSERT INTO payments SELECT n, date '2019-06-01' + n, n FROM generate_series(1, 400) n;
CREATE TABLE tenants (id bigint PRIMARY KEY, tenant text, flat int, mail text, letter text, note text);
CREATE TABLE baskets (id bigint PRIMARY KEY, version bigint);
INSERT INTO baskets SELECT n, 0 FROM generate_series(1, 5) n;
CREATE TABLE orders (basket bigint, version bigint, PRIMARY KEY (basket, version));
CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,
    aggregateid text NOT NULL, type text NOT NULL, payload jsonb NOT NULL);
{order(1)} {people(1, 20)} {tenants(1, 6)}
"""

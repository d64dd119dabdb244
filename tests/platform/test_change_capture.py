"""Tables of a real PostgreSQL, captured by Debezium in Kafka Connect, equal the database's own rows."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from kafka import KafkaProducer

from batch.audit.database_audit import ComparedTable, compare_with_database
from batch.audit.hash_buckets import Turn
from batch.capture import recapture
from batch.capture.complete_through import complete_through
from batch.capture.lost_changes import changes_fault
from infra.capture import debezium_connector, kafka_connect
from infra.capture.captured_table import Capture
from infra.duckdb_session import query
from infra.errors import BadArgument, CaptureFailed, ProcessFailed, TwofoldError
from infra.kafka import broker as kafka
from infra.kafka import topic_admin
from infra.kafka.topic_admin import ensure_topics
from infra.keys.key_store import KeyStore, make_keys
from infra.keys.reader import Reader
from infra.postgres import postgres_server
from infra.postgres.database_connection import connected
from infra.process import supervisor
from infra.settings import ROOT, Settings
from streaming.ingest.ingest_query import Ingest
from tables.declare.registry import Registry, load
from tables.declare.sources.captured_topic import captures
from tables.refresh.events.topic_specs import specs
from tests.harness.tiers import this_run
from tests.servers import wait_until
from tests.support.captured_database import captured_database
from tests.support.sql_script import run_script, statements
from tests.tables.declared import written
from tests.worlds import World
from traffic import shop_database, shop_source
from traffic.expected import expected_tables
from traffic.table_diff import compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = ("people_now", "people_before")
KILLS = this_run.kills or 3
SEED = this_run.seed

pytestmark = [pytest.mark.platform, pytest.mark.spark, pytest.mark.timeout(1_200 + 60 * KILLS)]

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
FILES = {
    "bank/people.py": f'''\
"""Changes of the people."""
from tables import changes_of

TOPIC = changes_of("public.people", columns={{"id": "long", **{COLUMNS!r}}}, primary_key=["id"])
''',
    "bank/people_now.py": f'''\
"""The people, as the database has them."""
from tables import latest_rows, table


@table(primary_key=["id"], recompute_by=["id"])
def people_now(people):
    return latest_rows(people, key=["id"], columns={list(COLUMNS)!r})
''',
    "bank/people_before.py": '''\
"""The people, as the database had them."""
from tables import history, table


@table(primary_key=["id", "cdc_commit_lsn"], recompute_by=["id"])
def people_before(people):
    return history(people, key=["id"], columns=["name", "balance", "photo"])
''',
    "bank/payments.py": '''\
"""Changes of the payments."""
from tables import changes_of

TOPIC = changes_of(
    "public.payments",
    columns={"id": "long", "paid_on": "date", "amount": "decimal(12,2)"},
    primary_key=["id", "paid_on"],
)
''',
    "bank/orders.py": '''\
"""Orders of a service."""
from tables import outbox_of

TOPIC = outbox_of(
    "public.outbox", schema={"basket": "long", "version": "long", "at": "timestamp"}, event_time="at"
)
''',
    "bank/orders_made.py": '''\
"""The orders, once each."""
from tables import table


@table(primary_key=["event_id"], sequence_by=["version"])
def orders_made(orders):
    return orders.select("event_id", "basket", "version")
''',
    "bank/payments_before.py": '''\
"""The payments, as the database had them."""
from tables import history, table


@table(primary_key=["id", "paid_on", "cdc_commit_lsn"], recompute_by=["id", "paid_on"])
def payments_before(payments):
    return history(payments, key=["id", "paid_on"], columns=["amount"])
''',
    "bank/tenants.py": '''\
"""Changes of the tenants."""
from tables import changes_of, domain_of, personal

TOPIC = changes_of(
    "public.tenants",
    columns={
        "id": "long",
        "tenant": "string",
        "flat": "int",
        "mail": personal("tenant"),
        "letter": personal("tenant"),
        "mail_domain": domain_of("mail"),
    },
    primary_key=["id"],
)
''',
    "bank/tenants_now.py": '''\
"""The tenants, as the database has them."""
from tables import latest_rows, table


@table(primary_key=["id"], recompute_by=["id"])
def tenants_now(tenants):
    return latest_rows(tenants, key=["id"], columns=["tenant", "flat", "mail", "letter", "mail_domain"])
''',
    "bank/payments_now.py": '''\
"""The payments, as the database has them."""
from tables import latest_rows, table


@table(primary_key=["id", "paid_on"], recompute_by=["id", "paid_on"])
def payments_now(payments):
    return latest_rows(payments, key=["id", "paid_on"], columns=["amount"])
''',
}
SCHEMA = """
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
"""
AS_JSON = """
SELECT row_to_json(t) FROM (SELECT id, name, balance::text, exact::text, ratio, active, born::text,
    to_char(woke_at, 'YYYY-MM-DD"T"HH24:MI:SS.US') AS woke_at,
    to_char(seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') AS seen_at,
    profile::text, translate(encode(photo, 'base64'), E'\\n', '') AS photo, tags, scores, big, token, tokens, mood,
    span::text, price::numeric::text AS price, slots::text, twice
    FROM people ORDER BY id) t;
"""
LARGE = "(SELECT string_agg(md5((i + random())::text), '') FROM generate_series(1, 200) i)"
MANY = "(SELECT array_agg((random() * 1e9)::{0}) FROM generate_series(1, 3000))"


def insert(first: int, last: int) -> str:
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


def order(basket: int, after: str = "", end: str = "COMMIT") -> str:
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


def let(first: int, last: int) -> str:
    """Tenants with a mail address, and a letter that is stored out of line."""
    return f"""
    INSERT INTO tenants SELECT n, 't' || n % 3, n, 'Secret.' || n || '@Example-' || n % 2 || '.org', {LARGE},
        'of Secret.' || n
    FROM generate_series({first}, {last}) n;
    """


@contextlib.contextmanager
def relaying(database: Database, *arguments: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Runs a relay, that of the bank unless arguments name one; yields what kills it and starts another one."""
    own = ("tests.intake.own_relay", str(database.declared), "bank")
    command = [sys.executable, "-m", *(arguments or own)]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        for relay in running:
            relay.kill()
            relay.wait()
        running.append(subprocess.Popen(command, env={**os.environ, **database.settings.environment()}, cwd=ROOT))
        return running[-1]

    start()
    try:
        yield start
    finally:
        running[-1].terminate()
        running[-1].wait()


class Database:
    """The database of a test, with its capture."""

    def __init__(self, settings: Settings, registry: Registry, declared: Path) -> None:
        self.settings, self.registry, self.declared = settings, registry, declared
        self.orders, self.payments, self.capture, self.tenants = captures(registry)
        self._marks = 0

    def run(self, *script: str) -> list[tuple[Any, ...]]:
        return run_script(self.settings, "\n".join(script))

    def rows(self) -> list[dict[str, Any]]:
        return [row for (row,) in self.run(AS_JSON)]

    def wait_captured(self) -> None:
        """Return when the log has all that was committed: a row of its own comes last."""
        self._marks -= 1
        self.run(f"INSERT INTO people (id) VALUES ({self._marks})")
        self._wait_last(self.capture.topic, f'{{"id":{self._marks}}}')

    def wait_paid(self) -> None:
        """As `wait_captured`, of the payments."""
        self._marks -= 1
        self.run(f"INSERT INTO payments VALUES ({self._marks}, '2019-01-01', 0)")
        self._wait_last(self.payments.topic, f'{{"id":{self._marks},"paid_on":17897}}')

    def wait_ordered(self) -> None:
        """As `wait_captured`, of the orders."""
        self._marks -= 1
        self.run(f"INSERT INTO baskets VALUES ({self._marks}, 0);", order(self._marks))
        self._wait_last(self.orders.topic, str(self._marks))

    def wait_encrypted(self) -> None:
        """As `wait_captured`, of the tenants, whose relay runs."""
        self._marks -= 1
        self.run(f"INSERT INTO tenants (id) VALUES ({self._marks})")
        self._wait_last(self.tenants.topic, f'{{"id":{self._marks}}}')

    def _wait_last(self, topic: str, key: str) -> None:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.settings.bootstrap_servers, enable_auto_commit=False)
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])

        def is_there() -> bool:
            end = consumer.end_offsets([partition])[partition]
            consumer.seek(partition, max(0, end - 5))  # marks may have come since
            while consumer.position(partition) < end:
                found = consumer.poll(timeout_ms=500)
                if not found or key.encode() in [record.key for records in found.values() for record in records]:
                    return bool(found)
            return False

        try:
            wait_until(is_there)
        finally:
            consumer.close()


def records_of(database: Database, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Key and value of each record."""
    from kafka import KafkaConsumer, TopicPartition

    consumer, partition = KafkaConsumer(bootstrap_servers=database.settings.bootstrap_servers), TopicPartition(topic, 0)
    with contextlib.closing(consumer):
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end, found = consumer.end_offsets([partition])[partition], list[tuple[bytes | None, bytes]]()
        while consumer.position(partition) < end:
            for record in consumer.poll(timeout_ms=500).get(partition, []):
                found.append((record.key, record.value or b""))
    return found


def kill(settings: Settings, program: str) -> None:
    """Kill a server, and return when its next process is there."""
    pid = next(p.pid for p in supervisor.state(settings) if p.name == program)
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: next(p for p in supervisor.state(settings) if p.name == program).pid not in (pid, None))


@pytest.fixture(scope="module")
def database(broker: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """PostgreSQL and Kafka Connect under supervision, with a table of twenty rows, which is captured."""
    folder = written(tmp_path_factory.mktemp("tables"), FILES)
    registry = load(folder)
    schema = SCHEMA + order(1) + insert(1, 20) + let(1, 6)
    with captured_database(broker, registry, "capture", schema) as settings:
        make_keys(settings)
        found = Database(settings, registry, folder)
        found.wait_captured()
        yield found


@pytest.fixture(scope="module")
def world(database: Database, spark: SparkSession) -> World:
    return World(spark, database.settings, domain="bank", registry=database.registry)


def ingest(world: World, *names: str) -> None:
    """Bring these tables up to date with the log."""
    Ingest(world.spark, world.lake, world.registry, "bank").start(available_now=True).awaitTermination()
    world.maintain(names)


def captured(world: World, name: str) -> list[dict[str, Any]]:
    """The rows of the table, written as the database writes them as JSON."""
    rows = sorted(world.rows(name).to_pylist(), key=lambda row: row["id"])
    for row in rows:
        for name in ("balance", "born", "price"):
            row[name] = row[name] if row[name] is None else str(row[name])
        for name in ("woke_at", "seen_at"):
            time = row[name] and (row[name].astimezone(UTC) if row[name].tzinfo else row[name])
            row[name] = time and time.replace(tzinfo=None).isoformat(timespec="microseconds")
        row["photo"] = row["photo"] and base64.b64encode(row["photo"]).decode()
    return rows


def require_equal(world: World, database: Database) -> None:
    """The table holds the database's rows; intervals, which two systems write in two ways, are compared by it."""
    assert changes_fault(world.lake, database.capture.topic) == ""
    expected, found = database.rows(), captured(world, f"{database.capture.topic}_now")
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    spans = ", ".join(f"({row['id']}, {row['span']!r})" for row in found if row["span"] is not None)
    same = f"(VALUES {spans}) AS found (id, span) USING (id) WHERE people.span::text = found.span::interval::text"
    assert database.run(f"SELECT count(*) FROM people JOIN {same};") == database.run("SELECT count(span) FROM people;")
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.pop("span") is None) == (theirs.pop("span") is None)
        differing = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
        assert not differing, f"row {theirs['id']}: {str(differing)[:2000]}"


def test_a_snapshot_and_the_changes_after_it_equal_the_database(database: Database, world: World) -> None:
    """Real servers, and streams that are started three times over rows of 100 kB: up to a minute."""
    ingest(world, *PEOPLE)
    require_equal(world, database)

    database.run(
        insert(21, 30),
        "UPDATE people SET active = NOT active, balance = balance + 1 WHERE id <= 25;",  # large values do not travel
        "BEGIN; UPDATE people SET name = 'short' WHERE id = 3;",
        "UPDATE people SET name = 'shorter' WHERE id = 3; COMMIT;",
        "BEGIN; UPDATE people SET name = 'never' WHERE id = 4; DELETE FROM people WHERE id = 5; ROLLBACK;",
        "DELETE FROM people WHERE id IN (6, 7, 22);",
        "INSERT INTO people (id, name) VALUES (7, 'back');",
        "UPDATE people SET photo = NULL, tags = '{}', scores = NULL WHERE id = 8; UPDATE people SET mood = 'sad';",
    )
    database.wait_captured()
    ingest(world, *PEOPLE)
    require_equal(world, database)

    database.run(
        "ALTER TABLE people REPLICA IDENTITY FULL;",
        "UPDATE people SET id = id + 1000 WHERE id IN (9, 10); UPDATE people SET active = true WHERE id = 1009;",
        "ALTER TABLE people ADD COLUMN later text DEFAULT 'unknown'; UPDATE people SET later = 'x' WHERE id = 11;",
    )
    database.wait_captured()
    ingest(world, *PEOPLE)
    require_equal(world, database)
    [kept] = [r["_rest"] for r in world.rows("bank.people").to_pylist() if r["id"] == 11 and r["_rest"]]
    assert json.loads(kept) == {"later": "x"}
    assert not [r for result in world.reconcile(PEOPLE, verify=True) for r in [result.unexplained] if r]


def test_a_partitioned_table_is_captured_as_one(database: Database, world: World) -> None:
    """With its snapshot, and rows that move from one partition to another."""
    database.run(
        "UPDATE payments SET paid_on = date '2020-05-05' WHERE id <= 50; DELETE FROM payments WHERE id % 7 = 0;",
        "CREATE TABLE payments_2021 PARTITION OF payments FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');",
        "INSERT INTO payments VALUES (1000, '2021-06-06', 1.25);",
    )
    database.wait_paid()
    ingest(world, "payments_now")
    expected = database.run("SELECT id, paid_on, amount FROM payments;")
    assert payments(world, "bank.payments_now") == sorted(expected)
    assert len(expected) > 300
    assert changes_fault(world.lake, database.payments.topic) == ""
    assert debezium_connector.state(database.settings, database.payments).fault == ""
    assert audited(world, database.payments).fault == ""


@pytest.mark.prove
def test_a_detached_partition_is_reported_until_a_recapture(database: Database, world: World) -> None:
    """No change says that its row is gone; the connector, the slot and the marks go on. Another snapshot is made."""
    settings, topic = database.settings, world.registry.topics[database.payments.topic]
    of_2021 = "PARTITION OF payments FOR VALUES FROM ('2021-01-01') TO ('2022-01-01')"
    database.run(
        f"CREATE TABLE IF NOT EXISTS payments_2021 {of_2021};",
        "INSERT INTO payments VALUES (1000, '2021-06-06', 1.25) ON CONFLICT DO NOTHING;",
    )
    database.wait_paid()
    ingest(world, "payments_now")
    assert debezium_connector.state(settings, database.payments).fault == ""
    database.run("ALTER TABLE payments DETACH PARTITION payments_2021;")
    assert "payments_2021 was detached" in debezium_connector.state(settings, database.payments).fault
    found = audited(world, database.payments)
    assert found.extra == ["id=1000, paid_on=2021-06-06"]
    assert found.rows == len(database.run("SELECT 1 FROM payments;"))
    database.payments = recapture.begin(settings, world.lake, database.payments)
    debezium_connector.wait_snapshot(settings, database.payments, 60)
    database.wait_paid()
    ingest(world, "payments_now")
    assert recapture.finish(settings, world.lake, topic, database.payments) == 1
    database.wait_paid()
    ingest(world, "payments_now")
    assert payments(world, "bank.payments_now") == sorted(database.run("SELECT id, paid_on, amount FROM payments;"))
    assert debezium_connector.state(settings, database.payments).fault == ""
    assert audited(world, database.payments).fault == ""


def audited(world: World, capture: Capture) -> ComparedTable:
    """What an audit finds of a captured table, while the stream takes in its changes."""
    with ThreadPoolExecutor() as pool:
        topic = world.registry.topics[capture.topic]
        found = pool.submit(compare_with_database, world.lake, topic, capture, Turn())
        while not found.done():
            Ingest(world.spark, world.lake, world.registry, "bank").start(available_now=True).awaitTermination()
        return found.result()


def require_orders_once(world: World, database: Database) -> None:
    """Each committed order has its event, each event its order, in the order of commits for each basket."""
    expected = database.run("SELECT * FROM orders ORDER BY 1, 2;")
    events = sorted(world.rows(database.orders.topic).to_pylist(), key=lambda event: event["_offset"])
    first = list({event["event_id"]: event for event in reversed(events)}.values())[::-1]
    assert sorted(((e["basket"], e["version"]) for e in first), key=lambda event: event[0]) == expected
    made = world.rows(f"{database.orders.topic}_made").to_pylist()
    assert sorted((row["basket"], row["version"]) for row in made) == expected


def test_events_of_an_outbox_are_records_of_their_topic(database: Database, world: World) -> None:
    """Also of a row that was there before, and of those that are deleted at once; not of what did not happen."""
    database.run(
        order(1, "DELETE FROM outbox;"),
        order(2),
        order(2, end="ROLLBACK"),
        "UPDATE outbox SET payload = '{}'; TRUNCATE outbox;",
        order(3),
    )
    database.wait_ordered()
    ingest(world, "orders_made")
    require_orders_once(world, database)
    [event] = [row for row in world.rows(database.orders.topic).to_pylist() if row["basket"] == 3]
    assert (event["event_type"], event["aggregate_type"], event["aggregate_id"]) == ("ordered", "basket", "3")
    assert json.loads(event["_rest"]) == {"note": None, "tags": []}
    assert debezium_connector.state(database.settings, database.orders).fault == ""
    with pytest.raises(CaptureFailed, match=r"no column aggregatetype, aggregateid, type, payload; expected id, "):
        debezium_connector.ensure(database.settings, replace(database.orders, table="public.payments"))


@pytest.mark.prove
def test_an_outbox_is_captured_again_without_a_second_event(database: Database, world: World) -> None:
    topic = world.registry.topics[database.orders.topic]
    database.run(order(4))
    database.wait_ordered()
    again = recapture.begin(replace(database.settings, slot_failover="on"), world.lake, database.orders)
    debezium_connector.wait_snapshot(database.settings, again, 60)
    ingest(world, "orders_made")
    recapture.wait_ingested(database.settings, world.lake, topic)
    assert recapture.finish(database.settings, world.lake, topic, again) == 0
    assert debezium_connector.known(database.settings, database.orders) == [again]
    slots = database.run("SELECT slot_name, failover FROM pg_replication_slots;")
    assert {("twofold_2_bank_orders", True), ("twofold_1_bank_people", False)} < {*slots}
    database.orders = again
    database.wait_ordered()
    ingest(world, "orders_made")
    require_orders_once(world, database)
    ids = world.rows(topic.full_name)["event_id"].to_pylist()
    assert len(set(ids)) < len(ids)


def test_history_holds_each_committed_row_and_its_time(database: Database, world: World) -> None:
    database.run("INSERT INTO people (id, name) VALUES (5001, 'a'); UPDATE people SET name = 'b' WHERE id = 5001;")
    database.run(
        "BEGIN; UPDATE people SET name = 'c' WHERE id = 5001; UPDATE people SET name = 'd' WHERE id = 5001; COMMIT;"
    )
    database.run("DELETE FROM people WHERE id = 5001;")
    database.run("INSERT INTO people (id, name) VALUES (5001, 'e');")
    database.wait_captured()
    ingest(world, "people_before")
    rows = [r for r in world.rows("bank.people_before").to_pylist() if r["id"] == 5001]
    rows.sort(key=lambda row: row["valid_from"])
    assert [row["name"] for row in rows] == ["a", "b", "d", "e"]
    assert [row["is_current"] for row in rows] == [False, False, False, True]
    assert [row["valid_to"] for row in rows[:2]] == [row["valid_from"] for row in rows[1:3]]
    assert rows[2]["valid_to"] < rows[3]["valid_from"]
    current = {r["id"]: r["name"] for r in world.rows("bank.people_before").to_pylist() if r["is_current"]}
    assert current == {row["id"]: row["name"] for row in database.rows()}


PHOTOGRAPH = f"""
BEGIN;
LOCK TABLE people, payments IN SHARE MODE;
SELECT concat_ws('|', 'person', id, balance) FROM people;
SELECT concat_ws('|', 'payment', id, paid_on, amount) FROM payments;
{debezium_connector.WRITE_MARK};
COMMIT;
"""
AT_MARKS = """
WITH held AS (
    SELECT *, concat_ws('|', 'person', id, balance) AS line FROM people
    UNION ALL BY NAME SELECT *, amount AS balance, concat_ws('|', 'payment', id, paid_on, amount) AS line FROM payments
)
SELECT lsn, sum(balance)::VARCHAR AS total, list(line ORDER BY line) AS lines
FROM marks JOIN held ON valid_from_lsn < lsn AND (valid_to_lsn IS NULL OR valid_to_lsn >= lsn)
GROUP BY lsn ORDER BY lsn DESC
"""


@pytest.mark.prove
def test_tables_are_joined_at_one_place_in_the_log(database: Database, world: World) -> None:
    """Amounts move between two tables, which two connectors capture: no mark shows half of a transfer."""
    dice, stopped = random.Random(SEED), threading.Event()

    def transfer(worker: int) -> None:
        while not stopped.is_set():
            database.run(
                f"BEGIN; UPDATE people SET balance = balance - {worker} WHERE id = {dice.randrange(13, 20)};",
                f"UPDATE payments SET amount = amount + {worker} WHERE id = {91 + worker};",
                dice.choice(["COMMIT;", "COMMIT;", "ROLLBACK;"]),
            )

    workers = [threading.Thread(target=transfer, args=(n,)) for n in (1, 2, 3)]
    for worker in workers:
        worker.start()
    photographs = []
    for _ in range(4):
        photographs.append([line for (line,) in database.run(PHOTOGRAPH)])
        for _ in range(10):
            database.run(f"{debezium_connector.WRITE_MARK};")
    # Amounts go on to change, and no lock is taken: what is right is not reported.
    assert [audited(world, one).fault for one in (database.capture, database.payments)] == ["", ""]
    stopped.set()
    for worker in workers:
        worker.join()
    sums = "(SELECT sum(balance) FROM people) + (SELECT sum(amount) FROM payments)"
    [(total,)] = database.run(f"SELECT ({sums})::text;")
    database.wait_captured()
    database.wait_paid()
    ingest(world, "people_before", "payments_before")

    columns = {"people": ["id", "balance"], "payments": ["id", "paid_on", "amount"]}
    tables = {
        name: world.rows(f"bank.{name}_before").select([*kept, "valid_from_lsn", "valid_to_lsn"])
        for name, kept in columns.items()
    }
    through = complete_through(
        world.lake, world.registry, [world.registry.find_table(f"{name}_before") for name in tables]
    )
    events = world.rows(database.capture.topic).select(["cdc_op", "cdc_lsn"]).to_pylist()
    marks = pa.table({"lsn": sorted({event["cdc_lsn"] for event in events if event["cdc_op"] == "mark"})})
    # A later mark may be in one of the topics.
    held = [row for row in query(AT_MARKS, marks=marks, **tables).to_pylist() if row["lsn"] <= through.lsn]
    assert held[0]["lsn"] == through.lsn
    for *rows, end in photographs:
        high, low = end.split("/")
        at = next(n for n, row in enumerate(held) if row["lsn"] == (int(high, 16) << 32) + int(low, 16))
        assert held[at]["lines"] == sorted(rows)
        assert {row["total"] for row in held[: at + 1]} == {total}
    assert len({str(row["lines"]) for row in held}) > 20
    with pytest.raises(BadArgument, match=r"bank\.orders_made reads bank\.orders, which is no topic of changes"):
        complete_through(world.lake, world.registry, [world.registry.find_table("orders_made")])


def revealed_tenants(world: World, database: Database) -> list[tuple[Any, ...]]:
    """The rows of the copy, with what is personal in the clear."""
    rows = sorted(world.rows("bank.tenants_now").to_pylist(), key=lambda row: row["id"])
    with contextlib.closing(KeyStore(database.settings)) as store:
        reader = Reader(store, "test")
        mails, letters = (reader.values([row[name] for row in rows])[0] for name in ("mail", "letter"))
    return [
        (row["id"], row["tenant"], row["flat"], mail, letter, row["mail_domain"])
        for row, mail, letter in zip(rows, mails, letters, strict=True)
    ]


TENANTS = """
SELECT id, tenant, flat, mail, letter, lower(split_part(mail, '@', 2)) FROM tenants ORDER BY id;
"""


def test_values_of_persons_are_encrypted_behind_the_connector(database: Database, world: World) -> None:
    """Of a snapshot, of rows before and after changes, and of undeclared columns; the relay is killed once."""
    with relaying(database) as restart:
        database.wait_encrypted()
        database.run(
            let(7, 20),
            "UPDATE tenants SET flat = flat + 1;",  # letters do not travel
            "ALTER TABLE tenants REPLICA IDENTITY FULL;",
            "UPDATE tenants SET mail = 'Secret.new@Example-9.org' WHERE id = 3; DELETE FROM tenants WHERE id = 4;",
        )
        restart()
        database.run("UPDATE tenants SET id = id + 100, tenant = 't9' WHERE id = 5; UPDATE tenants SET note = mail;")
        database.wait_encrypted()
        ingest(world, "tenants_now")
        assert revealed_tenants(world, database) == database.run(TENANTS)
        assert changes_fault(world.lake, database.tenants.topic) == ""
        assert audited(world, database.tenants).fault == ""
    values = [value for _, value in records_of(database, database.tenants.topic)]
    assert len(values) > 60
    assert not [value for value in values if b"Secret" in value]
    kept = topic_admin.offsets(database.settings, [database.tenants.written_topic])[database.tenants.written_topic][0]
    assert kept.earliest > 60, "what the topic has is removed from the intake"


@pytest.mark.prove
def test_a_recapture_waits_for_the_relay(database: Database, world: World) -> None:
    topic = world.registry.topics[database.tenants.topic]
    database.run("INSERT INTO tenants (id, tenant) VALUES (900, 't1');")
    with relaying(database):
        database.wait_encrypted()
        ingest(world, "tenants_now")
    database.tenants = recapture.begin(database.settings, world.lake, database.tenants)
    debezium_connector.wait_snapshot(database.settings, database.tenants, 60)
    with pytest.raises(ProcessFailed, match="The relay is at offset"):
        recapture.wait_ingested(database.settings, world.lake, topic, stalled_s=0.5)
    with relaying(database):
        with ThreadPoolExecutor() as pool:
            waits = pool.submit(recapture.wait_ingested, database.settings, world.lake, topic)
            while not waits.done():
                ingest(world, "tenants_now")
            waits.result()
        assert recapture.finish(database.settings, world.lake, topic, database.tenants) == 0
        database.wait_encrypted()
        ingest(world, "tenants_now")
        assert revealed_tenants(world, database) == database.run(TENANTS)


def payments(world: World, name: str, where: str = "true") -> list[tuple[Any, ...]]:
    """Rows of a table of payments, in order."""
    sql = f"SELECT id, paid_on, amount FROM rows WHERE {where} ORDER BY ALL"
    return [tuple(row.values()) for row in query(sql, rows=world.rows(name)).to_pylist()]


def signal_snapshot(database: Database) -> None:
    """Have Debezium read the payments again while it streams, as an administrator may."""
    asked = {"type": "INCREMENTAL", "data-collections": [database.payments.table]}
    database.run(f"INSERT INTO signals VALUES (gen_random_uuid(), 'execute-snapshot', '{json.dumps(asked)}');")


@pytest.mark.prove
def test_an_incremental_snapshot_by_a_signal_changes_no_table(database: Database, world: World) -> None:
    """The connector is given a table of signals by hand, and loses it when the platform configures it next."""
    settings, capture = database.settings, database.payments
    reader = f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{capture.name}';"
    before = [(None,), *database.run(reader)]
    database.run("CREATE TABLE signals (id text PRIMARY KEY, type text, data text);")
    database.run(f'ALTER PUBLICATION "{capture.name}" ADD TABLE signals;')
    signals = {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "50"}
    path = f"/connectors/{capture.name}/config"
    kafka_connect.ask(settings, "PUT", path, {**debezium_connector.configuration(settings, capture), **signals})
    wait_until(lambda: database.run(reader)[0] not in before)
    database.run("UPDATE payments SET amount = amount + 1 WHERE id % 2 = 0;")
    database.wait_paid()
    rows = sorted(database.run("SELECT id, paid_on, amount FROM payments;"))
    signal_snapshot(database)

    def is_read() -> bool:
        ingest(world, "payments_now")
        return len(payments(world, capture.topic, "cdc_snapshot = 0")) >= len(rows)

    wait_until(is_read)
    assert sorted(payments(world, capture.topic, "cdc_snapshot = 0")) == rows
    assert sorted(payments(world, "bank.payments_now")) == rows
    assert changes_fault(world.lake, capture.topic) == ""

    signal_snapshot(database)
    for n in range(12):
        database.run(
            f"UPDATE payments SET amount = {n} WHERE id % 3 = {n % 3}; DELETE FROM payments WHERE id % 29 = {n};"
        )
    database.wait_paid()
    debezium_connector.ensure(settings, capture)
    assert "signal.data.collection" not in kafka_connect.ask(settings, "GET", path)
    database.run(f'ALTER PUBLICATION "{capture.name}" DROP TABLE signals;')
    database.wait_paid()
    ingest(world, "payments_now")
    assert sorted(payments(world, "bank.payments_now")) == sorted(
        database.run("SELECT id, paid_on, amount FROM payments;")
    )


def changing(dice: random.Random, first: int) -> str:
    """A transaction of a few changes: of small and large values, of keys, of rows that are there or not."""
    key = dice.randrange(13, 40)
    changes = [
        f"INSERT INTO people (id, name, balance, photo) VALUES ({first}, 'w', 1, convert_to({LARGE}, 'UTF8'))",
        f"UPDATE people SET balance = balance + 1 WHERE id % 7 = {key % 7}",
        f"UPDATE people SET name = {LARGE} WHERE id = {key}",
        f"UPDATE people SET id = {first + 1} WHERE id = {first - dice.randrange(10)}",
        f"DELETE FROM people WHERE id = {dice.choice([key, first - dice.randrange(10)])}",
    ]
    chosen = dice.sample(changes, dice.randrange(1, len(changes) + 1))
    return f"BEGIN; {'; '.join(chosen)}; {dice.choice(['COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK'])};"


ENDS = ["COMMIT", "COMMIT", "ROLLBACK"]


def serve(database: Database, stopped: threading.Event, seed: int) -> None:
    """Runs a service that takes orders and loses its connections, mostly in the midst of a transaction."""
    dice = random.Random(seed)
    while not stopped.is_set():
        orders = "".join(
            order(dice.randrange(1, 6), dice.choice(["DELETE FROM outbox;", ""]), dice.choice(ENDS))
            for _ in range(dice.randrange(5, 40))
        )
        script = statements(orders)
        # A connection that is lost looks the same to the database as one whose process was killed.
        with contextlib.suppress(TwofoldError), connected(database.settings) as connection:
            for statement in script[: dice.randrange(len(script))]:
                connection.execute(statement)
                stopped.wait(dice.uniform(0, 0.004))
        stopped.wait(0.1)


@pytest.mark.prove
@pytest.mark.kills
def test_changes_survive_killed_servers(database: Database, world: World, broker: Settings) -> None:
    """Each server starts again, and Connect waits until it knows that the killed worker is gone: up to a minute."""
    database.run("ALTER TABLE people REPLICA IDENTITY FULL;")
    dice = random.Random(SEED)
    stopped = threading.Event()

    def load_until_stopped(worker: int) -> None:
        own = random.Random(SEED + worker)
        first = 100_000 * worker
        while not stopped.is_set():
            first += 10
            with contextlib.suppress(TwofoldError):  # killed: what was committed is in the database
                database.run(changing(own, first))
            # The longer it takes, the less at a time: a slot that holds more than the limit of WAL is lost.
            stopped.wait(own.uniform(0, 0.03 * KILLS))

    workers = [threading.Thread(target=load_until_stopped, args=(n,)) for n in (1, 2)]
    workers += [threading.Thread(target=serve, args=(database, stopped, SEED + n)) for n in (3, 4)]
    for worker in workers:
        worker.start()
    servers = [(database.settings, kafka_connect.NAME), (database.settings, postgres_server.NAME), (broker, kafka.NAME)]
    try:
        for _ in range(-(-KILLS // len(servers))):
            for settings, program in dice.sample(servers, len(servers)):
                stopped.wait(dice.uniform(0, 4))
                kill(settings, program)
            kafka.wait_ready(broker)
            ingest(world, "people_now", "orders_made")
    finally:
        stopped.set()
        for worker in workers:
            worker.join()
    postgres_server.wait_ready(database.settings)
    kafka_connect.wait_ready(database.settings)
    for capture in (database.capture, database.orders):
        debezium_connector.ensure(database.settings, capture)
    database.wait_captured()
    database.wait_ordered()
    ingest(world, "people_now", "orders_made")
    require_equal(world, database)
    require_orders_once(world, database)
    print(f"orders={len(world.rows('bank.orders_made'))} records={len(world.rows(database.orders.topic))}")


@pytest.mark.kills
def test_a_large_transaction_is_captured_whole(database: Database, world: World) -> None:
    """Of a million rows where there is time for it."""
    rows = 1_000_000 if this_run.tier == "chaos" else 30_000
    debezium_connector.ensure(database.settings, database.payments)
    database.run(
        f"INSERT INTO payments SELECT n, date '2019-01-01' + n % 700, n FROM generate_series(10000, {10_000 + rows}) n;"
    )
    kill(database.settings, kafka_connect.NAME)
    kafka_connect.wait_ready(database.settings)
    debezium_connector.ensure(database.settings, database.payments)
    database.wait_paid()
    ingest(world, "payments_now")
    found = world.rows("bank.payments_now")
    total = len(found), sum(found["amount"].to_pylist())
    assert [total] == database.run("SELECT count(*), sum(amount) FROM payments;")
    assert changes_fault(world.lake, database.payments.topic) == ""


def test_columns_that_change_in_mid_stream_are_followed_or_reported(database: Database, world: World) -> None:
    database.run(
        "ALTER TABLE people REPLICA IDENTITY FULL;",
        "ALTER TABLE people ALTER COLUMN balance TYPE numeric(30,4), ALTER COLUMN active TYPE boolean;",
        "UPDATE people SET balance = 9999999999999999.9999 WHERE id = 12;",
    )
    database.wait_captured()
    ingest(world, "people_now")
    require_equal(world, database)
    before = {row["id"]: row["mood"] for row in database.rows()}
    database.run(
        "ALTER TABLE people RENAME COLUMN mood TO spirit; UPDATE people SET spirit = 'happy' WHERE id = 12;",
        "ALTER TABLE people RENAME COLUMN spirit TO mood; UPDATE people SET mood = 'sad' WHERE id = 12;",
        "UPDATE people SET balance = balance * 10 WHERE id = 12;",
        "UPDATE people SET photo = convert_to(repeat('large', 500000), 'UTF8') WHERE id = 11;",
    )
    database.wait_captured()
    ingest(world, "people_now")
    found = {row["id"]: row["mood"] for row in captured(world, "bank.people_now")}
    assert {id_: found[id_] for id_ in before} == {**before, 12: "sad"}
    [kept] = [r["_rest"] for r in world.rows("bank.people").to_pylist() if r["cdc_missing"] == "mood"]
    assert json.loads(kept)["spirit"] == "happy"
    assert "lack changes that were refused: 2" in changes_fault(world.lake, database.capture.topic)
    reasons = str(world.rows(f"{database.capture.topic}_quarantine")["reasons"].to_pylist())
    assert "at `balance`" in reasons
    # A row that is too large is refused by its topic, and stops no connector.
    assert "bytes: expected at most 1048576" in reasons
    assert debezium_connector.state(database.settings, database.capture).fault == ""
    database.run("UPDATE people SET balance = 0, photo = NULL WHERE id IN (11, 12);")


def capture_again(world: World, database: Database) -> int:
    """What the command `recapture` does, with streams that are started by hand; how many rows were gone."""
    settings, topic = database.settings, world.registry.topics[database.capture.topic]
    database.capture = recapture.begin(settings, world.lake, database.capture)
    assert "is not finished" in debezium_connector.state(settings, database.capture).fault
    debezium_connector.wait_snapshot(settings, database.capture, 60)
    with pytest.raises(ProcessFailed, match="the snapshot ends before"):
        recapture.wait_ingested(settings, world.lake, topic, stalled_s=0.5)

    with ThreadPoolExecutor() as pool:  # marks go on to come, also while a slow machine takes in those before
        waits = pool.submit(recapture.wait_ingested, settings, world.lake, topic)
        while not waits.done():
            ingest(world, *PEOPLE)
        waits.result()
    gone = recapture.finish(settings, world.lake, topic, database.capture)
    assert debezium_connector.known(settings, database.capture) == [database.capture]
    database.wait_captured()
    ingest(world, *PEOPLE)
    assert debezium_connector.state(settings, database.capture).fault == ""
    assert debezium_connector.undeclared_slots(settings, captures(world.registry)) == []
    require_equal(world, database)
    current = {r["id"]: r["name"] for r in world.rows("bank.people_before").to_pylist() if r["is_current"]}
    assert current == {row["id"]: row["name"] for row in database.rows()}
    return gone


def test_a_truncated_table_is_captured_again(database: Database, world: World) -> None:
    there = len(database.rows())
    database.run("TRUNCATE people;", insert(3, 5))
    database.wait_captured()
    ingest(world, *PEOPLE)
    # Two of the columns that changed, the update that took the large row away, with what it was, and the truncation.
    assert "lack changes that were refused: 4" in changes_fault(world.lake, database.capture.topic)
    assert "was truncated" in str(world.rows(f"{database.capture.topic}_quarantine")["reasons"].to_pylist())
    assert there - 3 <= capture_again(world, database) <= there


@pytest.mark.prove
def test_a_lost_slot_stops_the_capture_until_the_table_is_captured_again(database: Database, world: World) -> None:
    """Connect starts again, a snapshot is made, and in the end all tables are verified: half a minute."""
    database.wait_captured()
    ingest(world, *PEOPLE)
    supervisor.stop_program(database.settings, kafka_connect.NAME)
    name = database.capture.name
    wait_until(
        lambda: database.run(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{name}'") == [(False,)]
    )
    database.run(f"SELECT pg_drop_replication_slot('{name}');")
    database.run("INSERT INTO people (id) VALUES (-100); UPDATE people SET mood = 'sad' WHERE id = 3;")
    database.run("DELETE FROM people WHERE id = 4;")
    supervisor.start_program(database.settings, kafka_connect.NAME)
    kafka_connect.wait_ready(database.settings)
    wait_until(lambda: debezium_connector.state(database.settings, database.capture).state == "FAILED")
    assert "may be lost" in debezium_connector.state(database.settings, database.capture).fault
    with pytest.raises(CaptureFailed, match="may be lost"):
        debezium_connector.ensure(database.settings, database.capture)
    topic = world.registry.topics[database.capture.topic]
    lost = compare_with_database(world.lake, topic, database.capture, Turn(), waits=False)
    assert (lost.missing, lost.different, lost.extra) == (["id=-100"], ["id=3: mood"], ["id=4"]), "a preview says it"
    assert capture_again(world, database) == 1
    ingest(world, *world.all_tables)
    rows = [r for r in world.rows("bank.people_before").to_pylist() if r["id"] in (3, 4)]
    assert [(r["id"], r["is_current"]) for r in rows if r["valid_to"] is None] == [(3, True)]
    assert not [r for result in world.reconcile(world.all_tables, verify=True) for r in [result.unexplained] if r]


@pytest.mark.prove
def test_a_capture_that_connect_forgot_is_not_begun_from_the_start(database: Database, world: World) -> None:
    """As where the broker was lost: the events are there, and the connector's place is not."""
    declared = captures(world.registry)[2]
    assert recapture.current(database.settings, world.lake, declared) == database.capture
    debezium_connector.remove(database.settings, database.capture.name)
    database.run("DELETE FROM people WHERE id = 5;")
    with pytest.raises(CaptureFailed, match="Kafka Connect knows no capture of it"):
        recapture.current(database.settings, world.lake, declared)
    assert capture_again(world, database) == 1


@pytest.mark.prove
def test_the_copies_of_a_shop_equal_its_database_and_its_history(database: Database, spark: SparkSession) -> None:
    """Two days of the shop's programs; both captures and the streams of four tables are started: up to a minute."""
    settings, declared = database.settings, load()
    viewed = declared.topics["shop.page_views"]
    topics = {name: topic for name, topic in declared.topics.items() if topic.domain == "shop" and topic.captures}
    topics[viewed.full_name] = viewed
    tables = {name: t for name, t in declared.tables.items() if declared.above(t).topics.keys() <= topics.keys()}
    shop = Registry(topics, tables)
    names = ("customers", "customer_history", "shipments", "shipped_to", "viewed_from")
    assert set(tables) == {f"shop.{name}" for name in names}
    days = date(2026, 3, 2), date(2026, 3, 4)
    ensure_topics(settings, specs(shop))
    shop_database.create_tables(settings)
    for capture in captures(shop):
        debezium_connector.ensure(settings, capture)
        debezium_connector.wait_snapshot(settings, capture, 60)
    with shop_database.connected(settings) as connection:
        for transaction in shop_database.transactions(*days):
            shop_database.commit(connection, transaction)
    views = [r for _, day in shop_source.records(*days) for r in day if isinstance(r, shop_source.PageView)]
    with contextlib.closing(KafkaProducer(bootstrap_servers=settings.bootstrap_servers)) as producer:
        for view in views:
            producer.send(view.topic, key=view.key.encode(), value=msgspec.json.encode(view))
    world = World(spark, settings, domain="shop", registry=shop)

    def is_copied() -> bool:
        Ingest(world.spark, world.lake, world.registry, "shop").start(available_now=True).awaitTermination()
        world.maintain(world.all_tables)
        return all(
            world.rows(f"shop.{name}").num_rows == len(shop_database.rows(settings, name))
            and compare(expected_tables.expected(f"shop.{name}", *days), world.rows(f"shop.{name}"), key).equal
            for name, key in (("customers", ["customer"]), ("shipments", ["shipment_id"]))
        )

    with relaying(database, "intake.relay", "shop"):
        wait_until(is_copied)
    for name, key in (("shop.shipped_to", ["shipment_id"]), ("shop.viewed_from", ["view_id"])):
        joined = compare(expected_tables.expected(name, *days), world.rows(name), key)
        assert joined.equal, joined.examples.to_pylist()
        assert joined.rows > 200
    changes = [change for t in shop_database.transactions(*days) for change in t.changes]
    streets = [(c.row["customer"], c.row["street"]) for c in changes if c.table == "customers" and "street" in c.row]
    history = world.rows("shop.customer_history").select(["customer", "street"]).to_pylist()
    # A login, which changes another column, begins no row; no customer of these days moves to where he is.
    assert sorted((row["customer"], row["street"]) for row in history) == sorted(streets)

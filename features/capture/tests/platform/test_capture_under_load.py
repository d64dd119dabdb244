"""Captured tables that many change at once: at marks, at an incremental snapshot, and while servers are killed."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.harness.tiers import this_run
from tests.servers import wait_until
from tests.support.bank_declarations import LARGE, order
from tests.support.captured_bank import Bank, kill
from tests.support.concurrent_writers import writing
from tests.support.sql_script import statements
from twofold.features.capture import debezium_connector, kafka_connect
from twofold.features.capture.complete_through import complete_through
from twofold.features.capture.log_marks import WRITE_MARK
from twofold.features.capture.tests.platform.required_copies import (
    PAYMENTS,
    payments,
    require_orders_once,
    require_payments,
    require_people,
)
from twofold.infra.duckdb_session import query
from twofold.infra.errors import BadArgument, TwofoldError
from twofold.infra.kafka import broker as kafka
from twofold.infra.postgres import postgres_server
from twofold.infra.postgres.database_connection import connected
from twofold.infra.project.settings import Settings

KILLS = this_run.kills or 3
SEED = this_run.seed

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.timeout(1_200 + 60 * KILLS)]

PHOTOGRAPH = f"""
BEGIN;
LOCK TABLE people, payments IN SHARE MODE;
SELECT concat_ws('|', 'person', id, balance) FROM people;
SELECT concat_ws('|', 'payment', id, paid_on, amount) FROM payments;
{WRITE_MARK};
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


def transfer(bank: Bank, dice: random.Random, amount: int, stopped: threading.Event) -> None:
    """Moves amounts from people to a payment."""
    while not stopped.is_set():
        bank.run(
            f"BEGIN; UPDATE people SET balance = balance - {amount} WHERE id = {dice.randrange(13, 20)};",
            f"UPDATE payments SET amount = amount + {amount} WHERE id = {91 + amount};",
            dice.choice(["COMMIT;", "COMMIT;", "ROLLBACK;"]),
        )


def histories(bank: Bank) -> dict[str, pa.Table]:
    columns = {"people": ["id", "balance"], "payments": ["id", "paid_on", "amount"]}
    return {
        name: bank.world.rows(f"bank.{name}_before").select([*kept, "valid_from_lsn", "valid_to_lsn"])
        for name, kept in columns.items()
    }


def test_tables_are_joined_at_one_place_in_the_log(bank: Bank) -> None:
    """Amounts move between two tables, which two connectors capture: no mark shows half of a transfer."""
    dice = random.Random(SEED)
    with writing(*(partial(transfer, bank, dice, amount) for amount in (1, 2, 3))):
        photographs = []
        for _ in range(4):
            photographs.append([line for (line,) in bank.run(PHOTOGRAPH)])
            for _ in range(10):
                bank.run(f"{WRITE_MARK};")
        # Amounts go on to change, and no lock is taken: what is right is not reported.
        assert [found.fault for found in bank.audited("people", "payments")] == ["", ""]
    sums = "(SELECT sum(balance) FROM people) + (SELECT sum(amount) FROM payments)"
    [(total,)] = bank.run(f"SELECT ({sums})::text;")
    bank.wait_captured("people", "payments")
    bank.take_in("people_before", "payments_before")

    tables = histories(bank)
    find = bank.registry.find_table
    through = complete_through(bank.lake, bank.registry, [find(f"{name}_before") for name in tables])
    marks = pa.table({"lsn": sorted({row["cdc_lsn"] for row in bank.rows("people") if row["cdc_op"] == "mark"})})
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
        complete_through(bank.lake, bank.registry, [find("orders_made")])


def signal_snapshot(bank: Bank) -> None:
    """Have Debezium read the payments again while it streams, as an administrator may."""
    asked = {"type": "INCREMENTAL", "data-collections": [bank.captures["payments"].table]}
    bank.run(f"INSERT INTO signals VALUES (gen_random_uuid(), 'execute-snapshot', '{json.dumps(asked)}');")


def test_an_incremental_snapshot_by_a_signal_changes_no_table(bank: Bank) -> None:
    """The connector is given a table of signals by hand, and loses it when the platform configures it next."""
    settings, capture = bank.settings, bank.captures["payments"]
    reader = f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{capture.name}';"
    before = [(None,), *bank.run(reader)]
    bank.run("CREATE TABLE signals (id text PRIMARY KEY, type text, data text);")
    bank.run(f'ALTER PUBLICATION "{capture.name}" ADD TABLE signals;')
    signals = {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "50"}
    path = f"/connectors/{capture.name}/config"
    kafka_connect.ask(settings, "PUT", path, {**debezium_connector.configuration(settings, capture), **signals})
    wait_until(lambda: bank.run(reader)[0] not in before)
    bank.run("UPDATE payments SET amount = amount + 1 WHERE id % 2 = 0;")
    bank.wait_captured("payments")
    rows = bank.run(PAYMENTS.format("payments", "true"))
    signal_snapshot(bank)

    def read() -> list[tuple[Any, ...]]:
        bank.take_in("payments_now")
        return payments(bank, "payments", "cdc_snapshot = 0")

    wait_until(lambda: len(read()) >= len(rows))
    assert payments(bank, "payments", "cdc_snapshot = 0") == rows
    assert payments(bank, "payments_now") == rows
    assert bank.lost("payments") == ""

    signal_snapshot(bank)
    for n in range(12):
        bank.run(f"UPDATE payments SET amount = {n} WHERE id % 3 = {n % 3}; DELETE FROM payments WHERE id % 29 = {n};")
    bank.wait_captured("payments")
    debezium_connector.ensure(settings, capture)
    assert "signal.data.collection" not in kafka_connect.ask(settings, "GET", path)
    bank.run(f'ALTER PUBLICATION "{capture.name}" DROP TABLE signals;')
    bank.wait_captured("payments")
    bank.take_in("payments_now")
    require_payments(bank)


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


def change_people(bank: Bank, worker: int, stopped: threading.Event) -> None:
    dice, first = random.Random(SEED + worker), 100_000 * worker
    while not stopped.is_set():
        first += 10
        with contextlib.suppress(TwofoldError):  # killed: what was committed is in the database
            bank.run(changing(dice, first))
        # The longer it takes, the less at a time: a slot that holds more than the limit of WAL is lost.
        stopped.wait(dice.uniform(0, 0.03 * KILLS))


def serve(bank: Bank, worker: int, stopped: threading.Event) -> None:
    """Runs a service that takes orders and loses its connections, mostly in the midst of a transaction."""
    dice = random.Random(SEED + worker)
    while not stopped.is_set():
        orders = [
            order(
                dice.randrange(1, 6),
                dice.choice(["DELETE FROM outbox;", ""]),
                dice.choice(["COMMIT", "COMMIT", "ROLLBACK"]),
            )
            for _ in range(dice.randrange(5, 40))
        ]
        script = statements("".join(orders))
        # A connection that is lost looks the same to the database as one whose process was killed.
        with contextlib.suppress(TwofoldError), connected(bank.settings) as connection:
            for statement in script[: dice.randrange(len(script))]:
                connection.execute(statement)
                stopped.wait(dice.uniform(0, 0.004))
        stopped.wait(0.1)


@pytest.mark.kills
def test_changes_survive_killed_servers(bank: Bank, broker: Settings) -> None:
    """Each server starts again, and Connect waits until it knows that the killed worker is gone: up to a minute."""
    bank.run("ALTER TABLE people REPLICA IDENTITY FULL;")
    dice, copies = random.Random(SEED), ("people_now", "orders_made")
    servers = [(bank.settings, kafka_connect.NAME), (bank.settings, postgres_server.NAME), (broker, kafka.NAME)]
    writers = [partial(change_people, bank, n) for n in (1, 2)] + [partial(serve, bank, n) for n in (3, 4)]
    with writing(*writers) as stopped:
        for _ in range(-(-KILLS // len(servers))):
            for settings, program in dice.sample(servers, len(servers)):
                stopped.wait(dice.uniform(0, 4))
                kill(settings, program)
            kafka.wait_ready(broker)
            bank.take_in(*copies)
    bank.ensure_captured()
    bank.wait_captured("people", "orders")
    bank.take_in(*copies)
    require_people(bank)
    require_orders_once(bank)
    print(f"orders={len(bank.rows('orders_made'))} records={len(bank.rows('orders'))}")

"""What happens to a captured table by the catalog alone is in no log: it is found by looking at the catalog."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.postgres import Server
from tests.support.sql_script import run_script
from twofold.features.capture.captured_table import Capture
from twofold.features.capture.catalog_changes import is_read_as, lost_since, to_note, unfit_table
from twofold.features.capture.debezium_connector import publish
from twofold.features.capture.table_catalog import CatalogColumn, CatalogTable, note_again, table_today
from twofold.infra.project.settings import Settings

PEOPLE = Capture(
    topic="bank.people", table="public.people", columns={"id": "long", "name": "string"}, primary_key=("id",)
)
PAYMENTS = Capture(
    topic="bank.payments", table="public.payments", columns={"id": "long", "year": "int"}, primary_key=("id", "year")
)
SCHEMA = """
CREATE TABLE people (id bigint PRIMARY KEY, name varchar(10), age int);
INSERT INTO people VALUES (1, 'a', 1), (2, 'b', 2);
CREATE TABLE payments (id bigint, year int, amount numeric, PRIMARY KEY (id, year)) PARTITION BY RANGE (year);
CREATE TABLE of_2019 PARTITION OF payments FOR VALUES FROM (2019) TO (2020);
CREATE TABLE of_2020 PARTITION OF payments FOR VALUES FROM (2020) TO (2021);
INSERT INTO payments VALUES (1, 2019, 1), (2, 2020, 2);
CREATE TABLE loaded (LIKE payments INCLUDING ALL);
INSERT INTO loaded VALUES (3, 2021, 3);
"""


@pytest.fixture
def database(postgres: Server) -> Settings:
    """Two tables, published as before their snapshots."""
    settings = postgres.with_tables(SCHEMA)
    for capture in (PEOPLE, PAYMENTS):
        publish(settings, capture)
    return settings


def looked_at(settings: Settings, capture: Capture) -> tuple[CatalogTable, CatalogTable | None]:
    found = table_today(settings, capture.table, capture.name)
    assert found
    return found


def lost(settings: Settings, capture: Capture) -> str:
    """What a look says, which notes what it saw when nothing is wrong."""
    today, noted = looked_at(settings, capture)
    found = lost_since(settings, capture, noted, today)
    if noted and not found and (now := to_note(noted, today)):
        note_again(settings, capture.name, now)
    return found


@pytest.mark.platform
@pytest.mark.parametrize(
    ("capture", "ddl", "expected"),
    [
        (
            PEOPLE,
            (
                "CREATE TABLE new (LIKE people INCLUDING ALL);"
                "ALTER TABLE people RENAME TO old; ALTER TABLE new RENAME TO people;"
            ),
            "is another table than the one that was captured",
        ),
        (
            PEOPLE,
            "DROP TABLE people; CREATE TABLE people (id bigint PRIMARY KEY, name text);",
            "is another table than the one that was captured",
        ),
        (
            PEOPLE,
            (
                "DROP TABLE people; CREATE TABLE people (id bigint PRIMARY KEY, name text);"
                'ALTER PUBLICATION "twofold_1_bank_people" ADD TABLE people;'
            ),
            "is another table than the one that was captured",
        ),
        (PEOPLE, "ALTER TABLE people RENAME TO old; ALTER TABLE old RENAME TO people;", "has its name again"),
        (
            PEOPLE,
            'ALTER PUBLICATION "twofold_1_bank_people" DROP TABLE people;',
            "is not in the publication twofold_1_",
        ),
        (
            PEOPLE,
            (
                "ALTER PUBLICATION \"twofold_1_bank_people\" SET (publish = 'insert');"
                "ALTER PUBLICATION \"twofold_1_bank_people\" SET (publish = 'insert, update, delete, truncate');"
            ),
            "was altered",
        ),
        (
            PEOPLE,
            'DROP PUBLICATION "twofold_1_bank_people"; CREATE PUBLICATION "twofold_1_bank_people" FOR TABLE people;',
            "was made again",
        ),
        (PEOPLE, "ALTER TABLE people ALTER name TYPE varchar(5) USING upper(name);", "was truncated or rewritten"),
        (PEOPLE, "ALTER TABLE people ALTER age TYPE bigint;", "was truncated or rewritten"),
        (PEOPLE, "TRUNCATE people; INSERT INTO people VALUES (3);", "was truncated or rewritten"),
        (PEOPLE, "ALTER TABLE people DROP name; ALTER TABLE people ADD name text;", "name of public.people was added"),
        (PEOPLE, "ALTER TABLE people DROP name;", "name of public.people was added, dropped or renamed"),
        (PAYMENTS, "ALTER TABLE payments DETACH PARTITION of_2019;", "of_2019 was detached from public.payments"),
        (PAYMENTS, "DROP TABLE of_2019, of_2020;", "of_2019, of_2020 was detached from public.payments, or dropped"),
        (
            PAYMENTS,
            (
                "ALTER TABLE payments DETACH PARTITION of_2019; UPDATE of_2019 SET amount = 7;"
                "ALTER TABLE payments ATTACH PARTITION of_2019 FOR VALUES FROM (2019) TO (2020);"
            ),
            "of_2019 was attached to public.payments",
        ),
        (
            PAYMENTS,
            "ALTER TABLE payments ATTACH PARTITION loaded FOR VALUES FROM (2021) TO (2022);",
            "loaded was attached to public.payments",
        ),
        (
            PAYMENTS,
            (
                "BEGIN; CREATE TABLE fresh (LIKE payments INCLUDING ALL); INSERT INTO fresh VALUES (4, 2021, 4);"
                "ALTER TABLE payments ATTACH PARTITION fresh FOR VALUES FROM (2021) TO (2022); COMMIT;"
            ),
            "fresh was attached to public.payments",
        ),
        (PAYMENTS, "TRUNCATE of_2019;", "of_2019 was truncated or rewritten"),
        (PAYMENTS, "BEGIN; TRUNCATE of_2019; INSERT INTO payments VALUES (1, 2019, 1); COMMIT;", "of_2019 was trunc"),
        (PAYMENTS, "ALTER TABLE payments ALTER amount TYPE numeric(9,2);", "was truncated or rewritten"),
    ],
)
def test_what_no_change_says_is_found_in_the_catalog(
    database: Settings, capture: Capture, ddl: str, expected: str
) -> None:
    assert lost(database, capture) == ""
    run_script(database, ddl)
    assert expected in lost(database, capture)
    assert expected in lost(database, capture)
    publish(database, capture)
    assert lost(database, capture) == ""


@pytest.mark.platform
@pytest.mark.parametrize(
    ("capture", "ddl"),
    [
        (PEOPLE, "VACUUM FULL people;"),
        (PEOPLE, "INSERT INTO people VALUES (3, 'c'); DELETE FROM people WHERE id = 1;"),
        (PEOPLE, "CLUSTER people USING people_pkey;"),
        (PEOPLE, "ALTER TABLE people ALTER name TYPE text; ALTER TABLE people ALTER age TYPE oid;"),
        (PEOPLE, "ALTER TABLE people ADD later int DEFAULT 7, ALTER name SET NOT NULL, DROP age;"),
        (PEOPLE, "ALTER TABLE people REPLICA IDENTITY FULL; CREATE INDEX ON people (name);"),
        (PEOPLE, "GRANT SELECT ON people TO PUBLIC; ANALYZE people;"),
        (PEOPLE, 'CREATE TABLE signals (id int); ALTER PUBLICATION "twofold_1_bank_people" ADD TABLE signals;'),
        (PAYMENTS, "CREATE TABLE of_2021 PARTITION OF payments (amount DEFAULT 1) FOR VALUES FROM (2021) TO (2022);"),
        (PAYMENTS, "ALTER TABLE payments ADD note text; ALTER TABLE payments ALTER amount SET NOT NULL;"),
        (PAYMENTS, "VACUUM FULL payments;"),
    ],
)  # fmt: skip
def test_what_changes_no_row_silently_is_no_fault(database: Settings, capture: Capture, ddl: str) -> None:
    assert lost(database, capture) == ""
    run_script(database, ddl)
    assert lost(database, capture) == ""


@pytest.mark.platform
def test_a_later_partition_that_is_dropped_is_found(database: Settings) -> None:
    run_script(database, "CREATE TABLE later PARTITION OF payments FOR VALUES FROM (2021) TO (2022);")
    assert lost(database, PAYMENTS) == ""
    run_script(database, "INSERT INTO payments VALUES (5, 2021, 5); DROP TABLE later;")
    assert lost(database, PAYMENTS).startswith("later was detached from public.payments, or dropped")


@pytest.mark.platform
def test_a_rewrite_of_an_empty_partition_is_no_fault_but_of_a_filled_one(database: Settings) -> None:
    run_script(database, "CREATE TABLE later PARTITION OF payments FOR VALUES FROM (2021) TO (2022);")
    assert lost(database, PAYMENTS) == ""
    run_script(database, "VACUUM FULL payments;")
    assert lost(database, PAYMENTS) == ""
    run_script(database, "INSERT INTO payments VALUES (5, 2021, 5); SELECT pg_stat_force_next_flush();")
    run_script(database, "TRUNCATE later;")
    assert lost(database, PAYMENTS).startswith("later was truncated or rewritten")


@pytest.mark.platform
def test_a_restored_or_another_database_is_found(database: Settings) -> None:
    today, noted = looked_at(database, PEOPLE)
    assert "is another one" in lost_since(database, PEOPLE, noted, replace(today, system="1"))
    restored = replace(today, timeline=today.timeline + 1)
    assert "was restored: its timeline is 2 in place of 1" in lost_since(database, PEOPLE, noted, restored)
    promoted = replace(database, slot_failover="on")
    assert lost_since(promoted, PEOPLE, noted, restored) == ""


@pytest.mark.platform
def test_rows_that_come_and_go_in_an_outbox_are_no_fault(database: Settings) -> None:
    outbox = replace(PAYMENTS, is_outbox=True, columns={}, primary_key=())
    run_script(database, "ALTER TABLE payments DETACH PARTITION of_2019; TRUNCATE of_2020;")
    assert lost(database, outbox) == ""


@pytest.mark.platform
@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("ALTER TABLE people DROP CONSTRAINT people_pkey;", "has no primary key: once it is captured, "),
        (
            "ALTER TABLE people DROP CONSTRAINT people_pkey; ALTER TABLE people ADD PRIMARY KEY (id, age);",
            "the primary key of public.people is id, age; declared is id",
        ),
        ("ALTER TABLE people REPLICA IDENTITY NOTHING;", "do not have the primary key of the row before"),
        (
            ("ALTER TABLE people DROP CONSTRAINT people_pkey;"
            "ALTER TABLE people ADD PRIMARY KEY (id) DEFERRABLE, REPLICA IDENTITY FULL;"),
            "is deferrable: two rows may have one key",
        ),
        ("ALTER TABLE people ALTER name TYPE bytea USING name::bytea;", "name is bytea in public.people, which is not"),
        ("ALTER TABLE people SET UNLOGGED;", "unlogged tables are not in the database's log"),
        ("CREATE TABLE child () INHERITS (people);", "child inherit from public.people"),
        ("CREATE UNIQUE INDEX by_age ON people (age); ALTER TABLE people REPLICA IDENTITY FULL;", None),
    ],
)  # fmt: skip
def test_a_table_that_is_not_as_declared_is_refused(database: Settings, ddl: str, expected: str | None) -> None:
    run_script(database, f'DROP PUBLICATION "{PEOPLE.name}"; {ddl}')
    found = [why for why, _ in unfit_table(PEOPLE, looked_at(database, PEOPLE)[0])]
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


@pytest.mark.parametrize(
    ("declared", "type", "expected"),
    [
        ("date", "date", True),
        ("date", "integer", False),
        ("int", "date", False),
        ("timestamp_ntz", "timestamp(3) without time zone", True),
        ("timestamp_ntz", "date", False),
        ("timestamp", "timestamp without time zone", False),
        ("timestamp_ntz", "timestamp with time zone", False),
        ("long", "time without time zone", True),
        ("long", "bigint", True),
        ("string", "bytea", False),
        ("binary", "text", False),
        ("binary", "bytea", True),
        ("json", "bytea", False),
        ("int", "bigint", True),
        ("string", "numeric(20,4)", True),
        ("int", "date[]", False),
    ],
)
def test_a_type_whose_values_look_like_others_is_not_read_as_them(declared: str, type: str, expected: bool) -> None:
    column = CatalogColumn(name="a", type=type, kind="b", not_null=False, is_virtual=False, key=None)
    assert is_read_as(declared, column) is expected

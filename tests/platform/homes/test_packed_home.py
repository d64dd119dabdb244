"""A home that the code of 28 November made is read by today's code: its tables, ledgers, plans, keys and secrets."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from tests.platform.homes.packed_home import Content, Facts, archive_of, content, mails_of, reader, scan_of, unpack
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.plan.code_changes import code_changes
from twofold.batch.plan.plan import Plans
from twofold.batch.plan.plan_text import markdown
from twofold.features.webhooks.webhook_topic import webhook_topics
from twofold.infra.airflow.airflow_processes import passwords
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.webhook_secrets import add_missing, read_secrets
from twofold.status.observer import Observer
from twofold.tables.declare.registry import load, running

pytestmark = pytest.mark.platform

HOME = archive_of("home_28_november")
FACTS = Facts.read(HOME)
OF_THIS_MACHINE = re.compile(rb"(?<![\w.~$}/-])/(?:home|root|Users|work|private)/\w")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The home, at another place and without its processes."""
    return unpack(HOME, tmp_path_factory.mktemp("unpacked") / "home")


def by_duckdb(settings: Settings, name: str, connection: DuckDBPyConnection) -> Content:
    return content(connection, scan_of(settings, name))


def by_the_platform(settings: Settings, name: str, connection: DuckDBPyConnection) -> Content:
    connection.register("rows", pa.table(Lake(settings).open(name).scan()))
    return content(connection, "FROM rows AS t")


@pytest.mark.parametrize("read", [by_duckdb, by_the_platform])
def test_each_table_has_the_rows_that_it_had(
    home: Settings, read: Callable[[Settings, str, DuckDBPyConnection], Content]
) -> None:
    names = Lake(home).names()
    assert len(names) > 50
    with reader() as connection:
        assert {name: read(home, name, connection) for name in names} == FACTS.tables


def test_nothing_is_asked_about(home: Settings) -> None:
    """Its declarations are those of the checkout, and so are the rules and how records are decoded."""
    registry = running(home)
    assert list(registry.domains) == ["flights", "shop"]
    assert [str(change) for change in code_changes(Lake(home), registry, registry.domains)] == []


def test_airflow_can_read_the_dags_that_it_has_stored(home: Settings) -> None:
    from airflow._shared.module_loading import qualname

    from twofold.dags.timetable_plugin import TwofoldTimetables

    [file] = (home.home / "airflow").glob("*.db")
    with closing(sqlite3.connect(file)) as database:
        stored = [row[0] for row in database.execute("SELECT coalesce(data, '') FROM serialized_dag")]
    named = {name for dag in stored for name in re.findall(r"[\w.]*day_partitions\.\w+", dag)}
    assert len(stored) > 50
    assert named, "some DAGs have a run for each day"
    assert named <= {qualname(timetable) for timetable in TwofoldTimetables.timetables}


def test_status_knows_its_rows(home: Settings) -> None:
    now = Observer(home, running(home)).snapshot(save=False)
    rows = {name: rows for name, (rows, _) in FACTS.tables.items()}
    assert {table.name: table.rows for table in now.tables} == {table.name: rows[table.name] for table in now.tables}
    assert {t.name: (t.events, t.quarantined) for t in now.topics} == {
        t.name: (rows[t.name], rows[t.name + QUARANTINE]) for t in now.topics
    }
    assert (now.open_gaps, now.removed) == ([], [])


def test_its_plans_are_listed_with_their_rows(home: Settings) -> None:
    plans = Plans(home)
    found = {(plan.command[0], plan.state(datetime.now(UTC))): plan for plan in plans.all()}
    assert set(found) == {("replay", "open"), ("replay", "published"), ("plan", "published"), ("rollback", "published")}
    with reader() as connection:
        for plan in found.values():
            assert plan.id in markdown(plan)
            assert plan.changed > 0
            for change in plan.changes:
                [[count]] = connection.execute(f"SELECT count(*) {plans.query(plan, change)}").fetchall()
                assert count == change.changed


def test_its_ledgers_name_what_was_published(home: Settings) -> None:
    ledgers = Ledgers(Lake(home))
    for plan in Plans(home).all():
        # What follows the changes of another table did so by itself.
        for change in plan.changes[:1] if plan.published_at else ():
            run = ledgers.newest_run(change.table, run=plan.run)
            assert run is not None, f"{plan.run} of {change.table}"
            assert (run["cause"], run["inserted"], run["updated"], run["deleted"]) == (
                change.cause,
                change.inserted,
                change.updated,
                change.deleted,
            )


def test_a_forgotten_person_stays_forgotten_and_another_one_is_read(home: Settings) -> None:
    assert all(mails and all("@" in mail for mail in mails) for mails in FACTS.mails.values())
    assert {customer: mails_of(home, customer) for customer in FACTS.mails} == FACTS.mails
    assert not any("@" in mail for mail in mails_of(home, FACTS.forgotten))


def test_its_secrets_are_those_that_it_was_made_with(home: Settings) -> None:
    topics = {topic.full_name for topic in webhook_topics(load())}
    before = home.webhook_secrets_file.read_text()
    add_missing(home, sorted(topics))
    assert home.webhook_secrets_file.read_text() == before
    assert set(read_secrets(home.webhook_secrets_file)) == topics
    stored = {file: file.read_text() for file in (home.home / "airflow" / "secrets").iterdir()}
    passwords(home)
    assert {file: file.read_text() for file in (home.home / "airflow" / "secrets").iterdir()} == stored
    assert stored


def test_no_file_of_it_names_a_place_of_the_machine_that_made_it(home: Settings) -> None:
    files = [path for path in home.home.rglob("*") if path.is_file()]
    assert len(files) > 1_000
    assert [str(path) for path in files if OF_THIS_MACHINE.search(path.read_bytes())] == []

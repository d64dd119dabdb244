"""Each kind of file of a home has a chore, or a reason why it is bounded or kept for good."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable
from fnmatch import fnmatchcase

import pytest

from docs.lines import GROUPS, files_of
from tests import ROOT
from twofold.batch.chores.upkeep import chores

CHORES = {
    "lake/*/*/_delta_log/*": "history",
    "lake/*/*/_change_data/*.parquet": "history orphans",
    "lake/*/*/*.parquet": "history orphans",
    "lake/ledger/*/*.parquet": "corrections refused_rows",
    "lake/_before/*": "copies",
    "lake/_copies/*": "copies",
    "lake/*/*/_history/*.draft": "drafts",
    "checkpoints/*/*.splits": "split_commits",
    "checkpoints/*": "checkpoints",
    "shadow/*": "shadows",
    "recovery/*": "shadows",
    "plans/*": "plans",
    "quality/results/*": "quality_results",
    "outputs/*": "undeclared refused_bodies",
    "search/*": "undeclared_indexes",
    "logs/airflow/*": "airflow",
    "logs/*.log*": "logs",
    "airflow/logs/*": "airflow",
    "airflow/airflow.db*": "airflow",
    "spark/*": "spark_scratch",
    "run/*.draft": "drafts",
}
"""Files of a home -> the chores that remove them."""
BOUNDED = {
    "lake/*/*/_history/*": "one file for each holder, and the floor",
    "checkpoints/*/*/*": "Spark keeps a hundred micro-batches",
    "checkpoints/*/*.definition": "one for each declared table",
    "checkpoints/*/*.fence": "one for each declared table, of earlier code",
    "progress/*": "one for each query",
    "quality/.*": "locks and marks of Great Expectations",
    "quality/suites/*": "one for each table",
    "quality/validations/*": "the newest runs of each table, by the check itself",
    "quality/docs/*": "pages of these runs",
    "run/*": "locks, and notes of tables, domains and tasks that are declared",
    "supervisor/*": "the commands of programs of today",
    "airflow/airflow.cfg": "settings",
    "airflow/migrated": "a version",
    "airflow/passwords.json": "users",
    "airflow/secrets/*": "keys",
    "connect/*": "settings and secrets of Kafka Connect",
    "keys/*": "keys of persons, and who has read them: kept for good",
    "kafka/log/*": "records, by the retention that topics declare",
    "kafka/*.properties": "settings",
    "tiered/*": "records, by the retention that topics declare",
    "database/*": "the database, which looks after itself; a slot that holds its log is a symptom",
    "journal/*": "of the demo, whose account reads all of it",
    "webhooks/first-received.sqlite*": "three days, by the receiver",
    "status.sqlite*": "series of bounded length, and the newest of each table; made again from the logs",
    "analytics.duckdb": "views",
    "sql_history": "a thousand lines",
    "database-password": "a secret",
    "webhook-secrets": "secrets",
    "domains": "names",
    "format": "a number",
    "ports.json": "numbers",
}
"""Other files of a home -> why they need no chore."""
MADE = [
    "airflow/logs/dag_processor/2026-11-29/dags-folder/generate_dags.py.log",
    "analytics.duckdb",
    "format",
    "keys/persons.sqlite",
    "lake/_before/20261129T000000.000000Z-replay/plant.hours/plant/hours/_delta_log/00000000000000000000.json",
    "lake/_copies/20261129T000000.000000Z-replay/plant/hours/part-0.parquet",
    "lake/plant/hours/_change_data/part-0.parquet",
    "lake/plant/hours/_history/floor.json",
    "logs/airflow/dag_id=flights.stream/run_id=1/task_id=watch/attempt=1.log",
    "logs/broker.log.1",
    "outputs/plant.hours.hours.queue.json",
    "outputs/plant.hours.hours.sqlite",
    "ports.json",
    "quality/docs/index.html",
    "recovery/plant.hours/checkpoints/plant/hours/metadata",
    "run/tasks/flights.stream.watch.json",
    "shadow/plant.hours/lake/plant/hours/part-0.parquet",
    "spark/blockmgr-1/0c/temp_shuffle",
    "spark/token",
    "sql_history",
    "supervisor/supervisord.conf",
    "webhooks/first-received.sqlite-wal",
]
"""Files that a packed home leaves out, or that it has not made."""


def unowned(names: Iterable[str]) -> list[str]:
    return [name for name in names if not any(fnmatchcase(name, pattern) for pattern in (*CHORES, *BOUNDED))]


@pytest.fixture(scope="module")
def packed() -> list[str]:
    """The files of a home in which both demos ran, and plans were published, taken back and left open."""
    with tarfile.open(ROOT / "tests" / "platform" / "homes" / "home_28_november.xz") as home:
        return [member.name for member in home if not member.isdir()]


def test_each_file_of_a_home_has_a_chore_or_a_bound(packed: list[str]) -> None:
    assert unowned([*packed, *MADE]) == []
    assert unowned(["new/kind.json", "lake.json"]) == ["new/kind.json", "lake.json"]


def test_no_chore_and_no_bound_is_of_files_that_there_are_not(packed: list[str]) -> None:
    drafts = ["lake/plant/hours/_history/floor.json.1.draft", "run/dags.json.1.draft", "checkpoints/plant/hours.splits"]
    names = [*packed, *MADE, *drafts]
    assert [p for p in (*CHORES, *BOUNDED) if not any(fnmatchcase(name, p) for name in names)] == []


def test_each_chore_of_a_file_is_one_and_each_one_has_files() -> None:
    named = {name for names in CHORES.values() for name in names.split()}
    assert {chore.__name__ for chore in chores()} - named == {"class_archives"}, "which is of the cache"
    assert named <= {chore.__name__ for chore in chores()}


def test_each_place_below_the_home_that_code_names_is_one_of_these() -> None:
    files = [path for parts in GROUPS.values() for part in parts for path in files_of(part)]
    named = {
        name
        for path in files
        for name in re.findall(r"(?:settings|self)\.home / \"([\w.-]+)\"", path.read_text("utf-8"))
    }
    owned = {pattern.partition("/")[0].rstrip("*") for pattern in (*CHORES, *BOUNDED)}
    assert len(named) > 12
    assert named - owned == set()

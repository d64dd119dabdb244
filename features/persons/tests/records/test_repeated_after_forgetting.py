"""A delivery repeated after its person was forgotten is the same record, though what is personal is null in it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.tables.declared import written
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.records.record_sealer import RecordSealer
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.acceptance import definition
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = {
    "bank/logins.py": '''\
        """Logins."""
        from twofold import Topic, domain_of, personal
        TOPIC = Topic(
            schema={
                "login_id": "long", "customer": "string", "at": "timestamp",
                "mail": personal("customer"), "mail_domain": domain_of("mail"),
            },
            event_time="at", message_key="customer", dedup_keys=["login_id"],
        )
        ''',
    "bank/by_domain.py": '''\
        """Logins by the domain of their address."""
        from twofold import F, table
        @table(primary_key=["mail_domain"], recompute_by=["mail_domain"])
        def by_domain(logins):
            return logins.groupBy("mail_domain").agg(F.count("*").alias("logins"))
        ''',
    "bank/by_hour.py": '''\
        """Logins by hour and domain."""
        from twofold import F, table
        @table(
            primary_key=["mail_domain", "hour"], event_time="hour", closes_at="closes_at", watermark="1 hour",
            recompute_by=["mail_domain"], depends_within="1 hour",
        )
        def by_hour(logins):
            counted = logins.groupBy("mail_domain", F.window("at", "1 hour")).agg(F.count("*").alias("logins"))
            hour = F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at")
            return counted.select("mail_domain", *hour, "logins")
        ''',
    "bank/by_customer.py": '''\
        """Logins by customer."""
        from twofold import F, table
        @table(primary_key=["customer"], recompute_by=["customer"])
        def by_customer(logins):
            return logins.groupBy("customer").agg(F.count("*").alias("logins"))
        ''',
}
TABLES = ["by_domain", "by_hour"]


def declared(folder: Path) -> Registry:
    return load(written(folder, FILES)).require_sound()


def record(number: int, customer: str, minute: int) -> dict[str, Any]:
    at = f"2026-11-27T{10 + minute // 60}:{minute % 60:02}:00Z"
    return {"login_id": number, "customer": customer, "at": at, "mail": f"{customer}@b.c"}


def counts(world: World, table: str) -> dict[Any, int]:
    """Domain -> logins."""
    found: dict[Any, int] = {}
    for row in world.rows(f"bank.{table}").to_pylist():
        found[row["mail_domain"]] = found.get(row["mail_domain"], 0) + row["logins"]
    return found


@pytest.mark.parametrize("by_spark", [False, True], ids=["in this process", "by Spark"])
def test_a_delivery_repeated_after_its_person_was_forgotten_counts_once(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_spark: bool
) -> None:
    """While its row is open, after it has closed, and in a new computation of all."""
    if by_spark:
        monkeypatch.setattr("twofold.tables.refresh.refresh.SEARCHED", -1)
        monkeypatch.setattr("twofold.tables.refresh.refresh.COMPARED", 0)
    world = World(spark, settings, "bank", declared(tmp_path / "declared"))
    make_keys(settings)
    with closing(KeyStore(settings)) as store:
        sealer = RecordSealer(world.registry.topics["bank.logins"], store)

        def append(*records: dict[str, Any]) -> None:
            world.append({"logins": [sealer.seal(json.dumps(one).encode()) or b"" for one in records]})
            world.maintain(TABLES)

        ann, bob, cid = record(1, "ann", 0), record(2, "bob", 1), record(3, "cid", 2)
        append(ann, bob, cid)
        store.forget(Person("customer", "ann"), 0)
        append(ann, record(4, "ann", 3))  # the second one is new: it counts, of no domain
        assert counts(world, "by_domain") == counts(world, "by_hour") == {"b.c": 3, None: 1}
        append(record(5, "bob", 600))
        store.forget(Person("customer", "bob"), 0)
        append(bob, record(6, "bob", 601))
    results = world.reconcile(TABLES, verify=True)
    assert [result.unexplained for result in results] == [0] * len(results)
    assert counts(world, "by_domain") == counts(world, "by_hour") == {"b.c": 4, None: 2}


def test_only_tables_grouped_by_what_ends_have_another_identity_of_records(tmp_path: Path) -> None:
    plain = {**FILES, "bank/logins.py": FILES["bank/logins.py"].replace('domain_of("mail")', '"string?"')}
    one, other = declared(tmp_path / "one"), load(written(tmp_path / "other", plain)).require_sound()
    differing = [
        name.removeprefix("bank.")
        for name, table in one.tables.items()
        if definition(table, one) != definition(other.tables[name], other)
    ]
    assert sorted(differing) == ["by_domain", "by_hour"]

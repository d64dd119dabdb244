"""Records of every shape and with nulls at every depth: ingested, corrected, replayed, rebuilt, as by DuckDB."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests import rewrites
from tests.plant import START
from tests.tables.declared import written
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.plan.rebuild_table import rebuild_in_shadow
from twofold.batch.rewrite import replay
from twofold.infra.project.settings import Settings
from twofold.streaming.rebuild.reingest import reingest
from twofold.tables.declare.registry import load
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPIC = "hub.pushes"
FILES = {
    "hub/pushes.py": '''\
        """Pushes of commits."""
        from twofold import Topic, field, header, key

        TOPIC = Topic(
            schema={
                "id": "string",
                "at": "timestamp",
                "payload": "struct<n: long, parts: array<struct<sha: string, size: decimal(12,3)?, "
                "local: timestamp_ntz?, who: struct<name: string?, icon: binary?>?>>?>?",
                "labels": "map<string,double?>?",
                "price": "decimal(12,3)?",
                "extra": "json?",
                "login": field("actor.login", "string?"),
                "stars": field("repository.counts.stars", "long", default=0),
                "sent_by": key("string"),
                "trace": header("trace", "string?"),
            },
            event_time="at",
            message_key="sent_by",
            dedup_keys=["id"],
            unknown_fields="keep",
        )
    ''',
    "hub/each.py": '''\
        """Each push as it is."""
        from twofold import table


        @table(primary_key=["id", "at"], event_time="at", recompute_by=["id"])
        def each(pushes):
            return pushes
    ''',
    "hub/parts.py": '''\
        """Each commit of a push."""
        from twofold import F, table


        @table(primary_key=["id", "at", "nth"], event_time="at", recompute_by=["id"])
        def parts(pushes):
            return pushes.select("id", "at", F.posexplode("payload.parts").alias("nth", "part"))
    ''',
    "hub/hours.py": '''\
        """Pushes of each hour."""
        from twofold import F, table


        @table(watermark="1 hour")
        def hours(pushes):
            greatest = F.max(F.struct("price", F.col("labels")["a"].alias("a"), "payload.parts"))
            return pushes.groupBy("stars", F.window("at", "1 hour")).agg(
                F.sum("price").alias("total"), F.count("payload.parts").alias("n"), greatest.alias("greatest")
            ).select(
                "stars", F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at"),
                "total", "n", "greatest",
            )
    ''',
}

WHO = {"name": "Ann", "icon": "AAH/"}
PART = {"sha": "f00", "size": 1.250, "local": "2012-12-31T10:00:00.000001", "who": WHO}
WHOLE: dict[str, Any] = {
    "payload": {"n": 1, "parts": [PART, {"sha": "f01", "url": "u"}]},
    "labels": {"b": 2.5, "a": 1},
    "price": "10.005",
    "extra": {"deep": [1, {"er": None}], "exact": "EXACT"},
    "actor": {"login": "ann", "id": 7},
    "repository": {"counts": {"stars": 3}},
}
SENT: list[tuple[float, dict[str, Any]]] = [
    (0.1, WHOLE),
    (0.2, {}),
    (0.3, dict.fromkeys(WHOLE)),
    (0.4, {**WHOLE, "payload": {"n": 2, "parts": None}, "labels": {}, "price": -0.5, "extra": [], "actor": {}}),
    (0.5, {**WHOLE, "payload": {"n": 3, "parts": []}, "labels": {"a": None}, "repository": {"counts": None}}),
    (0.6, {**WHOLE, "payload": {"n": 4, "parts": [{**PART, "who": None}, {**PART, "who": {"name": None}}]}}),
    (2.0, {**WHOLE, "payload": {"n": 5, "parts": [{**PART, "size": None, "local": None, "who": {}}]}, "more": [0]}),
]
LATE = (0.7, {**WHOLE, "price": 99, "payload": {"n": 6, "parts": [{**PART, "size": "0.001"}]}})
LAST = (9.0, WHOLE)
BY_DUCKDB = {
    "rests": """
        SELECT j->>'id', j->>'$.actor.id', j->>'$.payload.parts[1].url', j->>'$.more[0]' FROM sent""",
    "each": """
        SELECT j->>'id', (j->>'$.payload.n')::BIGINT, json_array_length(nullif(j->'$.payload.parts', 'null')),
        j->>'$.payload.parts[0].sha', (j->>'$.payload.parts[0].size')::DECIMAL(12,3)::VARCHAR,
        (j->>'$.payload.parts[0].local')::TIMESTAMP::VARCHAR, j->>'$.payload.parts[1].who.name',
        hex(from_base64(j->>'$.payload.parts[0].who.icon')), (j->>'$.labels.a')::DOUBLE,
        json_array_length(json_keys(nullif(j->'labels', 'null'))), (j->>'price')::DECIMAL(12,3)::VARCHAR,
        nullif(j->'extra', 'null')::VARCHAR, j->>'$.actor.login',
        coalesce((j->>'$.repository.counts.stars')::BIGINT, 0),
        'key', 't1' FROM sent""",
    "parts": """
        SELECT j->>'id', nth, part->>'sha', (part->>'size')::DECIMAL(12,3)::VARCHAR, part->>'$.who.name' FROM (
            SELECT j, unnest(range(0, len(parts))) AS nth, unnest(parts) AS part
            FROM (SELECT j, (nullif(j->'$.payload.parts', 'null'))::JSON[] AS parts FROM sent))""",
    "hours": """
        SELECT coalesce((j->>'$.repository.counts.stars')::BIGINT, 0) AS stars,
        time_bucket(INTERVAL 1 HOUR, (j->>'at')::TIMESTAMPTZ)::VARCHAR, sum((j->>'price')::DECIMAL(12,3))::VARCHAR,
        count(nullif(j->'$.payload.parts', 'null')), max((j->>'price')::DECIMAL(12,3))::VARCHAR,
        FROM sent WHERE (j->>'at')::TIMESTAMPTZ < TIMESTAMPTZ '2013-01-01T08:00:00Z' GROUP BY ALL""",
}
OF_TABLES = {
    "rests": """
        SELECT id, _rest->>'$.actor.id', _rest->>'$.payload.parts.1.url', _rest->>'$.more[0]' FROM made""",
    "each": """
        SELECT id, payload.n, len(payload.parts), payload.parts[1].sha, payload.parts[1].size::VARCHAR,
        payload.parts[1].local::VARCHAR, payload.parts[2].who.name, hex(payload.parts[1].who.icon), labels['a'],
        cardinality(labels), price::VARCHAR, (extra::JSON->'$')::VARCHAR, login, stars,
        sent_by, trace FROM made""",
    "parts": "SELECT id, nth, part.sha, part.size::VARCHAR, part.who.name FROM made",
    "hours": """
        SELECT stars, hour::VARCHAR, total::VARCHAR, n, greatest.price::VARCHAR FROM made
        WHERE hour < TIMESTAMPTZ '2013-01-01T08:00:00Z'""",
}
COMPARED = [("pushes", "each"), ("pushes", "rests"), ("each", "each"), ("parts", "parts"), ("hours", "hours")]
"""Tables, and what of each is compared."""


def push(number: int, at: float, fields: dict[str, Any]) -> bytes:
    moment = START + timedelta(hours=at)
    text = json.dumps({"id": f"p{number}", "at": moment.isoformat(), **fields}, separators=(",", ":"))
    return text.replace('"EXACT"', "1.10").encode()  # no number of Python has two digits there


def require_equal_to_duckdb(world: World, values: list[bytes]) -> None:
    """Every table, and the events, hold what DuckDB reads in the raw records."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("raw", pa.table({"value": [value.decode() for value in values]}))
        connection.execute("CREATE TABLE sent AS SELECT DISTINCT value::JSON AS j FROM raw")
        for name, part in COMPARED:
            connection.register("made", world.rows(f"hub.{name}"))
            found = connection.sql(OF_TABLES[part]).fetchall()
            assert sorted(found, key=str) == sorted(connection.sql(BY_DUCKDB[part]).fetchall(), key=str), (name, part)


def test_nested_records_stay_exact_through_their_whole_life(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three micro-batches of three tables, two reconciles, a replay and rebuilds, each compared with DuckDB."""
    world = World(spark, settings, "hub", load(written(tmp_path, FILES)))
    values = [push(n, *one) for n, one in enumerate([*SENT, LAST, LATE])]
    headers = [("trace", b"t1")]
    world.append({TOPIC: values[:4]}, headers)
    world.maintain(world.all_tables)
    world.append({TOPIC: values[4:8]}, headers)
    world.maintain(world.all_tables)
    world.append({TOPIC: values[8:]}, headers)
    world.maintain(world.all_tables)

    outcomes = {outcome.table: outcome for outcome in world.reconcile(world.all_tables)}
    assert (outcomes["hub.hours"].updated, outcomes["hub.hours"].changed) == (1, 1)
    [(_, late)] = Ledgers(world.lake).evidence("hub.hours")
    assert late.offset == 8
    require_equal_to_duckdb(world, values)

    texts = {row["extra"] for row in world.rows("hub.each").to_pylist()}
    assert texts == {'{"deep":[1,{"er":null}],"exact":1.10}', "[]", None}  # which DuckDB rounds to 1.1

    monkeypatch.setattr(replay, "Log", lambda platform, topics: world)
    platform = Platform(spark, world.lake, world.registry)
    wrong = {"payload": "named_struct('n', 7, 'parts', null)", "labels": "null", "extra": "'{}'", "_replayed": "true"}
    DeltaTable(world.lake.uri(TOPIC)).update(updates=wrong, predicate="_offset IN (0, 5)")
    into, *_ = rewrites.replay(platform, world.registry.topics[TOPIC])
    assert (into.updated, into.changed) == (2, 2)
    require_equal_to_duckdb(world, values)
    assert [o for o in world.reconcile(world.all_tables) if o.changed] == []

    for name in ("each", "parts", "hours"):
        shadow = rebuild_in_shadow(platform, world.registry.find_table(f"hub.{name}"), world, reingest)
        assert rewrites.promote(shadow).changed == 0, name

"""Holds the journal of what the broker acknowledged against what the events and quarantine tables have."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import duckdb
import pyarrow as pa

from twofold.demo.traffic import ack_journal
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.lost_offsets import gaps

COMPARED = """
    WITH known AS (
        SELECT topic, partition, "offset", count(*) AS times, any_value(kind) AS kind, any_value(key) AS key,
            any_value(crc) AS crc
        FROM acknowledged GROUP BY ALL
    ), kept AS (
        SELECT topic, partition, "offset", count(*) AS times, any_value(side) AS side, any_value(key) AS key,
            any_value(crc) AS crc
        FROM stored GROUP BY topic, partition, "offset"
    )
    SELECT CASE
        WHEN known.times > 1 THEN 'acknowledged twice'
        WHEN known.times IS NULL THEN 'never acknowledged'
        WHEN kept.times IS NULL AND NOT EXISTS (
            FROM lost WHERE lost.topic = known.topic AND lost.partition = known.partition
                AND known."offset" >= lost.start AND known."offset" < lost."end"
        ) THEN 'missing'
        WHEN kept.times > 1 THEN 'twice'
        WHEN kept.side <> if(known.kind LIKE 'corrupt:%', 'quarantine', 'events') THEN 'on the wrong side'
        WHEN kept.key <> known.key THEN 'under another key'
        WHEN kept.crc <> known.crc THEN 'of other bytes'
        END AS fault
    FROM known FULL JOIN kept USING (topic, partition, "offset")
    WHERE fault IS NOT NULL
"""


def faults(settings: Settings, domain: str = "flights") -> Counter[str]:
    """What is wrong -> of how many records.

    Nothing when events + quarantine are the journal, each offset once, but for those that the ledger names as lost.
    """
    connection = duckdb.connect()
    connection.register("acknowledged", ack_journal.load(*ack_journal.files(settings, domain)))
    lake = Lake(settings)
    sides = [side for topic in load().domain_topics(domain) for side in (_events(lake, topic), _bad(lake, topic))]
    connection.register("stored", pa.concat_tables(sides))
    known = [(gap.topic, gap.partition, gap.start, gap.end) for gap in gaps(lake)]
    names = ("topic", "partition", "start", "end")
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    columns = [pa.array([gap[n] for gap in known], kind) for n, kind in enumerate(types)]
    connection.register("lost", pa.table(columns, names=names))
    return Counter(fault for (fault,) in connection.sql(COMPARED).fetchall())


def _events(lake: Lake, topic: Topic) -> pa.Table:
    rows = pa.table(lake.open(topic.full_name).scan(columns=["_partition", "_offset", topic.message_key]))
    return _side(topic, "events", rows, rows[topic.message_key].to_pylist(), [None] * len(rows))


def _bad(lake: Lake, topic: Topic) -> pa.Table:
    rows = pa.table(lake.open(topic.full_name + QUARANTINE).scan())
    keys = [key.decode() for key in rows["key"].to_pylist()]
    return _side(topic, "quarantine", rows, keys, [crc32(value) for value in rows["value"].to_pylist()])


def _side(topic: Topic, side: str, rows: pa.Table, keys: list[str], crcs: list[int | None]) -> pa.Table:
    return pa.table(
        {
            "topic": pa.array([topic.full_name] * len(rows), pa.string()),
            "partition": rows["_partition"].cast(pa.int32()),
            "offset": rows["_offset"].cast(pa.int64()),
            "side": pa.array([side] * len(rows), pa.string()),
            "key": pa.array(keys, pa.string()),
            "crc": pa.array(crcs, pa.int64()),
        }
    )

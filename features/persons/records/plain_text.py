"""Finds records that other producers wrote with values of persons in the clear."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from twofold.features.persons.records.personal import personal_columns, sealed_rule
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.instants import epoch_ms
from twofold.tables.declare.metadata_columns import APPENDED_AT, OFFSET, PARTITION
from twofold.tables.declare.registry import Registry
from twofold_algebra.sql.names import DATAFUSION

DAYS = 7
"""A record is a problem for so long after it was appended."""


def plain_text_records(lake: Lake, registry: Registry, now: datetime) -> dict[str, str]:
    """Describes, for each topic with columns of persons, the newest records that have some in the clear."""
    kind = pa.timestamp("us", "UTC")
    since = DATAFUSION.moment(kind, epoch_ms(now - timedelta(days=DAYS)) or 0)
    described = {}
    for name, topic in registry.topics.items():
        rules = [str(sealed_rule(column)) for column in personal_columns(topic)]
        if not rules or not lake.exists(name + QUARANTINE):
            continue
        columns = [PARTITION, OFFSET, APPENDED_AT, "reasons"]
        rows = select(lake.open(name + QUARANTINE), columns, f"{APPENDED_AT} >= {since}")
        is_plain = pc.is_in(pc.list_flatten(rows["reasons"]), pa.array(rules))
        records = rows.take(pc.unique(pc.list_parent_indices(rows["reasons"]).filter(is_plain)))
        if len(records):
            last = records.sort_by([(APPENDED_AT, "descending")]).slice(0, 1).to_pylist()[0]
            described[name] = (
                f"{name}: {len(records):,} records of {DAYS} days have values of persons in the clear, by a producer "
                f"that does not encrypt: the last is at partition {last[PARTITION]}, offset {last[OFFSET]} of the log"
            )
    return described

"""Gives quarantined records another try, once what refused them has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from batch.publication import KEY, Work, publish, reconcile_below
from infra.duck import duckdb_utc
from infra.errors import BadArgument
from infra.ranges import condition
from tables.declaration import Topic
from tables.decode import APPENDED_AT, OFFSET, PARTITION
from tables.lake import QUARANTINE, Lake
from tables.outcome import Outcome, run_name
from tables.registry import load
from tables.setup import Platform, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.settings import Settings

Edge = Mapping[int, int] | datetime
"""An offset by partition, or the time at which the broker appended a record, UTC."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which quarantined records of a topic are meant; all when nothing is said.

    Attributes:
        reason: text that one of their reasons contains.
        start: the first; with offsets, partitions that it does not name are left out.
        end: where they end, itself not among them; with offsets, partitions that it does not name have no end.
        partitions: no others; None: all.
    """

    reason: str | None = None
    start: Edge | None = None
    end: Edge | None = None
    partitions: Sequence[int] | None = None

    def require_meant(self, topic: Topic) -> None:
        """Raises:
        BadArgument: an empty reason, a partition that the topic does not have, an end before its start.
        """
        if self.reason is not None and not self.reason.strip():
            raise BadArgument("The reason is empty.", hint="Give a part of a reason, or leave it out for all records.")
        for name, given in (("start", self.start), ("end", self.end), ("partitions", self.partitions)):
            named = set() if given is None or isinstance(given, datetime) else set(given)
            unknown = sorted(named - set(range(topic.partitions)))
            if unknown:
                raise BadArgument(
                    f"{name} names the partitions {unknown}; {topic.full_name} has {topic.partitions}.",
                    hint="Partitions are numbered from 0; write partition:offset, as in 0:1200.",
                )
        if not self._is_ordered:
            raise BadArgument(f"The end {self.end} is before the start {self.start}.", hint="The end is not included.")

    @property
    def _is_ordered(self) -> bool:
        start, end = self.start, self.end
        if isinstance(start, datetime) and isinstance(end, datetime):
            return start <= end
        if isinstance(start, Mapping) and isinstance(end, Mapping):
            return all(start[p] <= end[p] for p in start.keys() & end.keys())
        return True

    def conditions(self) -> Iterator[tuple[str, object]]:
        """What holds for each record, as SQL of DuckDB with its one parameter."""
        if self.reason is not None:
            yield "contains(array_to_string(reasons, chr(10)), ?)", self.reason
        if self.partitions is not None:
            yield f"list_contains(?, {PARTITION})", list(self.partitions)
        for edge, sign in ((self.start, ">="), (self.end, "<")):
            if isinstance(edge, datetime):
                yield f"{APPENDED_AT} {sign} ?", edge
            elif edge is not None:
                named = " OR ".join(f"({PARTITION} = {p} AND {OFFSET} {sign} {offset})" for p, offset in edge.items())
                others = f"{PARTITION} NOT IN ({', '.join(map(str, edge)) or 'NULL'})" if sign == "<" else "false"
                yield f"({named or 'false'} OR {others} OR ?)", False


def redrive(settings: Settings, topic: str, choice: Choice) -> list[Outcome]:
    """Decode quarantined records again with today's code, from the bytes that quarantine keeps.

    Those that pass become events and leave quarantine, and every table below is reconciled for just what that
    touched; streams leave these rows to the batch. Those that fail stay, with today's reasons. Running it twice
    changes nothing the second time.

    Args:
        topic: full or bare name.

    Returns:
        Outcomes of events, quarantine, then of each table below in dependency order.

    Raises:
        BadArgument: nothing was touched.
    """
    declared = load().find_topic(topic)
    choice.require_meant(declared)
    with opened(settings, "redrive", [declared.domain]) as platform:
        return redrive_chosen(platform, declared, choice)


def redrive_chosen(platform: Platform, topic: Topic, choice: Choice) -> list[Outcome]:
    """`redrive` on a platform that is open."""
    choice.require_meant(topic)
    places = _places(platform.lake, topic, choice)
    outcomes = []
    if len(places):
        spark, ranges = platform.spark, _ranges(places)
        wanted = condition(ranges, PARTITION, OFFSET)
        chosen = spark.createDataFrame(places)

        def covered(live: DataFrame) -> DataFrame:
            return live.where(wanted).join(chosen, list(KEY), "left_semi").select(*live.columns)

        work = Work(
            run=run_name("redrive"),
            records=len(places),
            ranges=len(ranges),
            covered=covered,
            info={"reason": choice.reason, "offsets": {p: list(r) for p, r in ranges.items()}},
        )
        kept = covered(platform.lake.frame(spark, topic.full_name + QUARANTINE))
        raw = kept.select(
            *(kept[column].alias(name) for column, name in ((PARTITION, "partition"), (OFFSET, "offset"))),
            kept[APPENDED_AT].alias("timestamp"),
            "key",
            "value",
        )
        outcomes = publish(platform, topic, raw, work)
    return outcomes + reconcile_below(platform, topic)


def _places(lake: Lake, topic: Topic, choice: Choice) -> pa.Table:
    """Partition and offset of the chosen records; their bytes are left where they are."""
    connection = duckdb_utc()
    columns = [PARTITION, OFFSET, APPENDED_AT, "reasons"]
    connection.register("quarantine", lake.open(topic.full_name + QUARANTINE).scan(columns=columns))
    conditions = list(choice.conditions())
    sql = " AND ".join(["true", *(condition for condition, _ in conditions)])
    found = connection.execute(
        f"SELECT {PARTITION}, {OFFSET} FROM quarantine WHERE {sql}", [parameter for _, parameter in conditions]
    )
    return found.to_arrow_table()


def _ranges(places: pa.Table) -> dict[int, tuple[int, int]]:
    """Partition -> the range from the first to the last of its chosen offsets."""
    found = places.group_by(PARTITION).aggregate([(OFFSET, "min"), (OFFSET, "max")]).to_pylist()
    return {row[PARTITION]: (row[f"{OFFSET}_min"], row[f"{OFFSET}_max"] + 1) for row in found}

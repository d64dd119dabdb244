"""A table in a topic, as rows or as changes: its records and its position are one transaction."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from twofold.features.outputs.json_rows import json_changes, json_rows, rows_of_page
from twofold.features.outputs.output_target import Target
from twofold.features.outputs.position import Position
from twofold.features.outputs.refused_rows import Refused, record_refused
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.topic_output import TopicOutput
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import WriteConflict
from twofold.infra.kafka.compacted_topic import NewestValues, Record, TransactionalWriter
from twofold.infra.kafka.topic_admin import TopicSpec, ensure_topics
from twofold.infra.private_file import destination
from twofold.tables.refresh.json_values import to_json

POSITIONS = "twofold.outputs"
"""Begins the names of topics with a position; in homes of earlier code it is the topic with all positions."""
_OPERATIONS = {"insert": "c", "update": "u", "delete": "d"}
_COMPACTED = {"cleanup.policy": "compact"}
_LOG = {"cleanup.policy": "delete"}
_CLEANED = {"max.compaction.lag.ms": str(86_400_000)}
"""A record that was replaced is removed within a day, however few there are."""
_SHORT = {**_COMPACTED, "segment.ms": str(3_600_000), "min.cleanable.dirty.ratio": "0.1"}
"""A position is written with each step, and read from the first on by each start."""


class TopicCopy(Target):
    """A target in a topic of one partition, whose order is that of the table's versions.

    A record has the primary key as JSON. Its value, as JSON, is the row, `_key` included, or nothing once the row is
    gone; in a topic that is not compacted it is a change, as Debezium writes it.
    """

    def __init__(self, lake: Lake, place: Place, output: TopicOutput) -> None:
        self._lake, self._place, self._output = lake, place, output
        self.settings, self.topic, self.owner = lake.settings, f"{place.domain}.{place.output}", str(place)
        if output.destination:
            address = destination(lake.settings.destinations, output.destination, "kafka://host:port")
            self.settings = replace(lake.settings, bootstrap=address.removeprefix("kafka://"))
        self._positions = NewestValues(self.settings, self.positions)
        self._writer: TransactionalWriter | None = None
        self._at: Position | None = None

    @property
    def positions(self) -> str:
        """The full name of the topic with the position.

        No other output writes to it, whose transaction would hide what is committed behind its start.
        """
        return f"{POSITIONS}.{self.topic}"

    def position(self) -> Position | None:
        # Consumers see a commit a moment later; while this writer goes on, no other has moved the copy.
        return self._at if self._writer else self._committed()

    def _committed(self, *, decided: bool = False) -> Position | None:
        text = self._positions.look().get(self.owner.encode())
        if text is None:
            text = NewestValues(self.settings, POSITIONS).look(decided=decided).get(self.owner.encode())
        return None if text is None else Position.parsed(text.decode())

    def send(self, changes: pa.Table, before: Position | None, after: Position) -> None:
        if self._writer is None:
            configs = {**_COMPACTED, **(_CLEANED if self._output.reveal else {})} if self._output.compacted else _LOG
            ensure_topics(
                self.settings,
                [
                    TopicSpec(name=self.positions, partitions=1, configs=_SHORT),
                    TopicSpec(name=self.topic, partitions=1, configs=configs),
                ],
            )
            # From here on no other writer goes on, and what it has left open is decided.
            self._writer = TransactionalWriter(self.settings, self.owner)
            self._at = self._committed(decided=True)
        writer, self._writer = self._writer, None  # after a failure another one finds out what is there
        if self._at != before:
            writer.close()
            raise WriteConflict(f"Another process has moved the copy {self.topic}.", hint="It is read again.")
        refused: list[Refused] = []
        records = self._rows(changes, refused) if self._output.compacted else self._changes(changes, after, refused)
        if refused:
            record_refused(self._lake, self._place, after.ahead.version, refused)
        writer.write([*records, (self.positions, self.owner.encode(), after.text.encode())])
        self._writer, self._at = writer, after

    def erase(self) -> None:
        # From here on no other writer goes on, and all that was sent is seen.
        with closing(TransactionalWriter(self.settings, self.owner)) as writer:
            if self._committed(decided=True) is not None:
                keys, owner = NewestValues(self.settings, self.topic).look(), self.owner.encode()
                noted = [p for p in (self.positions, POSITIONS) if owner in NewestValues(self.settings, p).look()]
                writer.write([*((self.topic, key, None) for key in keys), *((p, owner, None) for p in noted)])

    def _rows(self, changes: pa.Table, refused: list[Refused]) -> list[Record]:
        return [
            (self.topic, key.encode(), None if row is None else to_json(row).encode())
            for key, row in json_rows(changes, refused)
        ]

    def _changes(self, changes: pa.Table, after: Position, refused: list[Refused]) -> list[Record]:
        source = {"table": self._place.table, "version": after.ahead.version}
        records: list[Record] = []
        for key, (kind, before, row) in json_changes(changes, refused):
            change = {"op": _OPERATIONS[kind], "before": before, "after": row, "source": source}
            records.append((self.topic, key.encode(), to_json(change).encode()))
        return records

    def sent(self, schema: pa.Schema, page: int, pages: int) -> pa.Table:
        values = NewestValues(self.settings, self.topic).look().values()
        return rows_of_page(map(json.loads, values), schema, page, pages)

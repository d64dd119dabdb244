"""Changes the accepted decoding of a topic's events while records are decoded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.offset_ranges import Ranges
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import FINGERPRINT, Accepted, accept, accepted_code
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold.tables.refresh.events.ingested_offsets import INGEST, read_ingested_offsets

if TYPE_CHECKING:
    from deltalake import DeltaTable


def begin_decoding(lake: Lake, topic: str, fact: Accepted, info: Mapping[str, object]) -> None:
    """Accepts a decoding for no event yet, and keeps ingest of other code out of the topic's two tables."""
    accept(lake, topic, fact, info=info)
    quarantine = Writer(lake, topic + QUARANTINE)
    nothing = pa.schema(quarantine.newest().schema()).empty_table()
    while quarantine.append(nothing, CommitTag(app=INGEST, version=quarantine.next_number(INGEST), info=info)).skipped:
        pass


def accept_decoded(
    lake: Lake, topic: str, ends: Mapping[int, int], version: int, fact: Accepted, info: Mapping[str, object]
) -> None:
    """Accepts the decoding for all events, or up to these offsets if other code has ingested later ones.

    Args:
        ends: partition -> the offset before which every event has the decoding.
        version: of the events, before these offsets were read.
        fact: the currently accepted code; nothing is changed if it was replaced meanwhile.
    """

    def is_of_one_code(table: DeltaTable) -> bool:
        try:
            commits = list(lake.commits(topic, version, table.version()))
        except FileNotFoundError:  # trimmed
            return False
        return all(commit.info.get(FINGERPRINT, fact.code) == fact.code for commit in commits)

    if not accept(lake, topic, replace(fact, through=None), instead_of=fact, info=info, while_=is_of_one_code):
        accept(lake, topic, replace(fact, through=by_partition(ends)), instead_of=fact, info=info)


def lower_decoding(lake: Lake, topic: Topic, ranges: Ranges, info: Mapping[str, object]) -> None:
    """Records which offsets are about to be decoded by code that is not accepted."""
    name, info = topic.full_name, {**info, "offsets": {p: list(span) for p, span in ranges.items()}}
    while (fact := accepted_code(lake, name)) and fact.code != decoding(topic):
        ends = by_partition(read_ingested_offsets(lake, topic).ends)
        known = ends if fact.through is None else {**dict.fromkeys(ends, 0), **fact.through}
        through = {**known, **{str(p): min(first, known.get(str(p), first)) for p, (first, _) in ranges.items()}}
        if accept(lake, name, replace(fact, through=through), instead_of=fact, info=info):
            return


def by_partition(ends: Mapping[int, int]) -> dict[str, int]:
    """Converts partition ends to the form of `Accepted.through`."""
    return {str(partition): end for partition, end in ends.items()}

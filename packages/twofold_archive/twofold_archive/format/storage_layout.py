"""Paths of a segment's files in tiered storage: one class per storage plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from twofold_archive.format.segment import Segment, kafka_id

Kind = Literal["log", "index", "timeindex", "txnindex", "snapshot"]


class Layout(Protocol):
    """Names the files of segments, relative to the root of the archive.

    A plugin whose files hold something else than what the broker gave it (encrypted, chunked, several in one) is read
    through an fsspec file system that gives the broker's bytes.
    """

    def path(self, segment: Segment, kind: Kind) -> str:
        """Returns the path of the file, with `/` between folders and none at the front."""
        ...


class LocalTieredStorage:
    """The plugin that comes with Kafka: a folder per partition, named by its topic's id."""

    def path(self, segment: Segment, kind: Kind) -> str:
        folder = f"kafka-tiered-storage/{segment.topic}-{segment.partition}-{kafka_id(segment.topic_id)}"
        return f"{folder}/{segment.start:020d}-{kafka_id(segment.id)}.{kind}"


LAYOUTS: Mapping[str, Layout] = {"local-tiered-storage": LocalTieredStorage()}

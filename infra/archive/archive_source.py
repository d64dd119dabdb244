"""The Spark data source `archive`: one topic's archived records for a session of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twofold.infra import COMMAND
from twofold.infra.archive.archive_catalog import open_archive
from twofold.infra.archive.platform_archive import own_errors
from twofold.infra.errors import BadArgument, NotArchived
from twofold.infra.offset_ranges import Ranges
from twofold.infra.project.settings import Settings
from twofold_archive.format.record_columns import COLUMNS, schema
from twofold_archive.format.segment_store import Store
from twofold_archive.read_plan import ArchivedBounds
from twofold_archive.read_tasks import read_task, tasks

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

EARLIEST, LATEST = "earliest", "latest"
STARTING, ENDING = "startingOffsets", "endingOffsets"
_OPTIONS = ("topic", STARTING, ENDING, "columns", "bootstrap", "archive")


class ArchiveSource(DataSource):
    """`spark.read.format("archive")`, once `spark.dataSource.register(ArchiveSource)` has registered it.

    The rows and their schema are those of the source `kafka`. The read is planned when the query is planned; the
    broker is asked only for the list of archived segments. `infra.archive.archive_frame` gives the same rows to the
    platform itself, and avoids the copy of each row that Spark makes for a data source.

    Options:
        topic: full name.
        startingOffsets: `earliest` or JSON of partition -> first offset, as `{"0": 12}`; others are left out then.
        endingOffsets: `latest`, which is the frontier of the archive, or JSON of partition -> offset after the last.
        columns: names separated by commas, also `headers`; others are not built.
        bootstrap, archive: in place of the platform's settings of these names.
    """

    @classmethod
    def name(cls) -> str:
        return "archive"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        with own_errors():
            return from_arrow_schema(schema(_Asked.from_options(self.options).columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(_Asked.from_options(self.options))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The options of a read."""

    settings: Settings
    topic: str
    starting: str
    ending: str
    columns: Sequence[str]

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> _Asked:
        given = {name.lower(): text for name, text in options.items()}
        unknown = sorted(given.keys() - {name.lower() for name in _OPTIONS})
        if unknown or not given.get("topic"):
            came = f"has no option {', '.join(unknown)}" if unknown else "needs the option topic"
            raise BadArgument(f"The source archive {came}.", hint=f"The options are {', '.join(_OPTIONS)}.")
        own = Settings.from_environment()
        names = given.get("columns", ",".join(COLUMNS))
        return cls(
            settings=replace(
                own, bootstrap=given.get("bootstrap", own.bootstrap), archive=given.get("archive", own.archive)
            ),
            topic=given["topic"],
            starting=given.get(STARTING.lower(), EARLIEST),
            ending=given.get(ENDING.lower(), LATEST),
            columns=[name.strip() for name in names.split(",")],
        )


def asked_ranges(topic: str, bounds: Mapping[int, ArchivedBounds], starting: str, ending: str) -> Ranges:
    """Resolves the options of a read to offset ranges.

    Raises:
        NotArchived: nothing of the topic is archived.
        BadArgument: an option is no offsets; the two options name different partitions; a partition has no archived
            records.
    """
    if not bounds:
        raise NotArchived(
            f"Nothing of {topic} is archived.",
            hint=f"Check the name; {COMMAND} status shows what is archived. A segment comes once it is closed.",
            topic=topic,
        )
    starts, ends = _offsets(STARTING, starting, EARLIEST), _offsets(ENDING, ending, LATEST)
    if starts is not None and ends is not None and starts.keys() != ends.keys():
        raise BadArgument(
            f"{STARTING} names the partitions {_listed(starts)} of {topic}, {ENDING} {_listed(ends)}.",
            hint=f"Name the same in both, or leave {STARTING} at `{EARLIEST}` or {ENDING} at `{LATEST}`.",
        )
    named = starts or ends or bounds
    if starts is None or ends is None:
        nothing = sorted(named.keys() - bounds.keys())
        if nothing:
            raise BadArgument(
                f"Nothing is archived of partition {_listed(nothing)} of {topic}.",
                hint=f"Archived are the partitions {_listed(bounds)}; {COMMAND} status shows them.",
            )
    return {
        p: (bounds[p].start if starts is None else starts[p], bounds[p].end if ends is None else ends[p])
        for p in sorted(named)
    }


def _offsets(option: str, text: str, word: str) -> dict[int, int] | None:
    if text == word:
        return None
    try:
        return msgspec.json.decode(text, type=dict[int, int])
    except msgspec.DecodeError as error:
        raise BadArgument(
            f"{option}={text!r}: expected `{word}` or JSON of partition -> offset ({error}).",
            hint='As {"0": 12, "1": 7}.',
        ) from None


def _listed(partitions: Mapping[int, object] | Sequence[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))


class _Task(InputPartition):
    def __init__(self, store: Store, work: bytes) -> None:
        self.store, self.work = store, work


class _Reader(DataSourceReader):
    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        asked = self._asked
        archive = open_archive(asked.settings, [asked.topic])
        ranges = asked_ranges(asked.topic, archive.bounds(asked.topic), asked.starting, asked.ending)
        work = tasks(archive, {asked.topic: ranges}, asked.columns, os.cpu_count() or 1)
        return [_Task(archive.store, each) for each in work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _Task):
            yield from read_task(partition.store, partition.work)

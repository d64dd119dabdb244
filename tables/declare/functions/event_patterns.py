"""Pattern matching over the events of each key in time order, for stream and batch alike.

A table that uses it reads tables, or has a `depends_within`, so that the stream recomputes what a micro-batch touches:
a late event is in its place in the order at once, and a match that it undoes is deleted.

A match that only the passing of time decides, such as "A without B within an hour", needs no clock: the function yields
the match from the moment of A on, with a column that says when it is final, and no longer yields it once B is there.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import BadDeclaration
from twofold_algebra.reading.function_plan import is_analysed
from twofold_algebra.spark_functions import MATCHES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Event = Mapping[str, Any]
Match = Mapping[str, Any]
Find = Callable[[Sequence[Event]], Iterable[Match]]
Is = Callable[[Event], bool]

RECORD = "struct<topic: string, partition: int, offset: bigint>"
"""The type of the column `record` of topics, for the matches of a table that declares `lineage_columns`."""
_NAN = object()


def find_matches(events: DataFrame, *, key: Sequence[str], order: Sequence[str], find: Find, returns: str) -> DataFrame:
    """Computes the matches that `find` yields for the events of each key, keys in no order.

    Args:
        events: every column of it is in the events that `find` gets, instants as datetimes in UTC; a null in the key is
            a key of its own.
        order: columns by which the events of a key are sorted, nulls first; they must order any two of them, or
            the stream and the batch may disagree.
        find: gets all events of one key; a pure function, of nothing else.
        returns: the columns of a match and their types, as Spark SQL writes them: `"plane string, at timestamp"`; a
            match that lacks one has null in it. One with the name of a key's column holds the key of its events.
    """
    if is_analysed():
        return _stated(events, key, returns)
    from pyspark import cloudpickle
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    declared = StructType.fromDDL(returns)
    if not isinstance(declared, StructType):
        raise BadDeclaration(f"returns={returns!r}: expected columns with their types.", hint='Write "at timestamp".')
    schema = to_arrow_schema(declared, timezone="UTC")
    said = [column for column in key if column in schema.names]

    def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one_batch in _by_key(batches, key):
            matches = (_of_key(match, one, said) for one in one_batch for match in find(one))
            yield from _as_table(matches, schema).to_batches()

    # A worker could not import a declaration, which is loaded from its file.
    cloudpickle.register_pickle_by_value(sys.modules[find.__module__])  # type: ignore[no-untyped-call]
    # Not by groupBy().applyInArrow(), which makes and takes an Arrow table for each key: 1.5 ms, ten times find's.
    ordered = events.repartition(*key).sortWithinPartitions(*key, *order)
    return ordered.mapInArrow(found, returns)


def times_then(
    events: Sequence[Event], times: int, first: Is, then: Is, *, at: str, within: timedelta
) -> Iterator[tuple[Sequence[Event], Event]]:
    """Yields `times` times A, then B: the last events A before each B with it, within `within` of it.

    Events that are neither A nor B do not matter; each A counts for the next B only. A match is made by events within
    `within` of its B, which is the `depends_within` of a table that dates matches by their B.

    Args:
        events: of one key, in the order of time.
        first, then: whether an event is an A, a B; what is both is a B.
        at: the column of their time.
    """
    held: deque[Event] = deque(maxlen=times)
    for event in events:
        if then(event):
            if len(held) == times and event[at] - held[0][at] <= within:
                yield tuple(held), event
            held.clear()
        elif first(event):
            held.append(event)


def _stated(events: DataFrame, key: Sequence[str], returns: str) -> DataFrame:
    """Builds the plan of the matches, only for inference: several rows per key, with the key's columns."""
    from pyspark.sql import functions as F

    names = [part.split()[0].strip("`") for part in re.split(r",(?![^<(]*[>)])", returns)]
    found = events.groupBy(*key).agg(F.call_function(MATCHES).alias("matches"))
    each = found.withColumn("matches", F.explode("matches"))
    return each.select(*(F.col(name) if name in key else F.col(f"matches.{name}").alias(name) for name in names))


def _of_key(match: Match, events: Sequence[Event], said: Sequence[str]) -> Match:
    """Adds the key of its events to a match.

    Raises:
        BadDeclaration: it has another one: late events of that key would not change it.
    """
    for column in said:
        value, expected = match.get(column, events[0][column]), events[0][column]
        if value != expected and (value == value or expected == expected):
            raise BadDeclaration(
                f"a match has {column}={value!r}; expected {expected!r}, the value of its events' key.",
                hint=f"Give the other value a column of another name than {column}.",
            )
    return {**match, **{column: events[0][column] for column in said}}


def _by_key(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[list[list[Event]]]:
    """Yields lists of the events of each key, one list per batch; rows must be in the order of their keys."""
    values: list[Any] | None = None
    events: list[Event] = []
    for batch in batches:
        ended: list[list[Event]] = []
        for event in batch.to_pylist():
            its_values = [_NAN if event[column] != event[column] else event[column] for column in key]
            if its_values != values and events:
                ended.append(events)
                events = []
            values = its_values
            events.append(event)
        yield ended
    if events:
        yield [events]


def _as_table(found: Iterable[Match], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    rows = [dict(match) for match in found]
    unknown = {name for row in rows for name in row} - set(schema.names)
    if unknown:
        raise BadDeclaration(
            f"a match has {', '.join(sorted(unknown))}, which `returns` does not name.",
            hint=f"It names {', '.join(schema.names)}.",
        )
    return pa.Table.from_pylist(rows, schema)

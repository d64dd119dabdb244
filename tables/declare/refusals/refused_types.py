"""Refusals of columns for their types, which the analysis of Spark finds."""

from __future__ import annotations

from tables.algebra.refusal import Refusal, Subject, example

UNSTORED = Refusal(
    name="type-that-delta-has-not",
    subject=Subject.TYPES,
    shape="{column} is or holds a value of the type {type}",
    why="Delta tables do not have it",
    instead="Convert it: {conversion}.",
    refused='readings.groupBy("sensor").agg((F.max("read_at") - F.min("read_at")).alias("age"))',
    accepted='readings.groupBy("sensor").agg((F.unix_micros(F.max("read_at")) - F.unix_micros(F.min("read_at")))'
    '.alias("age"))',
    seen={
        "column": "age",
        "type": "interval day to second",
        "conversion": "a number of microseconds is F.unix_micros(end) - F.unix_micros(start)",
    },
)
COLLATED = Refusal(
    name="column-with-a-collation",
    subject=Subject.TYPES,
    shape="{column} is of the type {type}",
    why="by a collation Spark alone takes different texts for one",
    instead='Return it without: F.collate({column!r}, "UTF8_BINARY").',
    refused='readings.withColumn("spelt", F.collate("sensor", "UTF8_LCASE"))',
    accepted='readings.withColumn("spelt", F.lower("sensor"))',
    seen={
        "column": "spelt",
        "type": "string collate UTF8_LCASE",
    },
)
UNTIMELY = Refusal(
    name="time-of-another-type",
    subject=Subject.TYPES,
    shape="{parameter}={column!r} is a {type}",
    why="expected a {expected}",
    instead="Name a column that says when, such as F.to_timestamp({column!r}).",
    refused=example('event_time="day"', 'readings.withColumn("day", F.date_format("read_at", "yyyy-MM-dd"))'),
    accepted=example('event_time="day"', 'readings.withColumn("day", F.to_date("read_at"))'),
    seen={
        "parameter": "event_time",
        "column": "day",
        "type": "string",
        "expected": "timestamp or a date",
    },
)
UNORDERED = Refusal(
    name="map-in-a-key",
    subject=Subject.TYPES,
    shape="{what} holds a map",
    why="a map has no order",
    instead="Return it as text, F.to_json({column!r}), or as entries, F.sort_array(F.map_entries({column!r})).",
    refused=example(
        'primary_key=["by"], recompute_by=[]', 'readings.select(F.create_map("sensor", "value").alias("by")).distinct()'
    ),
    accepted=example(
        'primary_key=["by"], recompute_by=[]',
        'readings.select(F.to_json(F.create_map("sensor", "value")).alias("by")).distinct()',
    ),
    seen={
        "what": "by of its key",
        "column": "by",
    },
)

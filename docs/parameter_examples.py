"""Examples for the refusals of parameters: pairs of a refused declaration and the same one written right.

An example is a file without its imports, or the expression that the function of one returns.
"""

from __future__ import annotations


def example(given: str, rows: str, reads: str = "readings") -> str:
    """Returns the example of a table of these parameters and rows."""
    return f"@table({given})\ndef t({reads}):\n    return {rows}\n"


def _windows(topic: str, time: str, length: str) -> str:
    counts = f'{topic}.groupBy("sensor", F.window("{time}", "{length}")).count()'
    return f'{counts}.select("sensor", "window.start", "count")'


def _mapped(device: str) -> str:
    given = f'primary_key=["device"], recompute_by=["device"], scope_columns={{"readings": {{"device": "{device}"}}}}'
    return example(given, 'readings.mapInArrow(lambda batches: batches, "device string")')


_WHOLE = 'readings.agg(F.count("*").alias("n"))'
_MEAN = 'readings.agg(F.avg("value").alias("mean"))'
_CLOSED = 'event_time="read_at", depends_within="1 hour", closes_at="read_at"'
_ROWS = "def t(readings):\n    return readings\n"
PARAMETER_EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "needs-a-key-or-a-scope": [
        (
            example('recompute_by=["sensor"]', 'readings.select("sensor", "value")'),
            example('recompute_by=["sensor"]', 'readings.select("sensor", "read_at", "value")'),
        ),
        (
            example("", _MEAN),
            example('primary_key=["id"], recompute_by=[]', f'{_MEAN}.withColumn("id", F.lit(1))'),
        ),
        (
            example("", 'readings.join(alarms, "sensor", "full")', "readings, alarms"),
            example(
                'primary_key=["sensor", "read_at", "alarm"]',
                'readings.join(alarms, "sensor", "full")',
                "readings, alarms",
            ),
        ),
        (
            example('recompute_by=["sensor"]', 'readings.withColumn("part", F.explode(F.array("value")))'),
            example(
                'primary_key=["sensor", "read_at", "nth"], recompute_by=["sensor"]',
                'readings.select("*", F.posexplode(F.array("value")).alias("nth", "part"))',
            ),
        ),
        (
            example("", 'readings.groupBy("sensor", F.to_date("read_at")).agg(F.count("*").alias("n"))'),
            example("", 'readings.groupBy("sensor", F.to_date("read_at").alias("day")).agg(F.count("*").alias("n"))'),
        ),
        (
            example("", 'readings.select("sensor").unionByName(alarms.select("sensor"))', "readings, alarms"),
            example(
                "", 'readings.select("sensor").unionByName(alarms.select("sensor")).distinct()', "readings, alarms"
            ),
        ),
        (
            example("", 'readings.rollup("value").agg(F.count("*").alias("n"))'),
            example("", 'readings.rollup("value").agg(F.grouping_id().alias("level"), F.count("*").alias("n"))'),
        ),
        (
            example("", 'readings.mapInArrow(lambda batches: batches, "sensor string, nth int")'),
            example(
                'primary_key=["sensor", "nth"], recompute_by=["sensor"]',
                'readings.mapInArrow(lambda batches: batches, "sensor string, nth int")',
            ),
        ),
    ],
    "empty-key": [
        (
            example("primary_key=[], recompute_by=[]", _WHOLE),
            example('primary_key=["id"], recompute_by=[]', f'{_WHOLE}.withColumn("id", F.lit(1))'),
        )
    ],
    "key-that-does-not-identify-a-row": [
        (
            example('primary_key=["sensor"]', "readings"),
            example('primary_key=["sensor"], sequence_by=["read_at"]', "readings"),
        )
    ],
    "key-of-other-groups": [
        (
            example('primary_key=["n"]', 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
            example("", 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
        )
    ],
    "scope-that-is-too-narrow": [
        (
            example('recompute_by=["n"]', 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
            example('recompute_by=["sensor"]', 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
        )
    ],
    "scope-column-that-is-another": [
        (
            example(
                'scope_columns={"readings": {"device": "value"}}',
                'readings.groupBy(F.col("sensor").alias("device")).agg(F.count("*").alias("n"))',
            ),
            example("", 'readings.groupBy(F.col("sensor").alias("device")).agg(F.count("*").alias("n"))'),
        )
    ],
    "scope-column-of-no-input": [
        (
            example('primary_key=["sensor", "read_at"], scope_columns={"reading": {"sensor": "sensor"}}', "readings"),
            example('primary_key=["sensor", "read_at"]', "readings"),
        )
    ],
    "scope-column-that-is-no-value": [
        (
            _mapped("max(sensor)"),
            _mapped("sensor"),
        )
    ],
    "scope-column-that-the-topic-lacks": [
        (
            _mapped("id"),
            _mapped("sensor"),
        )
    ],
    "tolerance-of-a-key": [
        (
            example('tolerances={"sensor": 0.05}', 'readings.groupBy("sensor").agg(F.avg("value").alias("mean"))'),
            example('tolerances={"mean": 0.05}', 'readings.groupBy("sensor").agg(F.avg("value").alias("mean"))'),
        )
    ],
    "topic-with-a-column-record": [
        (
            example('lineage_columns=["made_by"]', 'logged.withColumnRenamed("record", "made_by")', "logged"),
            example('lineage_columns=["made_by"]', 'readings.withColumnRenamed("record", "made_by")'),
        )
    ],
    "depends-within-that-is-too-short": [
        (
            example(
                'depends_within="1 hour"',
                _windows("readings", "read_at", "2 hours"),
            ),
            example(
                "",
                _windows("readings", "read_at", "2 hours"),
            ),
        )
    ],
    "depends-within-of-another-time": [
        (
            example(
                'event_time="start", depends_within="1 hour"',
                _windows("logged", "sent_at", "1 hour"),
                "logged",
            ),
            example(
                'event_time="start"',
                _windows("logged", "sent_at", "1 hour"),
                "logged",
            ),
        )
    ],
    "depends-within-without-event-time": [
        (
            example('depends_within="1 hour"', 'readings.groupBy("sensor").agg(F.max("read_at").alias("at"))'),
            example(
                'event_time="at", depends_within="1 hour"',
                'readings.groupBy("sensor").agg(F.max("read_at").alias("at"))',
            ),
        )
    ],
    "closes-at-without-event-time": [(example('closes_at="read_at"', "readings"), example(_CLOSED, "readings"))],
    "ends-at-without-event-time": [
        (
            example('ends_at="read_at"', "readings"),
            example('ends_at="read_at", event_time="read_at", depends_within="1 hour"', "readings"),
        )
    ],
    "sequence-by-that-does-not-start-with-event-time": [
        (
            f'@table(\n    primary_key=["sensor"], sequence_by=["value"], {_CLOSED}\n)\n{_ROWS}',
            f'@table(\n    primary_key=["sensor"], sequence_by=["read_at"], {_CLOSED}\n)\n{_ROWS}',
        )
    ],
    "closes-at-of-a-table-of-tables": [(example(_CLOSED, "newest", "newest"), example("", "newest", "newest"))],
    "type-that-delta-has-not": [
        (
            'readings.groupBy("sensor").agg((F.max("read_at") - F.min("read_at")).alias("age"))',
            (
                'readings.groupBy("sensor").agg((F.unix_micros(F.max("read_at")) - F.unix_micros(F.min("read_at")))'
                '.alias("age"))'
            ),
        )
    ],
    "column-with-a-collation": [
        (
            'readings.withColumn("spelt", F.collate("sensor", "UTF8_LCASE"))',
            'readings.withColumn("spelt", F.lower("sensor"))',
        )
    ],
    "time-of-another-type": [
        (
            example('event_time="day"', 'readings.withColumn("day", F.date_format("read_at", "yyyy-MM-dd"))'),
            example('event_time="day"', 'readings.withColumn("day", F.to_date("read_at"))'),
        )
    ],
    "map-in-a-key": [
        (
            example(
                'primary_key=["by"], recompute_by=[]',
                'readings.select(F.create_map("sensor", "value").alias("by")).distinct()',
            ),
            example(
                'primary_key=["by"], recompute_by=[]',
                'readings.select(F.to_json(F.create_map("sensor", "value")).alias("by")).distinct()',
            ),
        )
    ],
    "column-that-is-not-returned": [
        (
            example('event_time="lost"', 'readings.groupBy("sensor").agg(F.max("read_at").alias("last"))'),
            example('event_time="last"', 'readings.groupBy("sensor").agg(F.max("read_at").alias("last"))'),
        )
    ],
    "column-of-the-platform": [
        ('readings.withColumn("_day", F.to_date("read_at"))', 'readings.withColumn("day", F.to_date("read_at"))')
    ],
    "function-without-parameters": [
        (
            example('primary_key=["id"], recompute_by=[]', 'sql("SELECT 1 AS id")', ""),
            example('primary_key=["id"], recompute_by=[]', 'sql("SELECT 1 AS id FROM {r} LIMIT 1", r=readings)'),
        )
    ],
    "input-that-is-not-declared": [(example("", "reading", "reading"), example("", "readings", "readings"))],
    "import-of-a-heavy-package": [
        ("from pyspark.sql import functions\n\n\n" + example("", "readings"), example("", "readings"))
    ],
}
SEEN: dict[str, dict[str, str]] = {
    "type-that-delta-has-not": {
        "column": "age",
        "type": "interval day to second",
        "conversion": "a number of microseconds is F.unix_micros(end) - F.unix_micros(start)",
    },
    "column-with-a-collation": {
        "column": "spelt",
        "type": "string collate UTF8_LCASE",
    },
    "time-of-another-type": {
        "parameter": "event_time",
        "column": "day",
        "type": "string",
        "expected": "timestamp or a date",
    },
    "map-in-a-key": {
        "what": "by of its key",
        "column": "by",
    },
    "column-of-the-platform": {
        "columns": "_day",
    },
}
"""Name -> what the error of the first example fills in, if only the analysis of Spark finds it."""

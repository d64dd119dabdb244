"""Examples for the refusals of what functions do: pairs of a refused declaration and the same one written right.

An example is a file without its imports, or the expression that the function of one returns.
"""

from __future__ import annotations

from docs.parameter_examples import example


def _hours(aggregate: str, by: str = "", day: str = "", given: str = "") -> str:
    """Returns the example of a table that closes its rows after each hour."""
    return (
        f'@table({given})\ndef t(readings):\n    hour = F.window("read_at", "1 hour").alias("hour")\n'
        f'    hours = readings.groupBy("sensor", hour{by}).agg({aggregate})\n'
        f'    start, end = F.col("hour.start").alias("hour"), F.col("hour.end").alias("closes")\n'
        f'    return hours.select("sensor", {day}start, end, "n")\n'
    )


_CLOSED = 'event_time="read_at", depends_within="1 hour", closes_at="read_at"'
_OF_ALL = 'primary_key=["sensor"], recompute_by=[]'
_PAIRS = """\
@table(primary_key=["sensor", "read_at", "until"], {given})
def t(readings):
    other = readings.select(F.col("sensor").alias("same"), F.col("read_at").alias("until"))
    last = F.col("read_at") + F.expr("INTERVAL 1 HOUR")
    near = (F.col("sensor") == F.col("same")) & F.col("until").between(F.col("read_at"), last)
    return readings.join(other, near).select("sensor", "read_at", "until")
"""
FUNCTION_EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "impure-call-in-a-file": [
        (
            "from datetime import date\n\n\n" + example("", 'readings.where(F.col("read_at") < F.lit(date.today()))'),
            example("", 'readings.where(F.col("read_at") < F.lit("2026-01-31"))'),
        ),
        (
            "import random\n\n\n" + example("", "readings.where(F.lit(random.random()) < 0.1)"),
            example("", 'readings.where(F.pmod(F.hash("sensor", "read_at"), F.lit(10)) == 0)'),
        ),
        (
            "import os\n\n\n" + example("", 'readings.where(F.col("sensor") == os.getenv("SENSOR", "a"))'),
            example(
                'primary_key=["sensor", "read_at"]',
                'readings.join(newest.select("sensor"), "sensor")',
                "readings, newest",
            ),
        ),
    ],
    "call-that-is-not-known-to-be-pure": [
        (
            "from croniter import croniter\n\n\n"
            + example("", 'readings.where(F.col("sensor") == str(croniter.is_valid("* * * * *")))'),
            "from croniter import croniter\n\n\n"
            + example('pure=["croniter"]', 'readings.where(F.col("sensor") == str(croniter.is_valid("* * * * *")))'),
        )
    ],
    "reads-no-parameter": [
        (
            'sql("SELECT r.* FROM {r} AS r JOIN sensors AS n ON n.sensor = r.sensor", r=readings)',
            'sql("SELECT r.* FROM {r} AS r JOIN {n} AS n ON n.sensor = r.sensor", r=readings, n=newest)',
        )
    ],
    "pivot-without-values": [
        (
            'readings.groupBy("sensor").pivot("value").count()',
            'readings.groupBy("sensor").pivot("value", [1, 2]).count()',
        ),
        (
            'readings.select("sensor", "value").transpose("sensor")',
            'readings.groupBy("sensor").pivot("value", [1, 2]).agg(F.max("value"))',
        ),
    ],
    "order-in-what-is-not-read": [
        (
            'sql("SELECT *, first(value) OVER (ORDER BY n) x FROM {r} LATERAL VIEW explode(array(1)) n", r=readings)',
            'sql("SELECT *, lag(value) OVER (PARTITION BY sensor ORDER BY read_at) x FROM {r}", r=readings)',
        )
    ],
    "question-to-spark": [
        (
            'readings.where(F.col("value") == readings.agg(F.max("value")).first()[0])',
            'readings.join(readings.agg(F.max("value").alias("most")), F.col("value") == F.col("most"))',
        )
    ],
    "impure-function": [
        ('readings.withColumn("seen_at", F.current_timestamp())', 'readings.withColumn("seen_at", F.col("read_at"))'),
        ("readings.where(F.rand() < 0.1)", 'readings.where(F.pmod(F.hash("sensor"), F.lit(10)) == 0)'),
        (
            'sql("SELECT *, uuid() AS id FROM {r}", r=readings)',
            'sql("SELECT *, sha1(concat(sensor, read_at)) AS id FROM {r}", r=readings)',
        ),
    ],
    "no-such-column": [('readings.select("sensor", "valeu")', 'readings.select("sensor", "value")')],
    "result-that-depends-on-the-order-of-rows": [
        (
            'readings.groupBy("sensor").agg(F.stddev("value").alias("spread"))',
            (
                '@table(tolerances={"spread": 1e-9})\ndef t(readings):\n'
                '    return readings.groupBy("sensor").agg(F.stddev("value").alias("spread"))\n'
            ),
        )
    ],
    "sample": [("readings.sample(0.1)", 'readings.where(F.pmod(F.hash("sensor", "read_at"), F.lit(10)) == 0)')],
    "text-as-a-time-of-the-clock": [
        (
            'readings.where(F.col("read_at") > F.lit("today").cast("timestamp"))',
            'readings.where(F.col("read_at") > F.lit("2026-01-31").cast("timestamp"))',
        )
    ],
    "comparison-with-a-time-of-the-clock": [
        ('readings.where(F.col("read_at") > "yesterday")', 'readings.where(F.col("read_at") > "2026-01-31")')
    ],
    "time-of-day-as-a-timestamp": [
        (
            'readings.withColumn("seen", F.to_timestamp("sensor"))',
            'readings.withColumn("seen", F.to_timestamp("sensor", "yyyy-MM-dd HH:mm"))',
        )
    ],
    "limit-of-levenshtein-that-can-be-null": [
        (
            "readings.where(F.expr(\"levenshtein(sensor, 'kitchen', CAST(value AS INT)) >= 0\"))",
            'readings.where(F.levenshtein("sensor", F.lit("kitchen"), 3) >= 0)',
        )
    ],
    "seconds-of-any-size": [
        (
            'readings.withColumn("at", F.make_timestamp(*map(F.lit, [2026, 1, 31, 6, 30]), "value"))',
            'readings.withColumn("at", F.expr("make_timestamp(2026, 1, 31, 6, 30, try_cast(value AS decimal(8,6)))"))',
        )
    ],
    "text-of-a-value-of-unknown-type": [
        (
            'readings.withColumn("label", F.format_string("%s: %.1f", F.get(F.split("sensor", "-"), 0), "value"))',
            'readings.withColumn("label", F.format_string("%s: %.1f", "sensor", "value"))',
        )
    ],
    "order-on-a-stream": [
        (
            f'@table({_CLOSED})\ndef t(readings):\n    return readings.orderBy("value")\n',
            f"@table({_CLOSED})\ndef t(readings):\n    return readings\n",
        )
    ],
    "limit-on-a-stream": [
        (
            (
                f"@table({_OF_ALL}, {_CLOSED})\ndef t(readings):\n"
                '    whole = readings.agg(F.max("sensor").alias("sensor"), F.max("read_at").alias("read_at"))\n'
                "    return whole.limit(1)\n"
            ),
            (
                f"@table({_OF_ALL}, closes_at=None)\ndef t(readings):\n"
                '    whole = readings.agg(F.max("sensor").alias("sensor"), F.max("read_at").alias("read_at"))\n'
                "    return whole.limit(1)\n"
            ),
        )
    ],
    "several-time-windows": [
        (
            _hours(
                'F.count("*").alias("n")',
                by=', F.window("read_at", "1 day").alias("day")',
                day='F.col("day.start").alias("day"), ',
            ),
            _hours('F.count("*").alias("n")'),
        )
    ],
    "exact-count-of-distinct-values": [
        (
            _hours('F.count_distinct("value").alias("n")'),
            _hours('F.approx_count_distinct("value").alias("n")', given='tolerances={"n": 0.05}'),
        ),
        (
            _hours('F.count_distinct("value").alias("n")'),
            _hours('F.count_distinct("value").alias("n")', given="closes_at=None"),
        ),
    ],
    "window-function": [
        (
            (
                f'@table({_CLOSED})\ndef t(readings):\n    by = Window.partitionBy("sensor").orderBy("read_at")\n'
                '    return readings.withColumn("before", F.lag("value").over(by))\n'
            ),
            (
                f'@table({_CLOSED.partition(", depends")[0]}, recompute_by=["sensor"])\ndef t(readings):\n'
                '    by = Window.partitionBy("sensor").orderBy("read_at")\n'
                '    return readings.withColumn("before", F.lag("value").over(by))\n'
            ),
        )
    ],
    "an-input-read-twice": [(_PAIRS.format(given=_CLOSED), _PAIRS.format(given='recompute_by=["sensor"]'))],
    "comparison-by-collation": [
        (
            'readings.groupBy(F.collate("sensor", "UTF8_LCASE").alias("sensor")).agg(F.max("value").alias("x"))',
            'readings.groupBy(F.lower("sensor").alias("sensor")).agg(F.max("value").alias("x"))',
        )
    ],
    "drop-duplicates": [
        (
            'readings.dropDuplicates(["sensor"])',
            'readings.groupBy("sensor").agg(F.max_by("value", "read_at").alias("value"))',
        ),
        (
            'readings.dropDuplicates(["sensor"])',
            '@table(primary_key=["sensor"], sequence_by=["read_at"])\ndef t(readings):\n    return readings\n',
        ),
    ],
    "order-of-a-group": [
        (
            'readings.groupBy("sensor").agg(F.first("value").alias("value"))',
            'readings.groupBy("sensor").agg(F.min_by("value", "read_at").alias("value"))',
        ),
        (
            'readings.groupBy("sensor").agg(F.max_by("value", F.hour("read_at")).alias("x"))',
            'readings.groupBy("sensor").agg(F.max_by("value", F.struct(F.hour("read_at"), "value")).alias("x"))',
        ),
        (
            'readings.groupBy("sensor").agg(F.collect_list("value").alias("values"))',
            'readings.groupBy("sensor").agg(F.sort_array(F.collect_list("value")).alias("values"))',
        ),
        (
            'sql("SELECT sensor, mode(value) AS value FROM {r} GROUP BY sensor", r=readings)',
            'sql("SELECT sensor, mode(value, true) AS value FROM {r} GROUP BY sensor", r=readings)',
        ),
    ],
    "ties-over-a-window": [
        (
            'readings.withColumn("x", F.max_by("read_at", "value").over(Window.partitionBy("sensor")))',
            (
                'readings.withColumn("x", F.max_by("read_at", F.struct("value", "read_at"))'
                '.over(Window.partitionBy("sensor")))'
            ),
        )
    ],
    "window-without-a-total-order": [
        (
            'readings.withColumn("nth", F.row_number().over(Window.partitionBy("sensor").orderBy("value")))',
            'readings.withColumn("nth", F.row_number().over(Window.partitionBy("sensor").orderBy("value", "read_at")))',
        )
    ],
    "limit-without-a-total-order": [
        ('readings.orderBy("value").limit(10)', 'readings.orderBy("value", "sensor", "read_at").limit(10)')
    ],
}

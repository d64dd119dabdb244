"""What of a function's plan is a mistake, whether DataFrames say it or SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tables.declare.test_inference import edited, plant
from tests.tables.declared import a_table
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.analysis import rows_of
from twofold_algebra.spark_functions import AGGREGATES, GENERATORS, ROW, TIME_WINDOWS, WINDOW
from twofold_algebra.sql.impure_functions import IMPURE

KEYED = '@table(primary_key=["sensor"], recompute_by=["sensor"])\ndef t(readings):\n    return {body}\n'
GROUP = 'readings.groupBy("sensor").agg({call}.alias("x"))'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('readings.withColumn("x", F.expr("uniform(1, 5)"))', r"calls uniform\(\)"),
        ('readings.withColumn("x", F.expr("aes_encrypt(sensor, \'0000111122223333\')"))', r"calls aes_encrypt\(\)"),
        ('readings.withColumn("x", F.call_function("uuid"))', r"calls uuid\(\)"),
        ('readings.withColumn("x", F.unix_timestamp())', r"calls current_timestamp\(\)|calls unix_timestamp\(\)"),
        ('readings.withColumn("x", F.lit("now").cast("timestamp"))', "takes 'now' as a time"),
        ('readings.withColumn("x", F.lit("today UTC").cast("timestamp"))', "takes 'today UTC' as a time"),
        ('readings.withColumn("x", F.to_date(F.lit(" Yesterday")))', "takes ' Yesterday' as a time"),
        ('readings.where(F.col("read_at") > "yesterday")', "compares with 'yesterday': if the other side is a time"),
        ("readings.where(\"read_at BETWEEN 'today' AND 'tomorrow'\")", r"compares with 'today'.*\n.*by .like"),
        ('readings.where(F.col("read_at").isin("now"))', "compares with 'now'"),
        ('readings.withColumn("x", F.to_timestamp(F.lit("10:30")))', "takes '10:30' as a time"),
        ('readings.withColumn("x", F.lit("T10").cast("timestamp"))', "takes 'T10' as a time"),
        ("readings.where(\"read_at < TIMESTAMP '10:30'\")", "takes '10:30' as a time"),
        ('readings.where(F.col("read_at") < "10:30")', "takes '10:30' as a time"),
        ('readings.where(F.date_add("read_at", 1) < "10:30")', "compares with '10:30'"),
        ('readings.withColumn("x", F.coalesce("read_at", F.lit("10:30")))', "takes '10:30' as a time"),
        ('readings.withColumn("x", F.col("sensor").cast("timestamp"))', r"takes texts as timestamps by `cast`"),
        (
            'readings.withColumn("x", F.to_timestamp("sensor"))',
            r"as timestamps by `to_timestamp`.*\n.*Say their form",
        ),
        ('readings.where("sensor < read_at")', r"takes texts as timestamps by `<`"),
        (
            'readings.withColumn("x", F.get_json_object("sensor", "$.at").cast("timestamp"))',
            r"takes texts as timestamps by `cast`",
        ),
        ('readings.where("read_at < current_date")', r"calls current_date\(\)"),
        ('readings.sample(0.5).select("sensor")', r"uses sample\(\)"),
        ('readings.limit(10).select("sensor")', r"uses limit\(\)"),
        ('readings.orderBy("value").limit(10)', r"uses limit\(\) without a total order.*\n.*add sensor, read_at to"),
        ('sql("SELECT * FROM {readings} ORDER BY value LIMIT 3", readings=readings)', r"uses limit\(\) without"),
        (
            'readings.dropDuplicates(["sensor"])',
            r"calls dropDuplicates\(\) of some columns: it leaves open which read_at stays",
        ),
        (
            'readings.groupBy("sensor").pivot("value").count()',
            r"calls pivot\(\) without its values.*\nHint: Name the values",
        ),
        ('readings.crosstab("sensor", "value").withColumn("sensor", F.lit(1))', r"calls crosstab\(\): its columns are"),
        ('readings.transpose("sensor").withColumn("sensor", F.col("key"))', r"calls transpose\(\): its columns are"),
        (
            'sql("SELECT r.* FROM {r} AS r WHERE value NOT IN (SELECT value FROM {r} LIMIT 3)", r=readings)',
            r"uses limit\(\) without a total order",
        ),
        (
            'readings.withColumn("x", F.printf(F.lit("%d %s"), F.lit(1), F.split("sensor", "-")))',
            r"a value by printf\(\) that",
        ),
        (
            'readings.withColumn("x", F.expr("levenshtein(sensor, \'a\', int(value))"))',
            r"gives levenshtein\(\) a limit",
        ),
        (
            'readings.withColumn("x", F.expr("try_make_timestamp_ntz(2026, 1, 2, 3, 4, int(value))"))',
            r"gives try_make_timestamp_ntz\(\) seconds",
        ),
        (GROUP.format(call='F.first("value")'), r"calls first\(\) in a group"),
        (GROUP.format(call='F.collect_list("value")'), r"collect_list\(\).*\nHint: Use F.sort_array\(F.collect_list"),
        (GROUP.format(call='F.concat_ws(",", F.collect_list("value"))'), r"calls collect_list\(\)"),
        (GROUP.format(call='F.max_by("value", F.hour("read_at"))'), r"calls max_by\(\).*\nHint: Use a tie-break"),
        (GROUP.format(call='F.mode("value")'), r"calls mode\(\)"),
        (
            'readings.withColumn("x", F.mode("value").over(Window.partitionBy("sensor")))',
            r"calls mode\(\) over a window",
        ),
        (
            'sql("SELECT sensor, first(value) x FROM {r} LATERAL VIEW explode(array(1)) AS n GROUP BY 1", r=readings)',
            "uses first in what cannot be read, LATERALS in SQL text: .* no key that is written proves",
        ),
        ('sql("SELECT * FROM {r} TABLESAMPLE (3 ROWS)", r=readings)', "uses tablesample in what cannot be read"),
        (
            'sql("SELECT sensor FROM {r} LATERAL VIEW explode(array(1)) AS n", r=readings.limit(3))',
            r"uses limit\(\) without a total order",
        ),
        (
            'sql("SELECT * FROM {r} QUALIFY row_number() OVER (PARTITION BY sensor ORDER BY value) = 1", r=readings)',
            r"calls row_number\(\) without a total order",
        ),
        (
            'sql("SELECT lag(value) OVER (w ORDER BY value) x FROM {r} WINDOW w AS (PARTITION BY sensor)", r=readings)',
            r"calls lag\(\) without a total order",
        ),
        (GROUP.format(call='F.expr("first(if(value > 1, 1, 0))")'), r"calls first\(\) in a group"),
        ('readings.sampleBy("value", {1: 0.5}).select("sensor")', "uses sampleBy in what cannot be read"),
        (
            (
                'readings.withColumn("x", F.expr("value BETWEEN SYMMETRIC 2 AND 1")).withColumn("sensor", F.expr('
                '"lag(sensor) OVER (ORDER BY value BETWEEN SYMMETRIC 2 AND 1)"))'
            ),
            "uses lag in what cannot be read",
        ),
        (
            (
                'readings.withColumn("x", F.sum("value").over(Window.orderBy(F.expr("value BETWEEN SYMMETRIC 2 AND 1"))'
                ".rowsBetween(-1, 0)))"
            ),
            "uses rowsBetween in what cannot be read",
        ),
        (GROUP.format(call='F.expr("any_value(value)")'), r"calls any_value\(\)"),
        (GROUP.format(call='F.expr("listagg(sensor) WITHIN GROUP (ORDER BY read_at)")'), r"calls listagg\(\)"),
        (
            GROUP.format(call='F.expr("listagg(value) WITHIN GROUP (ORDER BY value DESC)")'),
            r"calls listagg\(\).*\n.*x.cast\('string'\)",
        ),
        (GROUP.format(call='F.expr("try_sum(count)")'), r"calls try_sum\(\).*\n.*F.sum"),
    ],
)
def test_what_gives_two_answers_is_refused(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        plant(tmp_path, mine=KEYED.format(body=body))


@pytest.mark.parametrize(
    "body",
    [
        'readings.groupBy(F.collate("sensor", "UTF8_LCASE").alias("sensor")).agg(F.count("*").alias("n"))',
        'readings.withColumn("sensor", F.col("sensor").cast("string collate UTF8_LCASE")).groupBy("sensor").count()',
        'readings.select(F.collate("sensor", "UNICODE_CI").alias("sensor")).distinct()',
        'readings.groupBy("sensor").agg(F.max(F.collate("sensor", "UTF8_LCASE")).alias("x"))',
        'sql("SELECT count(*) AS n, sensor COLLATE UTF8_LCASE AS sensor FROM {r} GROUP BY 2", r=readings)',
        'sql("SELECT cast(sensor AS string COLLATE UTF8_LCASE) AS sensor FROM {r} GROUP BY 1", r=readings)',
        'readings.withColumn("x", F.max("value").over(Window.partitionBy(F.collate("sensor", "UTF8_LCASE"))))',
    ],
)
def test_texts_that_a_collation_takes_for_one_make_no_group(tmp_path: Path, body: str) -> None:
    with pytest.raises(BadDeclaration, match=r"groups, joins or orders by a text with a collation.*\n.*F.lower"):
        plant(tmp_path, mine=KEYED.format(body=body))


@pytest.mark.parametrize(
    "body",
    [
        'readings.where(F.collate("sensor", "UTF8_LCASE") == "a").groupBy("sensor").agg(F.max("value").alias("x"))',
        'readings.groupBy(F.collate("sensor", "UTF8_BINARY").alias("sensor")).agg(F.max("value").alias("x"))',
        GROUP.format(call='F.sort_array(F.collect_list("value"))'),
        GROUP.format(call='F.size(F.collect_set("value"))'),
        GROUP.format(call='F.expr("listagg(sensor) WITHIN GROUP (ORDER BY sensor DESC)")'),
        GROUP.format(call='F.expr("percentile_cont(0.5) WITHIN GROUP (ORDER BY value)")'),
        GROUP.format(call='F.approx_count_distinct("value")'),
        GROUP.format(call='F.max_by("value", F.struct(F.hour("read_at"), "value"))'),
        GROUP.format(call='F.max_by("value", "read_at")'),
        GROUP.format(call='F.mode("value", True)'),
        'readings.withColumn("x", F.mode("value", True).over(Window.partitionBy("sensor")))',
        'readings.orderBy("value", "sensor", "read_at").limit(10)',
        'sql("SELECT * FROM {readings} ORDER BY read_at, sensor LIMIT 3", readings=readings)',
        'readings.where("sensor <> \'Join now()\'").dropDuplicates(["sensor", "read_at"])',
        'readings.where(F.col("sensor").like("today"))',
        'readings.withColumn("x", F.format_string("%s at %s", "sensor", F.hour("read_at")))',
        'readings.withColumn("x", F.printf(F.lit("%05.1f %%"), F.element_at(F.array("value"), 1)))',
        'readings.withColumn("x", F.levenshtein("sensor", F.lit("kitchen"), 3))',
        'readings.withColumn("x", F.make_timestamp(*map(F.lit, [2026, 1, 2, 3, 4, 5])))',
        'readings.withColumn("x", F.make_timestamp(*map(F.lit, [2026, 1, 2, 3, 4]), F.second("read_at")))',
        'readings.withColumn("x", F.expr("try_make_timestamp(2026, 1, 2, 3, 4, cast(value AS decimal(8,6)))"))',
        'readings.where(F.col("sensor") == "now and then")',
        'readings.where(F.col("sensor") == "10:30")',
        'sql("SELECT * FROM {r} QUALIFY row_number() OVER (PARTITION BY sensor ORDER BY read_at) = 1", r=readings)',
        'sql("SELECT *, lag(value) OVER w x FROM {r} WINDOW w AS (PARTITION BY sensor ORDER BY read_at)", r=readings)',
        GROUP.format(call='F.expr("sum(if(value > 1, 1, 0))")'),
        "sql(\"SELECT *, 'first(value)' AS x FROM {r} LATERAL VIEW explode(array(1)) AS n\", r=readings)",
        "readings.where(\"read_at < '2026-01-31 10:30'\")",
        'readings.withColumn("x", F.to_timestamp("sensor", "HH:mm"))',
        'readings.withColumn("x", F.concat(F.lit("2026-01-31 "), "sensor").cast("timestamp"))',
        'readings.withColumn("x", F.date_format("read_at", "yyyy-MM-dd HH:00").cast("timestamp"))',
        'readings.withColumn("x", (F.col("value") / 1000).cast("timestamp"))',
    ],
)
def test_what_gives_one_answer_is_accepted(tmp_path: Path, body: str) -> None:
    text = KEYED.format(body=body)
    if "groupBy" not in body:
        text = edited(text, '"sensor"], recompute_by=["sensor"]', '"sensor", "read_at"], recompute_by=[]')
    plant(tmp_path, mine=text)


ERROR = (
    "@table(primary_key=['sensor'], recompute_by=['sensor'], tolerances={given})\ndef t(readings):\n    return {body}\n"
)
SPREAD = [
    GROUP.format(call='F.stddev("value")'),
    GROUP.format(call='F.percentile_approx("value", 0.5)'),
    GROUP.format(call='F.expr("round(corr(value, value), 3)")'),
    GROUP.format(call='F.expr("hll_sketch_estimate(hll_sketch_agg(value))")'),
    GROUP.format(call='F.expr("avg(DISTINCT value)")'),
    'sql("SELECT sensor, var_pop(value) AS x FROM {r} GROUP BY sensor", r=readings)',
    'readings.groupBy("sensor").agg(F.kurtosis("value").alias("y")).select("sensor", (F.col("y") + 1).alias("x"))',
    'readings.groupBy("sensor").agg(F.skewness("value").alias("x")).union(readings.selectExpr("sensor", "0D AS x"))',
    'readings.groupBy("sensor").agg(F.expr("kll_sketch_merge_float(min(binary(sensor)), NULL)").alias("x"))',
    'readings.select("sensor", F.stddev("value").over(Window.partitionBy("sensor")).alias("x")).distinct()',
]


@pytest.mark.parametrize("body", SPREAD)
def test_the_error_of_a_value_that_depends_on_order_is_asked_for(tmp_path: Path, body: str) -> None:
    with pytest.raises(BadDeclaration, match=r"t makes x by \w+\(\): its result.*\n.*tolerances=\{\"x\": 1e-9\}"):
        plant(tmp_path / "exact", mine=ERROR.format(given="{}", body=body))
    plant(tmp_path / "near", mine=ERROR.format(given='{"x": 1e-9}', body=body))


BY_SENSOR = 'Window.partitionBy("sensor")'
ITEMS = 'readings.select("sensor", F.explode(F.array("value")).alias("item"))'
PARTLY = 'F.when(F.col("value") > 0, F.col("read_at"))'
OVER = 'sql("SELECT *, {} AS x FROM {{r}}", r=readings)'
FIRST = 'sql("SELECT sensor, count(*) AS n FROM {{r}} GROUP BY sensor ORDER BY {order} LIMIT 2", r=readings)'
PAIRS = 'readings.join(alarms.select("sensor", "alarm"), "sensor").orderBy({order}).limit(3)'
BOTH = """
    at, nothing = F.col("raised_at").alias("read_at"), F.lit(None).alias("newest")
    raised = alarms.select("sensor", at, F.lit(1).alias("is_alarm"), nothing)
    seen = readings.select("sensor", "read_at", F.lit(0).alias("is_alarm"), F.struct("value").alias("newest"))
    so_far = Window.partitionBy("sensor").orderBy({order}).rowsBetween(Window.unboundedPreceding, 0)
    both = raised.unionByName(seen, allowMissingColumns=True)
    return both.withColumn("newest", F.last("newest", {ignoring}).over(so_far))
"""


def plant_one(folder: Path, body: str) -> None:
    """A table of which any change recomputes all."""
    body = body if "return" in body else f"\n    return {body}\n"
    plant(folder, mine=f'@table(primary_key=["sensor"], recompute_by=[])\ndef t(readings, alarms):{body}')


@pytest.mark.parametrize(
    ("body", "lacking"),
    [
        ('readings.orderBy(-F.col("value")).limit(3)', "sensor, read_at"),
        ('readings.orderBy(F.date_trunc("hour", "read_at"), "sensor").limit(3)', "read_at"),
        (f'readings.withColumn("x", F.first("value").over({BY_SENSOR}.orderBy(F.lit(1))))', "read_at"),
        (f'readings.withColumn("x", F.lag("value").over({BY_SENSOR}.orderBy(F.to_date("read_at"))))', "read_at"),
        (f"readings.withColumn('x', F.row_number().over({BY_SENSOR}.orderBy({PARTLY})))", "read_at"),
        (f'readings.withColumn("x", F.sum("value").over({BY_SENSOR}.rowsBetween(-1, 0)))', "read_at"),
        (OVER.format("row_number() OVER (PARTITION BY sensor ORDER BY coalesce(value, 0))"), "read_at"),
        (FIRST.format(order="count(*)"), "sensor"),
        (FIRST.format(order="2"), "sensor"),
        (f'{ITEMS}.orderBy("item").limit(3)', "sensor"),
        (PAIRS.format(order='"read_at", "value"'), "sensor, alarm"),
        (BOTH.format(order='"read_at"', ignoring="True"), "is_alarm"),
        (BOTH.format(order='"read_at", "is_alarm"', ignoring="False"), "newest"),
    ],
)
def test_an_order_is_total_only_where_a_key_proves_it(tmp_path: Path, body: str, lacking: str) -> None:
    with pytest.raises(BadDeclaration, match=rf"without a total order.*\n.*add {lacking}"):
        plant_one(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        'readings.agg(F.max("sensor").alias("sensor")).limit(1)',
        'sql("SELECT max(value) AS sensor FROM {r} LIMIT 1", r=readings)',
        'sql("SELECT n AS sensor FROM (SELECT count(*) AS n FROM {r} LIMIT 5) WHERE n > 1", r=readings)',
        'readings.select(F.upper("sensor").alias("sensor"), F.lit(1).alias("b"), (F.col("b") + 1).alias("c"))',
        "sql(\"SELECT window.start, max(sensor) AS sensor FROM {r} GROUP BY window(read_at, '1 hour')\", r=readings)",
        'readings.select("sensor", F.window("read_at", "1 hour")).select("sensor", "window.start")',
        "readings.where(\"sensor <> 'Join now()'\")",
        OVER.format("last(value) IGNORE NULLS OVER (PARTITION BY sensor ORDER BY read_at)"),
        OVER.format("last(value IGNORE NULLS) OVER (PARTITION BY sensor ORDER BY value, read_at)"),
        FIRST.format(order="count(*), sensor"),
        FIRST.format(order="2, 1"),
        f'{ITEMS}.orderBy("item", "sensor").limit(3)',
        PAIRS.format(order='"read_at", "sensor", "alarm"'),
        BOTH.format(order='"read_at", "is_alarm"', ignoring="True"),
        (
            'readings.groupBy("sensor", "read_at", "value").count().orderBy("count", "read_at", "sensor").limit(3)'
            '.groupBy("sensor").agg(F.max("value").alias("x"))'
        ),
        'readings.groupBy("sensor", F.window("read_at", "1 hour")).count().orderBy("window.start", "sensor").limit(3)',
        f'readings.withColumn("x", F.max_by("value", "read_at").over({BY_SENSOR}))',
        OVER.format("sum(value) OVER (PARTITION BY sensor ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"),
    ],
)
def test_an_order_that_a_key_makes_total_is_accepted(tmp_path: Path, body: str) -> None:
    plant_one(tmp_path, body)


def test_ties_in_the_greatest_of_a_window_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDeclaration, match=r"calls max_by\(\) over a window: rows can be equal.*\n.*a tie-break"):
        plant_one(
            tmp_path, f'readings.withColumn("x", F.max_by("sensor", "value").over({BY_SENSOR}.orderBy("read_at")))'
        )


PAIRED = """\
@table(primary_key=["sensor", "read_at", "again_at"]{given})
def t(readings):
    again = readings.select(F.col("sensor").alias("same"), F.col("read_at").alias("again_at"))
    at, until = F.col("read_at"), F.col("read_at") + F.expr("INTERVAL 1 HOUR")
    near = (F.col("sensor") == F.col("same")) & F.col("again_at").between(at, until)
    return readings.join(again, near).select("sensor", "read_at", "again_at", until.alias("until"))
"""


def test_a_join_of_a_topic_with_itself_that_closes_is_refused(tmp_path: Path) -> None:
    assert plant(tmp_path / "open", mine=PAIRED.format(given="")).find_table("mine").closes_at is None
    closed = PAIRED.format(given=', event_time="read_at", depends_within="1 hour", closes_at="until"')
    with pytest.raises(
        BadDeclaration, match=r"t reads readings twice: a stream has one source.*\n.*write closes_at=None"
    ):
        plant(tmp_path / "closed", mine=closed)


@pytest.mark.spark
def test_each_function_of_spark_is_known(spark: object) -> None:
    """A function that a new version brings is one to put in its set."""
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}  # type: ignore[attr-defined]
    sets = [ROW, AGGREGATES, WINDOW, GENERATORS, IMPURE, TIME_WINDOWS]
    assert names - frozenset().union(*sets) == set(), "is each a function of one row, of several, or of chance?"
    twice = [name for n, one in enumerate(sets) for name in one if any(name in other for other in sets[n + 1 :])]
    assert twice == []


def test_a_function_that_only_spark_can_read_is_refused_where_it_asks() -> None:
    class Frame:
        def first(self) -> list[int]:
            return [1]

    def filtered(readings: Any) -> Any:
        return readings.first()

    with pytest.raises(BadDeclaration, match=r"hours\.py: asks Spark by first\(\).*keeps the answer"):
        rows_of(a_table(derive=filtered), {"readings": Frame()})  # type: ignore[dict-item]

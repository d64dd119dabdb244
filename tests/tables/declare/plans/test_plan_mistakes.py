"""What of a function's plan is a mistake, whether DataFrames say it or SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import BadDeclaration
from infra.sql.impure_functions import IMPURE
from tables.declare.plans.spark_functions import AGGREGATES, GENERATORS, ROW, TIME_WINDOWS, WINDOW
from tests.tables.declare.test_inference import edited, plant

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
        ('readings.where("read_at < current_date")', r"calls current_date\(\)"),
        ('readings.sample(0.5).select("sensor")', r"uses sample\(\)"),
        ('readings.limit(10).select("sensor")', r"uses limit\(\)"),
        ('readings.orderBy("value").limit(10)', r"uses limit\(\) without a total order.*\n.*add sensor, read_at to"),
        ('sql("SELECT * FROM {readings} ORDER BY value LIMIT 3", readings=readings)', r"uses limit\(\) without"),
        ('readings.dropDuplicates(["sensor"])', r"calls dropDuplicates\(\), which leaves open which read_at stays"),
        ('readings.groupBy("sensor").pivot("value").count()', r"calls pivot\(\) without its values.*\nHint: Name them"),
        (GROUP.format(call='F.first("value")'), r"calls first\(\) in a group"),
        (GROUP.format(call='F.collect_list("value")'), r"collect_list\(\).*\nHint: Use F.sort_array\(F.collect_list"),
        (GROUP.format(call='F.concat_ws(",", F.collect_list("value"))'), r"calls collect_list\(\)"),
        (GROUP.format(call='F.max_by("value", F.hour("read_at"))'), r"calls max_by\(\).*\nHint: Use a tie-break"),
        (GROUP.format(call='F.mode("value")'), r"calls mode\(\)"),
        (GROUP.format(call='F.expr("any_value(value)")'), r"calls any_value\(\)"),
    ],
)
def test_what_gives_two_answers_is_refused(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        plant(tmp_path, mine=KEYED.format(body=body))


@pytest.mark.parametrize(
    "body",
    [
        GROUP.format(call='F.sort_array(F.collect_list("value"))'),
        GROUP.format(call='F.size(F.collect_set("value"))'),
        GROUP.format(call='F.max_by("value", F.struct(F.hour("read_at"), "value"))'),
        GROUP.format(call='F.max_by("value", "read_at")'),
        GROUP.format(call='F.mode("value", True)'),
        'readings.orderBy("value", "sensor", "read_at").limit(10)',
        'sql("SELECT * FROM {readings} ORDER BY read_at, sensor LIMIT 3", readings=readings)',
        'readings.where("sensor <> \'Join now()\'").dropDuplicates(["sensor", "read_at"])',
    ],
)
def test_what_gives_one_answer_is_accepted(tmp_path: Path, body: str) -> None:
    text = KEYED.format(body=body)
    if "groupBy" not in body:
        text = edited(text, '"sensor"], recompute_by=["sensor"]', '"sensor", "read_at"], recompute_by=[]')
    plant(tmp_path, mine=text)


@pytest.mark.spark
def test_each_function_of_spark_is_known(spark: object) -> None:
    """A function that a new version brings is one to put in its set."""
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}  # type: ignore[attr-defined]
    sets = [ROW, AGGREGATES, WINDOW, GENERATORS, IMPURE, TIME_WINDOWS]
    assert names - frozenset().union(*sets) == set(), "is each a function of one row, of several, or of chance?"
    twice = [name for n, one in enumerate(sets) for name in one if any(name in other for other in sets[n + 1 :])]
    assert twice == []

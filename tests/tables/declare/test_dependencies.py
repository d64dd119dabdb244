"""Scopes follow from the plan: what is inferred holds, what is given is held against it, what is not read says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.tables.declare.test_inference import edited, inference_of, plant
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.declaration_files import mistakes_in

NTH = "row_number() OVER (PARTITION BY sensor ORDER BY read_at)"
NAMES = """\
@table(primary_key=["sensor"], recompute_by=["sensor"])
def names(alarms):
    return alarms.groupBy("sensor").agg(F.max("alarm").alias("boss"))
"""
OPTIONAL_FIRST = """\
@table(primary_key=["sensor", "read_at"])
def t(readings, names):
    known = names.select(F.col("sensor").alias("s"), "boss")
    return readings.join(known, F.col("s") == F.col("sensor"), "{how}")
"""
SAME_NAME = """\
@table(primary_key=["sensor", "who"])
def t(readings, names):
    led = names.select(F.col("boss").alias("sensor"), F.col("sensor").alias("who"))
    return readings.join(led, readings.sensor == led.sensor).select(readings.sensor, "who", "value")
"""


def scopes(tmp_path: Path, text: str, **more: str) -> dict[str, Any]:
    """What is inferred of the scopes of a table."""
    table = plant(tmp_path, mine=text, **more).find_table("mine")
    found = {"recompute_by": table.recompute_by, "scope_columns": table.scope_columns}
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f'readings.withColumn("nth", F.expr("{NTH}"))', {"recompute_by": ("sensor",)}),
        (f'readings.selectExpr("*", "{NTH} AS nth")', {"recompute_by": ("sensor",)}),
        (
            f'readings.withColumn("nth", F.expr("{NTH}")).groupBy("sensor").agg(F.max("nth").alias("n"))',
            {"recompute_by": ("sensor",)},
        ),
        (
            (
                'readings.withColumnRenamed("Sensor", "nation").withColumnRenamed("value", "sensor").groupBy("sensor")'
                '.agg(F.count("*").alias("n"))'
            ),
            {"recompute_by": ("sensor",), "scope_columns": {"readings": {"sensor": "value"}}},
        ),
        *(
            (
                f'sql("SELECT {trimmed} AS s, count(*) AS n FROM {{r}} GROUP BY 1", r=readings)',
                {"recompute_by": ("s",), "scope_columns": {"readings": {"s": scope}}},
            )
            for trimmed, scope in {
                "trim('x', sensor)": "trim('x', sensor)",
                "trim(BOTH 'x' FROM sensor)": "trim('x', sensor)",
                "trim(LEADING FROM sensor)": "ltrim(sensor)",
                "trim(TRAILING 'x' FROM sensor)": "rtrim('x', sensor)",
            }.items()
        ),
        (
            (
                'readings.withColumnsRenamed({"sensor": "value", "value": "sensor"}).groupBy("read_at")'
                '.agg(F.count("*").alias("n"))'
            ),
            {"recompute_by": ("read_at",)},
        ),
        (
            'readings.fillna("nobody", ["sensor"]).groupBy("sensor").agg(F.count("*").alias("n"))',
            {},
        ),
        (
            'readings.union(readings).groupBy(F.year("read_at").alias("year")).agg(F.count("*").alias("n"))',
            {"recompute_by": ("year",), "scope_columns": {"readings": {"year": "year(read_at)"}}},
        ),
        (
            'sql("SELECT value * 2 AS v, v + 1 AS w, max(value) AS m FROM {r} GROUP BY v, w HAVING m > 0", r=readings)',
            {
                "recompute_by": ("v", "w"),
                "scope_columns": {"readings": {"v": "(value * 2)", "w": "((value * 2) + 1)"}},
            },
        ),
        # A rank among all groups, in which each of them matters to each.
        (
            'sql("SELECT sensor, rank() OVER (ORDER BY count(*)) AS n FROM {r} GROUP BY sensor", r=readings)',
            {},
        ),
        (
            'sql("SELECT sensor, count(*) / max(value) AS n FROM {r} GROUP BY ALL", r=readings)',
            "GROUP BY ALL over more than columns and aggregates",
        ),
        (
            'sql("SELECT sensor, year(read_at) AS y, count(*) AS n FROM {r} GROUP BY ALL", r=readings)',
            {"recompute_by": ("sensor", "y"), "scope_columns": {"readings": {"y": "year(read_at)"}}},
        ),
        (
            'sql("SELECT r.* FROM {r} r WHERE 1 > (SELECT 1 / 2 FROM {r} s WHERE s.sensor = r.sensor)", r=readings)',
            {"recompute_by": ("sensor",)},
        ),
        ('sql("SELECT r.* FROM {r} AS r WHERE value > (SELECT avg(value) FROM {r})", r=readings)', {}),
        ('readings.groupBy("sensor").count().orderBy("count", "sensor").limit(3)', {}),
        (
            'readings.groupingSets([["sensor", "read_at"], ["sensor"]], "sensor", "read_at").agg(F.count("*"))',
            {"recompute_by": ("sensor",)},
        ),
        ('readings.distinct().groupBy("sensor").agg(F.count("*").alias("n"))', {"recompute_by": ("sensor",)}),
    ],
)
def test_scopes_follow_from_the_plan(tmp_path: Path, body: str, expected: dict[str, Any] | str) -> None:
    text = f"@table()\ndef t(readings):\n    return {body}\n"
    if isinstance(expected, str):
        with pytest.raises(BadDeclaration, match=expected):
            scopes(tmp_path, text)
        return
    assert scopes(tmp_path, text) == expected


@pytest.mark.parametrize("how", ["left", "inner", "full", "right", "left_semi"])
def test_a_join_is_by_its_whole_side_however_it_is_written(tmp_path: Path, how: str) -> None:
    text = edited(OPTIONAL_FIRST, "{how}", how)
    found = scopes(tmp_path, text, names=NAMES)
    if how == "full":
        assert found == {}, "no column that it returns has the value in which both inputs agree"
        return
    by = "s" if how == "right" else "sensor"
    assert found["recompute_by"] == (by,)
    assert found.get("scope_columns") == (
        {"readings": {"s": "sensor"}, "names": {"s": "sensor"}} if by == "s" else None
    )


def test_a_condition_on_a_list_of_inputs_is_one_of_their_join(tmp_path: Path) -> None:
    text = (
        '@table(primary_key=["sensor", "n"])\ndef t(readings, names):\n'
        '    text = "SELECT r.sensor, count(*) AS n FROM {r} AS r, {n} AS n WHERE n.boss = r.sensor"\n'
        '    return sql(text + " GROUP BY r.sensor", r=readings, n=names)\n'
    )
    assert scopes(tmp_path, text, names=NAMES) == {
        "recompute_by": ("sensor",), "scope_columns": {"names": {"sensor": "boss"}},
    }  # fmt: skip


def test_columns_of_one_name_are_those_of_their_frames(tmp_path: Path) -> None:
    assert scopes(tmp_path, SAME_NAME, names=NAMES) == {
        "recompute_by": ("sensor",), "scope_columns": {"names": {"sensor": "boss"}},
    }  # fmt: skip


def test_a_column_is_dropped_from_its_frame_alone(tmp_path: Path) -> None:
    text = edited(OPTIONAL_FIRST, '"{how}")', '"left").drop(known.s)')
    table = plant(tmp_path, mine=text, names=NAMES).find_table("mine")
    assert inference_of(table)["recompute_by"] == ("sensor",)


@pytest.mark.parametrize(
    ("body", "by", "message"),
    [
        ('readings.withColumn("n", F.rank().over(Window.partitionBy("sensor").orderBy("value")))', "value", "value"),
        ('readings.withColumn("n", F.rank().over(Window.orderBy("value")))', "sensor", "sensor"),
        ('readings.rollup("sensor", "value").agg(F.count("*").alias("n"))', "sensor", "sensor"),
        ('readings.cube("sensor", "value").agg(F.count("*").alias("n"))', "sensor", "sensor"),
        ('readings.groupBy("sensor").count().groupBy("count").agg(F.min("sensor").alias("sensor"))', "count", "count"),
        ('readings.selectExpr("sensor", "value", "explode(array(value)) AS tag")', "tag", "tag"),
    ],
)
def test_a_given_scope_that_the_plan_disproves_is_refused(tmp_path: Path, body: str, by: str, message: str) -> None:
    text = f'@table(primary_key=["sensor", "value"], recompute_by=["{by}"])\ndef t(readings):\n    return {body}\n'
    text = edited(text, '"sensor", "value"]', '"count"]') if by == "count" else text
    with pytest.raises(BadDeclaration, match=rf"contradicts t: a row depends on rows with another {message}"):
        plant(tmp_path, mine=text)


@pytest.mark.parametrize(
    "body",
    [
        'readings.selectExpr("sensor", "read_at", "explode(array(value)) AS tag")',
        'readings.select("sensor", "read_at", F.call_function("explode", F.array("value")).alias("tag"))',
    ],
)
def test_rows_that_are_multiplied_have_another_key(tmp_path: Path, body: str) -> None:
    with pytest.raises(BadDeclaration, match="the function makes several rows of one"):
        plant(tmp_path, mine=f"@table()\ndef t(readings):\n    return {body}\n")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('sql("SELECT sensor, read_at FROM {r} WHERE value > (SELECT 1)", r=readings)', "SQL text without FROM"),
        ('sql("SELECT r.*, value > (SELECT 1) AS b FROM {r} AS r LIMIT 1 BY sensor", r=readings)', "SQL text"),
        ('sql("SELECT * FROM {r} AS r JOIN {r} AS s ON r.value IN (SELECT 1 FROM {r})", r=readings)', "a subquery"),
        ('sql("SELECT * FROM ({r} LIMIT 3)", r=readings)', "SQL text"),
        (
            'sql("SELECT * FROM {r} PIVOT (sum(value) FOR (sensor, read_at) IN (1))", r=readings)',
            "PIVOT by more than the name of a column in SQL text",
        ),
        ('sql("SELECT * FROM {readings} TABLESAMPLE (10 PERCENT)", readings=readings)', "SAMPLE in SQL text"),
        ('sql("SELECT * FROM (FROM {readings}) TABLESAMPLE (1 ROWS)", readings=readings)', "SAMPLE in SQL text"),
        (
            'sql("SELECT * FROM {r} UNPIVOT ((v, w) FOR n IN ((value, value)))", r=readings)',
            "UNPIVOT of more than names of columns in SQL text",
        ),
        ('sql("SELECT * FROM {r} WHERE value BETWEEN SYMMETRIC 2 AND 1", r=readings)', "BETWEEN in SQL text"),
        ('readings.unpivot("sensor", ["value", "value"], "k", "v")', "UNPIVOT of one name twice"),
    ],
)
def test_what_is_not_understood_proves_nothing_and_says_what_it_was(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(BadDeclaration) as refused:
        plant(tmp_path, mine=f"@table()\ndef t(readings):\n    return {body}\n")
    said = [mistake.message for mistake in mistakes_in(refused.value)]
    assert any(re.search(f"cannot be inferred: the function uses .*{reason}", one) for one in said)


def test_a_window_by_another_time_has_no_distance_in_event_time(tmp_path: Path) -> None:
    given = 'primary_key=["hour"], event_time="hour", depends_within="1 hour", recompute_by=[]'
    by = 'timed.groupBy(F.window("other", "1 hour")).agg(F.count("*").alias("n"))'
    body = f'{by}.select(F.col("window.start").alias("hour"), "n")'
    timed = (
        '@table()\ndef timed(alarms):\n    return alarms.withColumn("other", F.expr("raised_at + INTERVAL 1 DAY"))\n'
    )
    with pytest.raises(BadDeclaration, match="makes windows by other, not by the event time"):
        plant(tmp_path, timed=timed, mine=f"@table({given})\ndef t(timed):\n    return {body}\n")


@pytest.mark.parametrize(
    ("at", "scope"),
    [
        ("F.try_to_timestamp('alarm', F.lit('yyyy'))", "day"),
        ("F.to_date('raised_at')", "at"),
        ("F.element_at(F.array('raised_at'), 1)", "day"),
    ],
)
def test_a_date_and_what_may_be_a_timestamp_are_no_one_scope(tmp_path: Path, at: str, scope: str) -> None:
    other = f'@table()\ndef other(alarms):\n    return alarms.withColumn("at", {at})\n'
    both = (
        '@table(primary_key=["day", "alarm"])\ndef t(readings, other):\n'
        '    days = readings.select(F.to_date("read_at").alias("day"))\n'
        '    return days.join(other, F.col("day") == F.col("at")).select("day", "alarm").distinct()\n'
    )
    registry = plant(tmp_path, other=other, t=both)
    assert registry.find_table("t").scope_in(registry.find_table("other"))[0] == scope

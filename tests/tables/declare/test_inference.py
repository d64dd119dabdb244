"""What a declaration leaves to its function is what its function does, and a contradiction is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.tables.declared import TOPIC_FILE, edited, proved, written
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.declaration_files import mistakes_in
from twofold.tables.declare.parameter_checks import BOUND
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Parameters, Table

ALARMS_FILE = '''\
"""Alarms of sensors."""
from twofold import Topic

TOPIC = Topic(
    schema={"alarm": "string", "sensor": "string", "raised_at": "timestamp"},
    event_time="raised_at",
    message_key="sensor",
    dedup_keys=["alarm"],
)
'''
HEAD = '"""A table."""\nfrom twofold import F, Window, sql, table\n\n\n'
HOURS = """\
@table(watermark="1 hour"{given})
def hours(readings):
    return readings.groupBy("sensor", F.window("read_at", "2 hours", "1 hour")).agg(F.count("*").alias("n")).select(
        F.col("window.start").alias("hour"), "sensor", F.col("window.end").alias("closes_at"), "n"
    )
"""
BY_WINDOW = """\
@table({given})
def t(readings):
    return readings.groupBy("sensor", {window}).agg(F.count("*").alias("n")){more}
"""
JOIN = """\
@table(primary_key=["alarm"]{given})
def alarmed(readings, alarms):
    r, a = readings.alias("r"), alarms.alias("a")
    near = F.col("a.raised_at").between(F.col("r.read_at"), F.col("r.read_at") + F.expr("INTERVAL 90 MINUTES"))
    return r.join(a, (F.col("r.sensor") == F.col("a.sensor")) & near, "{how}").select(
        "r.sensor", "alarm", F.col("r.read_at").alias("at"),
        (F.col("r.read_at") + F.expr("INTERVAL 90 MINUTES")).alias("until")
    )
"""
BY_ALARM = """\
@table(primary_key=["read_at"]{given})
def t(readings, alarms):
    r, a = readings.alias("r"), alarms.alias("a")
    return r.join(a, F.col("r.sensor") == F.col("a.alarm")).select("a.alarm", "r.read_at")
"""
SQL = """\
@table({given})
def t(readings):
    return sql("SELECT r.*, 1 AS one FROM {{readings}} AS r", readings=readings.where("value > 0")){more}
"""
INFERRED = ("primary_key", "event_time", "depends_within", "closes_at", "ends_at", "recompute_by", "scope_columns")


def plant(folder: Path, **tables: str) -> Any:
    """The topics `readings` and `alarms`, and these tables."""
    files = {"readings": TOPIC_FILE, "alarms": ALARMS_FILE, **{name: HEAD + text for name, text in tables.items()}}
    return proved(load(written(folder, {f"plant/{name}.py": text for name, text in files.items()})))


def inference_of(table: Table) -> dict[str, Any]:
    return {name: value for name in INFERRED if (value := getattr(table, name))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            HOURS.format(given=""),
            {
                "primary_key": ("sensor", "hour"),
                "event_time": "hour",
                "depends_within": "2 hours",
                "closes_at": "closes_at",
                "recompute_by": ("sensor",),
            },
            id="window",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    by = readings.withColumnRenamed("sensor", "of").groupBy(\n'
            '        "of", F.session_window("read_at", "6 hours"))\n'
            '    first, last = F.min("read_at").alias("first"), F.max("read_at").alias("last")\n'
            '    return by.agg(first, last).drop("session_window")\n',
            {
                "primary_key": ("of", "first"),
                "event_time": "first",
                "depends_within": "6 hours",
                "ends_at": "last",
                "recompute_by": ("of",),
                "scope_columns": {"readings": {"of": "sensor"}},
            },
            id="session of a renamed column",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    visit = F.session_window("read_at", "6 hours").alias("visit")\n'
            '    found = readings.groupBy("sensor", visit).agg(F.count("*").alias("n"))\n'
            '    first, last = F.col("visit.start").alias("first"), F.col("visit.end").alias("last")\n'
            '    return found.select("sensor", first, last, "n")\n',
            {
                "primary_key": ("sensor", "first"),
                "event_time": "first",
                "depends_within": "6 hours",
                "ends_at": "last",
                "recompute_by": ("sensor",),
            },
            id="session under another name",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    day = F.to_date(F.from_utc_timestamp("read_at", "America/New_York"))\n'
            '    return readings.withColumn("day", day).groupBy("sensor", "day").agg(F.avg("value").alias("mean"))\n',
            {
                "primary_key": ("sensor", "day"),
                "event_time": "day",
                "depends_within": "2 days",
                "recompute_by": ("sensor",),
            },
            id="days of a zone",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return readings.groupBy("sensor", F.col("value") > 0).agg(F.count("*"))\n',
            "groups by an expression, which it does not return",
            id="an expression without a name",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return readings.groupBy("sensor").agg(F.max("value").alias("greatest"))\n',
            {"primary_key": ("sensor",), "recompute_by": ("sensor",)},
            id="group without a time",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    at = F.col("read_at").alias("at")\n'
            '    return readings.where("value > 0").select("sensor", at)\n',
            {
                "primary_key": ("sensor", "at"),
                "event_time": "at",
                "recompute_by": ("sensor", "at"),
                "scope_columns": {"readings": {"at": "read_at"}},
            },
            id="projection",
        ),
        pytest.param(
            '@table(primary_key=["sensor"], sequence_by=["read_at"])\ndef t(readings):\n    return readings\n',
            {"primary_key": ("sensor",), "recompute_by": ("sensor",)},
            id="latest",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return readings.select("sensor", "value")\n',
            "the result lacks read_at of readings",
            id="projection without its identity",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return readings.select("*", F.explode(F.array("value")).alias("one"))\n',
            "the function makes several rows of one",
            id="explode",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    most = readings.groupBy("sensor").agg(F.max("value").alias("most"))\n'
            '    return most.select("sensor", F.explode(F.array("most")).alias("one"))\n',
            "the function makes several rows of one",
            id="explode of a group",
        ),
        pytest.param(
            '@table(sequence_by=["read_at"])\ndef t(readings):\n    return readings\n',
            "groups the rows whose greatest is kept",
            id="latest of what",
        ),
        pytest.param(
            "@table()\ndef t(readings):\n"
            '    before = F.lag("value").over(Window.partitionBy("sensor").orderBy("read_at"))\n'
            '    return readings.withColumn("before", before)\n',
            {"primary_key": ("sensor", "read_at"), "recompute_by": ("sensor",)},
            id="window function",
        ),
        pytest.param(
            "@table()\ndef t(readings):\n    return readings.select(readings.columns)\n",
            {"primary_key": ("sensor", "read_at"), "event_time": "read_at", "recompute_by": ("sensor", "read_at")},
            id="a function that asks for columns",
        ),
        pytest.param(
            "@table()\ndef t(readings):\n    texts = [name for name, kind in readings.dtypes if kind == 'string']\n"
            '    return readings.groupBy(texts).agg(F.count("*").alias("n"))\n',
            {"primary_key": ("sensor",), "recompute_by": ("sensor",)},
            id="a function that asks for types",
        ),
        pytest.param(
            "@table()\ndef t(readings):\n    kinds = dict(readings.withColumn('x', F.schema_of_json('{}')).dtypes)\n"
            '    return readings.where(F.lit(kinds["x"] == "string"))\n',
            "cannot be read without running Spark .*the type of x, which only Spark knows",
            id="a function that asks for a type that is not known",
        ),
        pytest.param(
            '@table(primary_key=["sensor", "read_at"], recompute_by=[])\ndef t(readings):\n'
            '    most = readings.agg(F.max("value")).first()[0]\n'
            '    return readings.where(F.col("value") == F.lit(most))\n',
            r"asks Spark by first\(\): a refresh calls the function over no rows, and keeps the answer",
            id="a function that asks for rows",
        ),
        pytest.param(
            edited(HOURS.format(given=""), 'window("read_at"', 'window(F.to_timestamp("sensor", "yyyy")'),
            {"primary_key": ("sensor", "hour"), "recompute_by": ("sensor",)},
            id="window over another time",
        ),
        pytest.param(
            edited(HOURS.format(given=""), 'F.col("window.start").alias("hour"), ', ""),
            "groups by the start of its window, which it does not return",
            id="window without its start",
        ),
        pytest.param(
            BY_WINDOW.format(given="", window='F.window("read_at", "2 hours", "1 hour")', more=""),
            {
                "primary_key": ("sensor", "window_start"),
                "event_time": "window_start",
                "depends_within": "2 hours",
                "closes_at": "window_end",
                "recompute_by": ("sensor",),
            },
            id="window that is returned itself",
        ),
        pytest.param(
            BY_WINDOW.format(
                given='primary_key=["visit_start", "sensor"]',
                window='F.session_window("read_at", "6 hours").alias("visit")',
                more="",
            ),
            {
                "primary_key": ("visit_start", "sensor"),
                "event_time": "visit_start",
                "depends_within": "6 hours",
                "ends_at": "visit_end",
                "recompute_by": ("sensor",),
            },
            id="session that is returned itself, under another name",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return sql("SELECT sensor, window, count(*) AS n FROM {readings}'
            " GROUP BY sensor, window(read_at, '1 hour')\", readings=readings)\n",
            {
                "primary_key": ("sensor", "window_start"),
                "event_time": "window_start",
                "depends_within": "1 hour",
                "closes_at": "window_end",
                "recompute_by": ("sensor",),
            },
            id="window that SQL returns itself",
        ),
        pytest.param(
            BY_WINDOW.format(given='primary_key=["window", "sensor"]', window='F.window("read_at", "1 hour")', more=""),
            {"primary_key": ("window", "sensor"), "recompute_by": ("sensor",)},
            id="window that is the key as it is",
        ),
        pytest.param(
            BY_WINDOW.format(
                given="",
                window='F.window("read_at", "1 hour")',
                more='.withColumn("window_end", F.col("window.end"))',
            ),
            "groups by the start of its window, which it does not return",
            id="window with a column that is called as its end",
        ),
        pytest.param(
            JOIN.format(given="", how="left"),
            {
                "primary_key": ("alarm",),
                "event_time": "at",
                "depends_within": "90 minutes",
                "closes_at": "until",
                "recompute_by": ("sensor",),
            },
            id="left join",
        ),
        pytest.param(
            edited(
                JOIN.format(given=', recompute_by=["sensor"]', how="right"),
                '"r.sensor", "alarm"',
                '"a.sensor", "alarm"',
            ),
            {"primary_key": ("alarm",), "recompute_by": ("sensor",)},
            id="right join, whose left time can be null",
        ),
        pytest.param(
            JOIN.format(given="", how="full"),
            {"primary_key": ("alarm",)},
            id="full join, of which the left column can be null",
        ),
        pytest.param(
            '@table(primary_key=["alarm"])\ndef t(readings, alarms):\n    both = readings.join(alarms, "sensor")\n'
            '    return both.select("sensor", "alarm")\n',
            {"primary_key": ("alarm",), "recompute_by": ("sensor",)},
            id="join without a bound",
        ),
        pytest.param(
            BY_ALARM.format(given=""),
            {
                "primary_key": ("read_at",),
                "recompute_by": ("alarm",),
                "scope_columns": {"readings": {"alarm": "sensor"}},
            },
            id="join of columns with different names",
        ),
        pytest.param(
            BY_ALARM.format(given=', recompute_by=["alarm"], scope_columns={"readings": {"alarm": "sensor"}}'),
            {
                "primary_key": ("read_at",),
                "recompute_by": ("alarm",),
                "scope_columns": {"readings": {"alarm": "sensor"}},
            },
            id="the same, given",
        ),
        pytest.param(
            BY_ALARM.format(given=', recompute_by=["alarm"], scope_columns={"reading": {"alarm": "sensor"}}'),
            "expected inputs, and columns of recompute_by.\nHint: The inputs are readings, alarms",
            id="other names in an input that is not read",
        ),
        pytest.param(
            BY_ALARM.format(given=', recompute_by=["alarm"], scope_columns={"readings": {"alarm": "sensors"}}'),
            "scope_columns has alarm='sensors' of readings, which contradicts t: by the function it is sensor",
            id="other names that the input lacks",
        ),
        pytest.param(
            edited(BY_ALARM.format(given=""), '"a.alarm", "r.read_at"', '"a.*"'),
            "primary_key names read_at: t does not return it.\nHint: Did you mean 'raised_at'",
            id="all columns of one side",
        ),
        pytest.param(
            '@table(event_time="raised_at")\ndef t(alarms):\n'
            '    latest = F.max(F.struct("raised_at", "alarm")).alias("latest")\n'
            '    return alarms.groupBy("sensor").agg(latest).select("sensor", "latest.*")\n',
            {"primary_key": ("sensor",), "event_time": "raised_at", "recompute_by": ("sensor",)},
            id="all fields of a struct",
        ),
        pytest.param(
            edited(JOIN.format(given="", how="inner"), 'primary_key=["alarm"]', ""),
            "needs primary_key, which cannot be inferred: the result lacks raised_at of alarms",
            id="key of a join",
        ),
        pytest.param(
            edited(
                edited(JOIN.format(given="", how="left"), 'primary_key=["alarm"]', ""),
                '"alarm"',
                '"alarm", "raised_at"',
            ),
            {
                "primary_key": ("sensor", "at", "alarm", "raised_at"),
                "event_time": "at",
                "depends_within": "90 minutes",
                "closes_at": "until",
                "recompute_by": ("sensor",),
            },
            id="key of a join that returns those of both sides",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return readings.agg(F.count("*").alias("n"))\n',
            {"primary_key": ("n",)},
            id="one row of all",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return readings.agg(F.sum("value").alias("s"))\n',
            r"needs primary_key, which cannot be inferred: the function makes one row of all.*\n"
            r'Hint: .*F.lit\(1\)\), primary_key=\["id"\]',
            id="one row of all, of a sum that depends on the order of rows",
        ),
        pytest.param(
            '@table(primary_key=["id"], recompute_by=[], depends_within="1 hour", event_time="at")\ndef t(readings):\n'
            '    whole = readings.agg(F.count("*").alias("n"), F.max("read_at").alias("at"))\n'
            '    return whole.withColumn("id", F.lit(1))\n',
            {"primary_key": ("id",), "event_time": "at", "depends_within": "1 hour"},
            id="one row of all with a constant key",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    of_each = Window.partitionBy("sensor").orderBy("read_at")\n'
            '    return readings.withColumn("nth", F.row_number().over(of_each)).where("nth = 1").select("sensor")\n',
            {"primary_key": ("sensor",), "recompute_by": ("sensor",)},
            id="the first row of each",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    day = F.year("read_at").alias("year")\n'
            '    return readings.rollup("sensor", day).agg(F.count("*").alias("n"))\n',
            "of `rollup`, `cube` or grouping sets the function does not return grouping_id",
            id="sets of groups that a null value may confuse",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return readings.rollup("sensor").agg(F.count("*").alias("n"))\n',
            {"primary_key": ("sensor",)},
            id="sets of groups by what is never null",
        ),
        pytest.param(
            SQL.format(given="", more=""),
            {"primary_key": ("sensor", "read_at"), "event_time": "read_at", "recompute_by": ("sensor", "read_at")},
            id="SQL text",
        ),
        pytest.param(
            SQL.format(given="", more='.groupBy("sensor").agg(F.max("value").alias("most"))'),
            {"primary_key": ("sensor",), "recompute_by": ("sensor",)},
            id="a group of what SQL text makes",
        ),
        pytest.param(
            SQL.format(given="", more="").replace("r.*", "value, (SELECT max(value) FROM {readings}) AS r"),
            "cannot be inferred: the result lacks sensor, read_at of readings, which identify its rows",
            id="a subquery in SQL text",
        ),
        pytest.param(
            SQL.format(given='primary_key=["read_at", "sensor"], recompute_by=["sensor"]', more=""),
            {"primary_key": ("read_at", "sensor"), "event_time": "read_at", "recompute_by": ("sensor",)},
            id="SQL text with what it needs",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    return sql("""WITH readings AS (SELECT concat(sensor, \'x\') AS sensor '
            "FROM {readings})\n    SELECT sensor, count(*) AS n FROM {readings} GROUP BY sensor"
            '""", readings=readings.where("value > 0"))\n',
            {"primary_key": ("sensor",), "recompute_by": ("sensor",)},
            id="an input by its own name, where WITH has the same one",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    text = "SELECT sensor, count(*) AS n FROM {r} GROUP BY 1"\n'
            "    return readings.sparkSession.sql(text, r=readings)\n",
            {"primary_key": ("sensor",), "recompute_by": ("sensor",)},
            id="SQL text of a session",
        ),
        pytest.param(
            '@table()\ndef t(readings):\n    kind = F.when(F.col("value") > 1, "high").otherwise("low").alias("kind")\n'
            '    return readings.groupBy(kind).agg(F.count("*").alias("n"))\n',
            {
                "primary_key": ("kind",),
                "recompute_by": ("kind",),
                "scope_columns": {"readings": {"kind": "CASE WHEN (value > 1) THEN 'high' ELSE 'low' END"}},
            },
            id="a group by a choice",
        ),
        pytest.param(
            '@table(primary_key=["hour"], recompute_by=["hour"])\ndef t(readings):\n    '
            'text = "SELECT extract(HOUR FROM read_at) AS hour, count(*) AS n FROM {r} GROUP BY 1"\n    '
            "return sql(text, r=readings)\n",
            {
                "primary_key": ("hour",),
                "recompute_by": ("hour",),
                "scope_columns": {"readings": {"hour": "extract(HOUR FROM read_at)"}},
            },
            id="a group by a part of a time",
        ),
        pytest.param(
            SQL.format(given='primary_key=["sensor"], recompute_by=[]', more="").replace("r.*", "rand() AS r"),
            "t calls rand",
            id="chance in SQL text",
        ),
    ],
)
def test_parameters_follow_from_the_plan(tmp_path: Path, text: str, expected: dict[str, Any] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(BadDeclaration, match=expected):
            plant(tmp_path, mine=text)
        return
    table = plant(tmp_path, mine=text).find_table("mine")
    assert inference_of(table) == expected
    given = {name for name in INFERRED if f"{name}=" in text}
    assert {*table.inferred} | given == {*expected} | {"recompute_by"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('primary_key=["sensor"]', r"primary_key=\['sensor'\] contradicts hours: it groups by sensor, hour"),
        ('primary_key=["sensor"], sequence_by=["hour"], depends_within="3 hours"', None),
        ('recompute_by=["n"]', r"recompute_by=\['n'\] contradicts hours: a row depends on rows with another n"),
        (
            'depends_within="1 hour"',
            "depends_within='1 hour' contradicts hours: in it rows depend on rows that are 2 hours away",
        ),
        ('event_time="our"', "event_time names our: hours does not return it"),
        ('primary_key=["sensor", "hour"], depends_within="3 hours", recompute_by=[]', None),
    ],
)
def test_a_given_parameter_is_held_against_the_plan(tmp_path: Path, given: str, message: str | None) -> None:
    text = HOURS.format(given=", " + given)
    if message is None:
        assert plant(tmp_path, mine=text).find_table("mine").depends_within == "3 hours"
        return
    with pytest.raises(BadDeclaration, match=message):
        plant(tmp_path, mine=text)


KEYED = "@table(primary_key={key}{more})\ndef t(readings):\n    return readings{body}\n"
NUMBERED = '.select("sensor", "read_at", F.{explode}(F.array("value")).alias({names}))'


@pytest.mark.parametrize(
    ("key", "more", "body", "lacking"),
    [
        (["sensor"], "", "", "read_at"),
        (["sensor"], "", '.select("sensor", "value")', "value"),
        (["sensor", "day"], "", '.withColumn("day", F.to_date("read_at"))', "read_at"),
        (["sensor", "read_at"], "", NUMBERED.format(explode="explode", names='"x"'), "x"),
        (["sensor", "read_at"], "", NUMBERED.format(explode="posexplode", names='"nth", "x"'), "nth"),
        (["sensor"], ', sequence_by=["read_at"]', "", None),
        (["sensor", "read_at"], "", '.withColumn("twice", F.col("value") * 2)', None),
        (["sensor", "read_at", "nth"], "", NUMBERED.format(explode="posexplode", names='"nth", "x"'), None),
        (["sensor"], "", '.groupBy("sensor").agg(F.max("value").alias("most"))', None),
    ],
)
def test_a_key_that_keeps_any_row_of_several_is_refused(
    tmp_path: Path, key: list[str], more: str, body: str, lacking: str | None
) -> None:
    text = KEYED.format(key=key, more=f', recompute_by=["sensor"]{more}', body=body)
    if lacking is None:
        assert plant(tmp_path, mine=text).find_table("mine").primary_key == tuple(key)
        return
    expected = rf"does not identify a row.*\n.*sequence_by=\[...\].*group by the key, or add {lacking} to it"
    with pytest.raises(BadDeclaration, match=expected):
        plant(tmp_path, mine=text)


def test_all_that_is_wrong_with_a_table_is_said_at_once(tmp_path: Path) -> None:
    given = ', primary_key=["place"], event_time="at", depends_within="1 hour", recompute_by=["n"]'
    with pytest.raises(BadDeclaration) as refused:
        plant(tmp_path, mine=HOURS.format(given=given))
    assert [mistake.message.partition(": ")[2] for mistake in mistakes_in(refused.value)] == [
        "primary_key names place: hours does not return it.",
        "event_time names at: hours does not return it.",
        "primary_key=['place'] contradicts hours: it groups by sensor, hour.",
        "recompute_by=['n'] contradicts hours: a row depends on rows with another n.",
        "depends_within='1 hour' contradicts hours: in it rows depend on rows that are 2 hours away.",
    ]


def test_what_is_inferred_and_what_is_given_are_one_definition(tmp_path: Path) -> None:
    given = ', primary_key=["sensor", "hour"], event_time="hour", depends_within="2 hours", recompute_by=["sensor"]'
    registry = plant(tmp_path, short=HOURS.format(given=""), long=HOURS.format(given=given))
    assert fingerprint(registry.find_table("short")) == fingerprint(registry.find_table("long"))
    assert registry.find_table("short").redundant == ()
    assert registry.find_table("long").redundant == ("primary_key", "recompute_by", "event_time", "depends_within")
    longer = plant(tmp_path / "longer", mine=HOURS.format(given=', depends_within="3 hours", recompute_by=[]'))
    assert longer.find_table("mine").redundant == ()
    wider = plant(tmp_path / "wider", short=edited(HOURS.format(given=""), '"2 hours", ', '"3 hours", '))
    assert wider.find_table("short").depends_within == "3 hours"


def test_no_table_of_ours_says_what_its_function_says() -> None:
    assert {name: table.redundant for name, table in load().tables.items() if table.redundant} == {}


def test_a_table_of_a_table_takes_the_key_of_its_input(tmp_path: Path) -> None:
    again = edited(HOURS.format(given=""), "readings", "raw")
    raw = '@table()\ndef raw(readings):\n    return readings.withColumn("twice", F.col("value") * 2)\n'
    registry = plant(tmp_path, raw=raw, mine=again, copied="@table()\ndef copied(mine):\n    return mine\n")
    assert inference_of(registry.find_table("mine")) == {
        "primary_key": ("sensor", "hour"),
        "event_time": "hour",
        "depends_within": "2 hours",
        "recompute_by": ("sensor",),
    }
    assert inference_of(registry.find_table("copied")) == {
        "primary_key": ("sensor", "hour"), "event_time": "hour", "recompute_by": ("sensor", "hour"),
    }  # fmt: skip


def test_rows_that_depend_on_others_need_no_invented_range(tmp_path: Path) -> None:
    ranked = (
        '@table(primary_key=["sensor", "read_at"], recompute_by=["sensor"])\ndef ranked(readings):\n'
        '    rank = F.rank().over(Window.partitionBy("sensor").orderBy("value"))\n'
        '    return readings.withColumn("nth", rank)\n'
    )
    registry = plant(tmp_path, ranked=ranked, each="@table()\ndef each(readings):\n    return readings\n")
    assert registry.strategy(registry.find_table("ranked")) == "touched"
    assert registry.strategy(registry.find_table("each")) == "append"


def test_a_table_without_parentheses_is_what_one_without_parameters_is(tmp_path: Path) -> None:
    text = BY_WINDOW.format(given="", window='F.window("read_at", "1 hour")', more="")
    bare, called = (
        plant(tmp_path / name, t=written_so).find_table("t")
        for name, written_so in [("bare", edited(text, "@table()", "@table")), ("called", text)]
    )
    assert inference_of(bare) == inference_of(called) != {}
    assert (bare.full_name, fingerprint(bare)) == ("plant.t", fingerprint(called))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "@table\ndef t(readings):\n    return readings.select('value')\n",
            "needs primary_key, which cannot be inferred",
        ),
        ("@table('1 hour')\ndef t(readings):\n    return readings\n", "'1 hour'.: expected parameters by their names"),
    ],
)
def test_a_table_without_what_it_needs_says_so(tmp_path: Path, text: str, refusal: str) -> None:
    with pytest.raises(BadDeclaration, match=refusal):
        plant(tmp_path, t=text)


UNREAD = """\
@table(primary_key=["sensor", "nth"], recompute_by=["sensor"])
def unread(readings):
    return readings.mapInArrow(lambda batches: batches, "sensor string, nth int")
"""


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ("unread", ("sensor", "nth")),
        ("unread.where('nth > 1').withColumn('twice', F.col('nth') * 2)", ("sensor", "nth")),
        ("unread.withColumn('n', F.lit(1)).select('nth', F.col('sensor').alias('device'))", ("device", "nth")),
        ("unread.select('*', 'sensor')", ("sensor", "nth")),
        ("unread.select('sensor')", "the result lacks nth of unread"),
        ("unread.drop('nth')", "whether the result has nth of unread is not known"),
        ("unread.withColumn('nth', F.lit(1))", "whether the result has nth of unread is not known"),
    ],
)
def test_what_only_spark_can_read_may_make_a_row_of_several(tmp_path: Path, body: str, key: Any) -> None:
    above = f"@table()\ndef above(unread):\n    return {body}\n"
    if isinstance(key, str):
        with pytest.raises(BadDeclaration, match=key):
            plant(tmp_path, unread=UNREAD, above=above)
        return
    registry = plant(tmp_path, unread=UNREAD, above=above)
    assert registry.find_table("above").primary_key == key
    assert registry.strategy(registry.find_table("unread")) == "touched", "a stream would call it with new rows alone"


def test_what_is_inferred_is_kept_next_to_the_code_until_that_changes(tmp_path: Path) -> None:
    above = "@table()\ndef above(mine):\n    return mine\n"
    plant(tmp_path, mine=HOURS.format(given=""), above=above)
    kept = tmp_path / "plant" / "__pycache__" / "mine.inferred.json"
    first = json.loads(kept.read_text())
    assert (first["parameters"]["depends_within"], first["columns"]) == (
        "2 hours",
        ["hour", "sensor", "closes_at", "n"],
    )
    script = (
        "import sys; from pathlib import Path; from twofold.tables.declare.registry import load; "
        f"print(load(Path({str(tmp_path)!r})).find_table('mine').depends_within, 'pyspark' in sys.modules)"
    )

    def loaded() -> str:
        return subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    assert loaded() == "2 hours False\n"
    file = tmp_path / "plant" / "mine.py"
    file.write_text(edited(file.read_text(), '"2 hours", ', '"4 hours", '))
    assert loaded() == "4 hours True\n"
    kept.write_text("{")
    assert loaded() == "4 hours True\n"
    assert loaded() == "4 hours False\n"


def test_every_parameter_that_a_table_has_can_be_given() -> None:
    own = BOUND | {"derive"}
    assert list(Parameters.__annotations__) == [f.name for f in fields(Table) if f.name not in own]

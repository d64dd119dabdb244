"""Typical mistakes of declarations: each is found by `check`, with a message, a hint and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Cli, Ran
from tests.tables.declared import edited, written
from twofold.infra.encodings import schema_files
from twofold.tables.declare import registry
from twofold.tables.declare.analysis import analyse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = '''\
"""Readings."""
from twofold import Topic, between, unique

TOPIC = Topic(
    schema={"sensor": "string", "read_at": "timestamp", "value": "double?"},
    event_time="read_at",
    message_key="sensor",
    dedup_keys=["sensor"],
)
'''
IMPORTS = "from twofold import F, Window, between, expression, not_null, table\n"
HOURS = (
    'readings.groupBy("sensor", F.window("read_at", "1 hour")).agg(F.sum("value").alias("total")).select('
    '"sensor", F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at"), "total")'
)
KEPT = 'readings.select("sensor", "read_at", "value")'

KEPT_BY_SENSOR = f'''\
"""Readings that are kept."""
{IMPORTS}

@table(primary_key=["sensor"], sequence_by=["read_at"])
def kept(readings):
    return {KEPT}
'''


def a_table(
    rows: str = HOURS, parameters: str = "", above: str = "", name: str = "hours", reads: str = "readings"
) -> str:
    return f'"""A table."""\n{above}{IMPORTS}\n\n@table({parameters})\ndef {name}({reads}):\n    return {rows}\n'


def a_topic(before: str, after: str) -> str:
    return edited(TOPIC, before, after)


@dataclass(frozen=True)
class Mistake:
    """A text of `plant/hours.py`, or of the files of that name, and what `check` must say of it."""

    text: str | Mapping[str, str]
    message: str
    hint: str = ""

    @property
    def files(self) -> dict[str, str]:
        texts = {"hours": self.text} if isinstance(self.text, str) else self.text
        return {f"plant/{name}.py": text for name, text in {"readings": TOPIC, **texts}.items()}


def ranked(order: str) -> str:
    by = f'Window.partitionBy("value"){order}'
    return f'readings.withColumn("nth", F.row_number().over({by})).where("nth = 1")'


FOLLOWED = 'primary_key=["sensor"], recompute_by=["sensor"]'
BY_TIME = 'primary_key=["sensor", "read_at"], recompute_by=["sensor"]'
LATEST = f'{FOLLOWED}, sequence_by=["read_at"]'
OPEN = (
    'primary_key=["sensor", "hour"], event_time="hour", closes_at="closes_at", '
    'depends_within="1 hour", recompute_by=["sensor"]'
)
WITHOUT_SPARK: Mapping[str, Mistake] = {
    "a type that there is not": Mistake(
        {"readings": a_topic("double?", "doubel")}, "value has the type 'doubel'", "Did you mean 'double'?"
    ),
    "an event time that is no column": Mistake(
        {"readings": a_topic('event_time="read_at"', 'event_time="at"')},
        "event_time names at",
        "It has sensor, read_at",
    ),
    "an event time that is a text": Mistake(
        {"readings": a_topic('event_time="read_at"', 'event_time="sensor"')}, "event_time='sensor' is declared 'string'"
    ),
    "no identity": Mistake({"readings": a_topic('["sensor"]', "[]")}, "dedup_keys is empty", "Name the columns"),
    "one column where a list is expected": Mistake(
        {"readings": a_topic('["sensor"]', '"sensor"')}, "dedup_keys='sensor': expected a list", "dedup_keys=['sensor']"
    ),
    "no partition": Mistake(
        {"readings": a_topic("message_key=", "partitions=0,message_key=")}, "partitions=0: expected at least 1"
    ),
    "a parameter of a topic that there is not": Mistake(
        {"readings": a_topic("event_time=", "event_tme=")}, "no parameter 'event_tme'", "Did you mean 'event_time'?"
    ),
    "a rule of a topic on a column that there is not": Mistake(
        {"readings": a_topic("message_key=", 'checks=[between("valu", 0, 1)],message_key=')},
        "names valu, which the schema lacks",
    ),
    "a rule that no record decides": Mistake(
        {"readings": a_topic("message_key=", 'checks=[unique("sensor")],message_key=')},
        "cannot be decided on a record alone",
    ),
    "a column of the platform": Mistake({"readings": a_topic('"value"', '"_value"')}, "'_value' cannot name a column"),
    "two columns that differ in case": Mistake(
        {"readings": a_topic('"value": "double?"', '"Sensor": "string"')}, "differ only in case"
    ),
    "no docstring": Mistake(IMPORTS, "found none", "One file declares"),
    "no Python": Mistake('"""A table."""\nhours = (\n', "line 2", ""),
    "pyspark at the head": Mistake(
        a_table(above="from pyspark.sql import functions\n"), "line 2 imports pyspark", "costs nothing"
    ),
    "a name that no file may have": Mistake({"Hours": a_table()}, "'Hours' cannot name a topic or a table"),
    "a parameter of a table that there is not": Mistake(
        a_table(parameters='watermrk="1 hour"'), "no parameter 'watermrk'", "Did you mean 'watermark'?"
    ),
    "an input that there is not": Mistake(
        a_table(rows="reading", reads="reading"), "reads 'reading': it is no topic or table", "mean 'readings'?"
    ),
    "a circle": Mistake(
        {
            "hours": a_table(rows='days.select("sensor")', reads="days", parameters=FOLLOWED),
            "days": a_table(rows='hours.select("sensor")', reads="hours", parameters=FOLLOWED, name="days"),
        },
        "in a circle: plant.",
        "Take one of these inputs away",
    ),
    "what reads a table with a mistake": Mistake(
        {
            "hours": a_table(parameters='late="drp"'),
            "days": a_table(rows='hours.select("sensor")', reads="hours", parameters=FOLLOWED, name="days"),
        },
        "it reads plant.hours, which cannot be loaded",
        "late='drp'",
    ),
    "a key that is a text": Mistake(
        a_table(parameters='primary_key="sensor"'), "primary_key='sensor': expected a list"
    ),
    "neither late nor correct": Mistake(a_table(parameters='late="drp"'), "late='drp': expected 'correct' or 'drop'"),
    "an interval that is none": Mistake(a_table(parameters='watermark="2 hourz"'), "watermark='2 hourz'"),
    "a rule that is none": Mistake(a_table(parameters='checks=["total > 0"]'), "checks holds 'total > 0'"),
    "a key that is not what the rows are grouped by": Mistake(
        a_table(parameters='primary_key=["sensor"]'),
        "primary_key=['sensor'] contradicts hours",
        "Leave primary_key out",
    ),
    "a range that is too short": Mistake(
        a_table(parameters='depends_within="10 minutes"'),
        "depends_within='10 minutes' contradicts hours",
        "or write depends_within='1 hour'",
    ),
    "a scope that the function mixes": Mistake(
        a_table(parameters='recompute_by=["total"]'),
        "recompute_by=['total'] contradicts hours",
        "Write recompute_by=['sensor'].",
    ),
    "an unknown column": Mistake(
        a_table(rows=edited(HOURS, 'F.sum("value")', 'F.sum("valu")')),
        "hours names the column 'valu': it is not there",
        "Did you mean 'value'?",
    ),
    "an unknown column of a group": Mistake(
        a_table(rows=edited(HOURS, 'groupBy("sensor"', 'groupBy("sensr"')), "the column 'sensr'", "mean 'sensor'?"
    ),
    "the time of the computation": Mistake(
        a_table(rows='readings.withColumn("at", F.current_timestamp())'),
        "calls current_timestamp()",
        "Take times from the columns of events",
    ),
    "the time of the computation in SQL": Mistake(
        a_table(rows='readings.withColumn("at", F.expr("now() - INTERVAL 1 DAY"))'),
        "calls now()",
        "Take times from the columns of events",
    ),
    "chance": Mistake(
        a_table(rows="readings.where(F.rand() < 0.5)"), "calls rand()", "Take times from the columns of events"
    ),
    "a made-up identifier": Mistake(a_table(rows='readings.withColumn("id", F.uuid())'), "calls uuid()"),
    "an empty key": Mistake(a_table(parameters="primary_key=[]"), "key", ""),
    "a range without a time": Mistake(
        a_table(
            KEPT, parameters='primary_key=["sensor"], recompute_by=["sensor"], depends_within="1 hour", event_time=None'
        ),
        "depends_within needs event_time",
    ),
    "two declarations": Mistake(a_table() + "\n\nAGAIN = hours\n", "expected exactly one declaration", "One file"),
    "the clock of Python": Mistake(
        a_table(rows=f"{KEPT}.where(F.lit(datetime.now()) > 'x')", above="from datetime import datetime\n"),
        "uses datetime.datetime.now in line 8",
        "Take times from the events",
    ),
    "the clock of another module": Mistake(
        a_table(rows=f"{KEPT}.limit(SINCE)", above="import time as clock\nSINCE = clock.time()\n"),
        "uses time.time in line 3",
    ),
    "chance of Python": Mistake(
        a_table(rows=f"{KEPT}.limit(random.randint(1, 2))", above="import random\n"), "uses random.randint in line 8"
    ),
    "a file": Mistake(
        a_table(rows='readings.where(F.col("sensor").isin(open("sensors.txt").read().split()))'),
        "uses open in line 7",
        "as a parameter of the function",
    ),
    "a file of Spark": Mistake(
        edited(
            a_table(rows='readings.join(SparkSession.active().read.csv("x"), "sensor")'),
            "    return",
            "    from pyspark.sql import SparkSession\n\n    return",
        ),
        "uses pyspark.sql.SparkSession",
        "as a parameter of the function",
    ),
    "a rank without an order": Mistake(a_table(rows=ranked(""), parameters=FOLLOWED), "row_number() without a total"),
    "a rank with ties": Mistake(
        a_table(rows=ranked('.orderBy("read_at")'), parameters=FOLLOWED),
        "row_number() without a total order",
        "add sensor to orderBy.",
    ),
    "a window function on a stream": Mistake(
        a_table(
            rows=edited(HOURS, ', "total")', ', F.sum("total").over(Window.partitionBy("sensor")).alias("t"))'),
            parameters=OPEN,
        ),
        "uses a window function",
        "or write closes_at=None",
    ),
    "an exact count of distinct values on a stream": Mistake(
        a_table(rows=edited(HOURS, 'F.sum("value")', 'F.countDistinct("value")')),
        "counts distinct values exactly",
        "F.approx_count_distinct",
    ),
    "two windows at once": Mistake(
        a_table(
            rows='readings.groupBy("sensor", F.window("read_at", "1 hour"), F.window("read_at", "1 day")).count()',
            parameters='primary_key=["sensor"], event_time="sensor", closes_at="sensor", depends_within="1 day", '
            'recompute_by=["sensor"]',
        ),
        "groups by several time windows at once",
        "join them in a third one",
    ),
    "an order on a stream": Mistake(
        a_table(rows=f'{HOURS}.orderBy("hour")'), "orders rows by orderBy()", "those who query the table"
    ),
}
WITH_SPARK: Mapping[str, Mistake] = {
    "an event time that is no time": Mistake(
        a_table(
            rows='readings.select("sensor", F.col("read_at").cast("string").alias("at"))',
            parameters='primary_key=["sensor", "at"], event_time="at", recompute_by=["sensor"]',
        ),
        "event_time='at' is a string: expected a timestamp or a date.",
        "F.to_timestamp('at', FORMAT)",
    ),
    "a newest row among rows with maps": Mistake(
        a_table(
            rows='readings.select("sensor", "read_at", F.create_map("sensor", "value").alias("by_name"))',
            parameters='primary_key=["sensor"], sequence_by=["read_at"]',
        ),
        "sequence_by compares all columns, and by_name holds a map: a map has no order",
        "F.to_json('by_name')",
    ),
    "an error of a value that is no number": Mistake(
        a_table(
            rows='readings.groupBy("sensor").agg(F.hll_sketch_agg("sensor").alias("values"))',
            parameters='tolerances={"values": 0.02}',
        ),
        "tolerances names values, which is a binary; expected a number",
        'Give it float("inf")',
    ),
    "a rule on a column that there is not": Mistake(
        a_table(parameters='checks=[not_null("totl")]'), "the rule not_null(totl) names totl", "Did you mean 'total'?"
    ),
    "a rule on a column of another type": Mistake(
        a_table(parameters='checks=[between("sensor", 0, 1)]'), "judges a number; sensor is", "as the column holds them"
    ),
    "a condition on a column that there is not": Mistake(
        a_table(parameters='checks=[expression("totl > 0")]'),
        "expression(totl > 0) does not fit the table",
        "on sensor, hour, closes_at, total",
    ),
    "no frame": Mistake(
        a_table(rows="readings.columns", parameters=FOLLOWED), "returned list; expected a DataFrame", "Its inputs have"
    ),
    "a mistake of Python": Mistake(
        a_table(rows="readings.where(1 / 0)", parameters=FOLLOWED), "fails: ZeroDivisionError", "Its inputs have"
    ),
    "a column of the platform in a table": Mistake(
        a_table(rows='readings.withColumn("_nth", F.lit(1))', parameters=BY_TIME), "the columns _nth begin with _"
    ),
    "an unknown column in SQL": Mistake(
        a_table(rows=edited(HOURS, "readings.", 'readings.where("valu > 0").')),
        "hours names the column 'valu': it is not there",
        "Did you mean 'value'?",
    ),
    "a function for another type": Mistake(
        a_table(rows='readings.select("sensor", "read_at", F.explode("value").alias("v"))', parameters=LATEST),
        "hours fails: ",
        "Its inputs have sensor, read_at, value.",
    ),
    "a column of a type that Delta tables do not have": Mistake(
        a_table(
            rows='readings.withColumn("past", F.col("read_at") - F.to_timestamp(F.lit("2013-01-01")))',
            parameters=BY_TIME,
        ),
        "past is or holds a value of the type interval day to second: Delta tables do not have it",
        "F.unix_micros(end) - F.unix_micros(start)",
    ),
    "an array of nothing": Mistake(
        a_table(rows='readings.withColumn("none", F.array())', parameters=BY_TIME),
        "none is or holds a value of the type void",
        'an array by .cast("array<string>")',
    ),
    "a key that the function does not return": Mistake(
        a_table(
            rows='readings.selectExpr("sensor", "value * 2 AS v")',
            parameters='primary_key=["sensr"], recompute_by=["sensor"]',
        ),
        "primary_key names sensr: hours does not return it",
        "Did you mean 'sensor'?",
    ),
}


def checked(cli: Cli, monkeypatch: pytest.MonkeyPatch, folder: Path, files: Mapping[str, str], *options: str) -> Ran:
    declared = registry.load(written(folder / "tables", files))
    monkeypatch.setattr(registry, "load", lambda **_: declared)
    return cli("check", *options, "--json")


@pytest.mark.parametrize("mistake", WITHOUT_SPARK.values(), ids=WITHOUT_SPARK)
def test_a_mistake_is_found_without_spark(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: Mistake
) -> None:
    ran = checked(cli, monkeypatch, tmp_path, mistake.files, "--quick")
    said = [m for m in ran.document if mistake.message in m["message"]]
    assert said, ran.document
    assert mistake.hint in (said[0]["hint"] or "")
    assert "plant/" in said[0]["message"], "the file is named"
    assert ran.code == 2


@pytest.mark.parametrize("mistake", WITH_SPARK.values(), ids=WITH_SPARK)
def test_a_mistake_is_found_by_the_analysis_of_spark(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession, mistake: Mistake
) -> None:
    monkeypatch.setattr(
        "twofold.cli.writing.author._analysed", lambda _, declared, tables: analyse(spark, declared, tables)
    )
    ran = checked(cli, monkeypatch, tmp_path, mistake.files)
    assert [mistake.message in m["message"] for m in ran.document] == [True], ran.document
    assert mistake.hint in ran.document[0]["hint"]
    assert ran.code == 2


def test_check_names_parameters_that_can_be_left_out(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = a_table(parameters='primary_key=["sensor", "hour"], recompute_by=["sensor"]')
    declared = registry.load(written(tmp_path / "tables", Mistake(given, "").files))
    monkeypatch.setattr(registry, "load", lambda **_: declared)
    ran = cli("check", "--quick")
    assert "plant.hours: the function says primary_key, recompute_by, too: leave it out." in ran.out
    assert "Not looked at: names and types, which Spark resolves, and DAGs." in ran.out


def test_check_says_which_changes_recompute_a_whole_table(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession
) -> None:
    monkeypatch.setattr(
        "twofold.cli.writing.author._analysed", lambda _, declared, tables: analyse(spark, declared, tables)
    )
    rows = 'readings.agg(F.count("*").alias("n")).withColumn("id", F.lit(1))'
    whole = a_table(rows=rows, parameters='primary_key=["id"], recompute_by=[]')
    declared = registry.load(written(tmp_path / "tables", Mistake(whole, "").files))
    monkeypatch.setattr(registry, "load", lambda **_: declared)
    ran = cli("check")
    assert "plant.hours: a change of plant.readings recomputes the whole table." in ran.out
    assert (ran.code, "1 table without a mistake" in ran.out) == (0, True)


def test_all_mistakes_of_all_files_are_found_at_once(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = edited(HOURS, 'F.sum("value")', 'F.sum("valu") + F.rand()')
    files = {
        **Mistake(a_table(rows=wrong), "").files,
        "plant/days.py": a_table(name="days", parameters='late="drp"'),
        "rail/readings.py": TOPIC,
        "rail/hours.py": a_table(),
    }
    ran = checked(cli, monkeypatch, tmp_path, files, "--quick")
    found = " ".join(m["message"] for m in ran.document)
    assert all(part in found for part in ("'valu'", "rand()", "late='drp'"))
    assert "rail" not in found
    sound = cli("check", "rail", "--quick")
    assert (sound.code, sound.out.splitlines()[-1]) == (0, "✓ 1 table without a mistake.")
    assert len(cli("check", "plant.days", "--quick", "--json").document) == 1


def test_all_mistakes_of_one_file_are_found_at_once(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parameters = 'watermrk="1 hour", late="drp", freshness="soon", checks=["total > 0", not_null("sensor"), 7]'
    topic = edited(
        a_topic('"value": "double?"', '"value": "doubel", "count": "int"'),
        "event_time=",
        'partitions=0, local_retention="1 fortnight", unknown_fields="drop", event_time=',
    )
    files = {
        "plant/readings.py": a_topic("event_time=", 'report_time="sent_at", partitions=0, event_time='),
        "plant/hours.py": "import pyspark\n" + edited(a_table(parameters=parameters), '"""A table."""\n', ""),
        "rail/readings.py": topic,
        "shop/readings.py": TOPIC,
        "shop/hours.py": a_table(rows=edited(HOURS, '"value"', '"valu"'), parameters=parameters),
    }
    found = [m["message"] for m in checked(cli, monkeypatch, tmp_path, files, "--quick").document]
    wrong = ["'watermrk'", "late='drp'", "freshness='soon'", "'total > 0'", "checks holds 7"]
    expected = {
        "plant/readings": ["report_time names sent_at", "partitions=0"],
        "plant/hours": ["no docstring", "imports pyspark", *wrong, "it reads plant.readings"],
        "rail/readings": ["'doubel'", "unknown_fields='drop'", "partitions=0", "local_retention="],
        "shop/hours": [*wrong, "'valu'"],
    }
    for file, parts in expected.items():
        own = [message for message in found if f"{file}.py" in message.split(": ")[0]]
        assert [[m for m in own if part in m] != [] for part in parts] == [True] * len(parts), own
        assert len(own) == len(parts), own


def test_an_incompatible_schema_is_a_mistake(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(schema_files, "FOLDER", tmp_path / "schemas")
    (tmp_path / "schemas" / "readings").mkdir(parents=True)
    at = {"name": "read_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    for id_, kind in {1: "string", 2: "long"}.items():
        fields = [{"name": "sensor", "type": "string"}, at, {"name": "value", "type": kind}]
        text = json.dumps({"type": "record", "name": "Reading", "fields": fields})
        (tmp_path / "schemas" / "readings" / f"{id_}.avsc").write_text(text)
    topic = a_topic('schema={"sensor": "string", "read_at": "timestamp", "value": "double?"}', 'encoding="avro"')
    files = {"plant/readings.py": edited(topic, "    event_time", '    subject="readings",\n    event_time')}
    ran = checked(cli, monkeypatch, tmp_path, files, "--quick")
    assert ran.code == 2
    [mistake] = ran.document
    expected = (
        "schemas/readings/2 cannot read what was written by 1: `value` was written as string and is read as long."
    )
    assert mistake["message"] == expected


def test_check_names_columns_without_a_description(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    described = '"""Readings.\n\nsensor: which\nread_at: when\n"""\n'
    files = {"plant/readings.py": edited(TOPIC, '"""Readings."""\n', described), "plant/kept.py": KEPT_BY_SENSOR}
    ran = checked(cli, monkeypatch, tmp_path, files, "--quick")
    assert (ran.code, ran.document) == (0, [])
    ran = cli("check", "--quick", "--strict", "--json")
    assert (ran.code, [one["message"] for one in ran.document]) == (
        2,
        [
            "tables/plant/readings.py: no docstring describes value.",
            "tables/plant/kept.py: no docstring describes value.",
        ],
    )
    assert ran.document[0]["hint"].endswith("to the docstring of the file.")


def test_a_topic_describes_its_own_columns_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {"plant/readings.py": edited(TOPIC, '"""Readings."""\n', '"""Readings.\n\nvalues: volts\n"""\n')}
    [mistake] = checked(cli, monkeypatch, tmp_path, files, "--quick").document
    assert "a line of its docstring names values, which the schema lacks" in mistake["message"]


def test_the_declarations_of_the_platform_are_without_a_mistake(cli: Cli) -> None:
    assert cli("check", "--quick", "--strict").code == 0

"""Lists parts of random functions: each is right, or has the words of its refusal."""

from __future__ import annotations

from dataclasses import dataclass

ASKS = r"asks Spark by"
CLOCK = r"takes '1?[90]:30' as a time|compares with '10:30'|takes texts as timestamps"
OPEN = r"in what cannot be read"
UNREAD = rf"cannot be inferred: the function uses|{OPEN}"
GROUP = r"calls \w+\(\) in a group"
TIES = r"without a total order"
OTHERS = r"depends on rows with another kind"
LOST = rf"lacks sensor of each|{TIES}"
VALUES = r"without its values|its columns are"
SOME = r"uses (limit|sample)\(\)|leaves open which"


@dataclass(frozen=True)
class Part:
    """A part of a function, right or not.

    Attributes:
        frame: as DataFrames say it, of the frame `rows` where it is a whole step.
        query: as SQL says it; empty: only DataFrames do.
        refused: a pattern of the refusals that are true of it; empty: none is.
    """

    frame: str
    query: str = ""
    refused: str = ""


KEYS = [
    Part('F.col("sensor")', "sensor"),
    Part('F.col("label")', "label"),
    Part('F.when(F.col("value") > 1, "high").otherwise("low")', "CASE WHEN value > 1 THEN 'high' ELSE 'low' END"),
    Part('F.when(F.col("value") > 1, F.col("sensor"))', "if(value > 1, sensor, NULL)"),
    Part('F.when(F.col("sensor") == "a", "x").when(F.col("value") > 1, "y")', "if(sensor = 'a', 'x', label)"),
    Part('F.date_trunc("hour", "read_at")', "date_trunc('HOUR', read_at)"),
    Part('F.to_date("read_at")', "CAST(read_at AS DATE)"),
    Part('(F.hour("read_at") % 2)', "extract(HOUR FROM read_at) % 2"),
    Part('F.concat("sensor", F.lit("-"), F.hour("read_at"))', "concat(sensor, '-', hour(read_at))"),
    Part('F.concat_ws("-", "sensor", "label")', "sensor || coalesce(label, '')"),
    Part('F.coalesce("label", F.lit("none"))', "nvl(label, 'none')"),
    Part('F.upper("sensor")', "upper(sensor)"),
    Part('F.expr("if(value > 1, sensor, label)")', "CASE sensor WHEN 'a' THEN 1 ELSE 2 END"),
    Part('F.date_format("read_at", "yyyy-MM-dd HH:00").cast("timestamp")', "date_trunc('DAY', read_at)"),
    Part('F.to_timestamp("label", "yyyy-MM-dd HH:mm")', "try_cast(label AS INT)"),
    Part('F.to_timestamp("label")', "try_cast(label AS TIMESTAMP)", CLOCK),
    Part('F.greatest("read_at", F.lit("10:30").cast("timestamp"))', "greatest(read_at, TIMESTAMP '10:30')", CLOCK),
]
AGGREGATES = [
    Part('F.count("*")', "count(*)"),
    Part('F.max("value")', "max(value)"),
    Part('F.sum(F.expr("if(value > 1, 1, 0)"))', "sum(if(value > 1, 1, 0))"),
    Part('F.count_distinct("label")', "count(DISTINCT label)"),
    Part('F.min_by("value", F.struct("read_at", "value"))', "min_by(value, struct(read_at, value))"),
    Part('F.sort_array(F.collect_list("value"))', "sort_array(collect_list(value))"),
    Part('F.max(F.when(F.col("label").like("10%"), F.col("read_at")))', "count_if(label IS NOT NULL)"),
    Part('F.expr("max(value) FILTER (WHERE label IS NULL)")', "max(value) FILTER (WHERE label IS NULL)"),
    Part('F.first("value")', "first(value)", GROUP),
    Part('F.collect_list("value")', "collect_list(value)", GROUP),
    Part('F.expr("first(if(value > 1, label, sensor))")', "any_value(if(value > 1, label, sensor))", GROUP),
    Part('F.max_by("label", "value")', "max_by(label, value)", GROUP),
    Part('F.max(F.to_timestamp(F.lit("10:30")))', "max(CAST('10:30' AS TIMESTAMP))", CLOCK),
]
WINDOWED = [
    Part('F.count("*").over(Window.partitionBy("sensor"))', "count(*) OVER (PARTITION BY sensor)"),
    Part('F.max("value").over(Window.partitionBy("label"))', "max(value) OVER (PARTITION BY label)"),
    Part(
        'F.lag("value").over(Window.partitionBy("sensor").orderBy("read_at"))',
        "lag(value) OVER (PARTITION BY sensor ORDER BY read_at)",
    ),
    Part('F.rank().over(Window.partitionBy("sensor").orderBy("value"))', "rank() OVER (ORDER BY value)"),
    Part(
        'F.row_number().over(Window.partitionBy("label").orderBy("value"))',
        "row_number() OVER (PARTITION BY sensor ORDER BY value)",
        TIES,
    ),
    Part(
        'F.first("label").over(Window.partitionBy("sensor").orderBy("value"))',
        "first(label) OVER (PARTITION BY sensor ORDER BY value)",
        TIES,
    ),
]
STEPS = [
    Part('rows = rows.where("value IS NOT NULL")', "value IS NOT NULL"),
    Part("rows = rows.where(F.expr(\"if(value > 1, true, sensor <> 'a')\"))", "if(value > 1, true, sensor <> 'a')"),
    Part('rows = rows.where("(value > 1) IS NOT TRUE")', "(value > 1) IS NOT TRUE"),
    Part("rows = rows.where(\"label LIKE ANY ('10%', '2013-%')\")", "label LIKE ANY ('10%', '2013-%')"),
    Part('rows = rows.where(F.col("read_at") < "2013-03-01 10:30")', "read_at < '2013-03-01 10:30'"),
    Part('rows = rows.where(F.col("label") == "10:30")', "label = '10:30'"),
    Part(
        'rows = rows.where("timestampdiff(MINUTE, read_at, sent_at) > 2")',
        "timestampadd(HOUR, 1, read_at) > sent_at",
    ),
    Part('rows = rows.select(*[F.col(name) for name in rows.columns])'),
    Part('rows = rows.join(rows.groupBy("sensor").agg(F.max("value").alias("most")), "sensor")', refused=OTHERS),
    Part(
        'rows = rows.join(each.select(F.col("sensor").alias("other")), F.col("other") == F.col("sensor"), "left_semi")',
        "sensor IN (SELECT sensor FROM {each} WHERE value > 1)",
        OTHERS,
    ),
    Part("rows = rows.where(\"IDENTIFIER('value') >= 1\")", "IDENTIFIER('value') >= 1", UNREAD),
    Part('rows = rows.where(F.col("read_at") < "10:30")', "read_at < '10:30'", CLOCK),
    Part('rows = rows.where(F.lit("10:30").cast("timestamp") > F.col("read_at"))', "read_at > TIMESTAMP '9:30'", CLOCK),
    Part('rows = rows.where("CAST(label AS TIMESTAMP) < read_at")', "to_timestamp(label) < read_at", CLOCK),
    Part('rows = rows.dropDuplicates(["sensor", "value"])', "", f"{SOME}|{OTHERS}"),
    Part('rows = rows.orderBy("value").limit(3)', "value IN (SELECT value FROM {each} LIMIT 2)",
         f"{SOME}|{TIES}|{OTHERS}"),
    Part('rows = rows.sampleBy("sensor", {"a": 0.5, "b": 0.5})', "", UNREAD),
    Part('most = rows.agg(F.max("value")).first()\n    '
         'rows = rows.where(F.col("value") == (most and most[0]))', "", ASKS),
    Part('least = [row[0] for row in rows.agg(F.min("value")).collect()]\n    '
         'rows = rows.where(F.col("value").isin(least))', "", ASKS),
    Part('if rows.where("value > 1").isEmpty():\n        rows = rows.where("value = 1")', "", ASKS),
    Part('rows = rows.withColumn("label", F.lit(str(rows.count())))', "", ASKS),
    Part('rows = rows.where(F.col("value") >= (rows.orderBy("value").head() or [None, None, 0.0])[2])', "", ASKS),
]  # fmt: skip
CLAUSES = [
    Part("", "LATERAL VIEW explode(array(1, 2)) l AS n", UNREAD),
    Part("", "LATERAL VIEW OUTER explode(split(label, ':')) l AS piece", UNREAD),
    Part("", "TABLESAMPLE (2 ROWS)", UNREAD),
    Part("", "TABLESAMPLE (50 PERCENT)", UNREAD),
]

"""Refusals of keys and scopes: missing ones, and those that contradict the function or each other."""

from __future__ import annotations

from tables.algebra.refusal import Refusal, Subject, example

KEY_OF_ONE_ROW = (
    "primary_key=[...], the columns that identify a row. A table of one row has a constant one: "
    '.withColumn("id", F.lit(1)), primary_key=["id"], recompute_by=[]'
)
_WHOLE = 'readings.agg(F.count("*").alias("n"))'
_MEAN = 'readings.agg(F.avg("value").alias("mean"))'

MISSING = Refusal(
    name="needs-a-key-or-a-scope",
    subject=Subject.KEYS,
    shape="@table needs {names}, which cannot be inferred",
    why="{reason}",
    instead="Write {parameters}.",
    refused=example('recompute_by=["sensor"]', 'readings.select("sensor", "value")'),
    accepted=example('recompute_by=["sensor"]', 'readings.select("sensor", "read_at", "value")'),
    others=(
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
    ),
)
EMPTY_KEY = Refusal(
    name="empty-key",
    subject=Subject.KEYS,
    shape="primary_key is empty",
    why="rows that no column identifies cannot be corrected one by one",
    instead=f"Write {KEY_OF_ONE_ROW}.",
    refused=example("primary_key=[], recompute_by=[]", _WHOLE),
    accepted=example('primary_key=["id"], recompute_by=[]', f'{_WHOLE}.withColumn("id", F.lit(1))'),
)
OPEN_KEY = Refusal(
    name="key-that-does-not-identify-a-row",
    subject=Subject.KEYS,
    shape="primary_key={key} does not identify a row",
    why="of several with one key the stream would keep the first, the batch any",
    instead="Write sequence_by=[...], which says what row stays; or group by the key, or add {columns} to it.",
    refused=example('primary_key=["sensor"]', "readings"),
    accepted=example('primary_key=["sensor"], sequence_by=["read_at"]', "readings"),
    runs=True,
)
OTHER_GROUPS = Refusal(
    name="key-of-other-groups",
    subject=Subject.KEYS,
    shape="primary_key={key} contradicts {function}",
    why="it groups by {groups}",
    instead="Leave primary_key out.",
    refused=example('primary_key=["n"]', 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
    accepted=example("", 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
)
OTHER_SCOPE = Refusal(
    name="scope-that-is-too-narrow",
    subject=Subject.KEYS,
    shape="recompute_by={given} contradicts {function}",
    why="a row depends on rows with another {columns}",
    instead="Write recompute_by={choice}.",
    refused=example('recompute_by=["n"]', 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
    accepted=example('recompute_by=["sensor"]', 'readings.groupBy("sensor").agg(F.count("*").alias("n"))'),
)
OTHER_COLUMN = Refusal(
    name="scope-column-that-is-another",
    subject=Subject.KEYS,
    shape="scope_columns has {column}={written!r} of {input}, which contradicts {function}",
    why="by the function it is {expression}",
    instead="Leave scope_columns out: it follows from the function.",
    refused=example(
        'scope_columns={"readings": {"device": "value"}}',
        'readings.groupBy(F.col("sensor").alias("device")).agg(F.count("*").alias("n"))',
    ),
    accepted=example("", 'readings.groupBy(F.col("sensor").alias("device")).agg(F.count("*").alias("n"))'),
)
NO_SCOPE = Refusal(
    name="scope-column-of-no-input",
    subject=Subject.KEYS,
    shape="scope_columns={given}",
    why="expected inputs, and columns of recompute_by",
    instead="The inputs are {inputs}; recompute_by is {by}.",
    refused=example('primary_key=["sensor", "read_at"], scope_columns={"reading": {"sensor": "sensor"}}', "readings"),
    accepted=example('primary_key=["sensor", "read_at"]', "readings"),
)
NO_VALUE = Refusal(
    name="scope-column-that-is-no-value",
    subject=Subject.KEYS,
    shape="scope_columns of {input}: {text!r} {fault}",
    why="expected a column, a field of one, or an expression over columns of one row",
    instead="Write a column of the input, in backticks if its name is no word.",
    refused=example(
        'primary_key=["device"], recompute_by=["device"], scope_columns={"readings": {"device": "max(sensor)"}}',
        'readings.mapInArrow(lambda batches: batches, "device string")',
    ),
    accepted=example(
        'primary_key=["device"], recompute_by=["device"], scope_columns={"readings": {"device": "sensor"}}',
        'readings.mapInArrow(lambda batches: batches, "device string")',
    ),
)
NO_COLUMN = Refusal(
    name="scope-column-that-the-topic-lacks",
    subject=Subject.KEYS,
    shape="scope_columns names {columns}",
    why="{topic} has no such column",
    instead="It has {known}.",
    refused=example(
        'primary_key=["device"], recompute_by=["device"], scope_columns={"readings": {"device": "id"}}',
        'readings.mapInArrow(lambda batches: batches, "device string")',
    ),
    accepted=example(
        'primary_key=["device"], recompute_by=["device"], scope_columns={"readings": {"device": "sensor"}}',
        'readings.mapInArrow(lambda batches: batches, "device string")',
    ),
)
TOLERANCE = Refusal(
    name="tolerance-of-a-key",
    subject=Subject.KEYS,
    shape="tolerances or lineage_columns name {columns}",
    why="expected columns outside of primary_key and relative errors of at least 0",
    instead='Name other columns, like tolerances={{"planes": 0.02}}.',
    refused=example('tolerances={"sensor": 0.05}', 'readings.groupBy("sensor").agg(F.avg("value").alias("mean"))'),
    accepted=example('tolerances={"mean": 0.05}', 'readings.groupBy("sensor").agg(F.avg("value").alias("mean"))'),
)
TAKEN = Refusal(
    name="topic-with-a-column-record",
    subject=Subject.KEYS,
    shape="lineage_columns={columns}",
    why="{topic} has a column {record!r} of its own",
    instead="Rename the column of the topic.",
    refused=example('lineage_columns=["made_by"]', 'logged.withColumnRenamed("record", "made_by")', "logged"),
    accepted=example('lineage_columns=["made_by"]', 'readings.withColumnRenamed("record", "made_by")'),
)

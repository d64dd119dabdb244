"""Finds mistakes of tables by Spark's analysis of names and types, over empty frames of the declared schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import BadDeclaration, TwofoldError, nearest
from twofold.tables.declare.inference import RECORD
from twofold.tables.declare.refusals.declaration_refusal import error_of
from twofold.tables.declare.refusals.mistake_list import require_none
from twofold.tables.declare.refusals.refused_names import NOT_RETURNED, PLATFORM, not_returned
from twofold.tables.declare.refusals.refused_types import COLLATED, UNORDERED, UNSTORED, UNTIMELY
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import NAMING, Table
from twofold.tables.declare.topic import Topic
from twofold_algebra.algebra_errors import Unreadable
from twofold_algebra.plan_mistakes import ASKS_FOR_ROWS, IMPURE_FUNCTION, NO_SUCH_COLUMN, OPEN_PART
from twofold_algebra.reading.called_functions import impure_function
from twofold_algebra.reading.lazy_frames import AsksForRows, only_lazily
from twofold_algebra.refusal import Refusal
from twofold_algebra.spark_functions import NEED_ORDER, ORDERED
from twofold_algebra.sql.impure_functions import IMPURE
from twofold_algebra.sql.names import SPARK
from twofold_algebra.times import window_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_STORED = ("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz", "decimal",
           "byte", "short", "integer", "long", "float", "double")  # fmt: skip
"""Types that Delta tables and both of our engines have, as PySpark calls them."""
_CONVERSIONS = {
    "interval": "a number of microseconds is F.unix_micros(end) - F.unix_micros(start)",
    "void": '.cast("string"), an array by .cast("array<string>")',
}
_AROUND = re.compile(r"^\(\S+\) |^\[[A-Z_.]+\] |\s*SQLSTATE: \w+.*$")


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The result of the analysis of tables.

    Attributes:
        mistakes: of the tables and of those that they read, in the order of their inputs.
        whole: table -> its inputs of which each change recomputes the whole table.
        columns: table whose function runs -> its columns.
    """

    mistakes: Sequence[BadDeclaration]
    whole: Mapping[str, Sequence[str]]
    columns: Mapping[str, Sequence[str]]


def analyse(spark: SparkSession, registry: Registry, tables: Sequence[Table]) -> Analysis:
    """Analyzes tables and those that they read, without reading a row.

    A table that reads one with unknown columns is skipped.
    """
    needed = {table.full_name for table in tables}
    for table in reversed(registry.in_order()):
        if table.full_name in needed:
            needed |= {source.full_name for source in registry.upstream(table)}
    columns: dict[str, StructType] = {}
    faults: list[BadDeclaration] = []
    whole: dict[str, Sequence[str]] = {}
    for table in registry.in_order():
        sources = dict(zip(table.inputs, registry.upstream(table), strict=True))
        if table.full_name in needed and all(isinstance(s, Topic) or s.full_name in columns for s in sources.values()):
            mistakes, schema = _analyse(spark, table, sources, columns)
            faults += mistakes
            if schema is not None:
                columns[table.full_name] = schema
                if inputs := whole_scopes(registry, table, lambda source: columns[source.full_name].names):
                    whole[table.full_name] = inputs
    return Analysis(
        mistakes=faults,
        whole={t.full_name: whole[t.full_name] for t in tables if t.full_name in whole},
        columns={name: schema.names for name, schema in columns.items()},
    )


def whole_scopes(registry: Registry, table: Table, columns_of: Callable[[Table], Collection[str]]) -> list[str]:
    """Lists the inputs of a table of which each change recomputes the whole table.

    Args:
        columns_of: the columns of an input that is a table.
    """
    if not registry.strategy(table).follows_changes:
        return []
    return [
        source.full_name
        for source in registry.upstream(table)
        if _is_whole_scope(table, source, source.columns if isinstance(source, Topic) else columns_of(source))
    ]


def _is_whole_scope(table: Table, source: Topic | Table, columns: Collection[str]) -> bool:
    """Whether each change of an input recomputes the whole table, since nothing limits the affected rows.

    The recomputation is right, and costs as much as computing the table.
    """
    is_dated = table.depends_within is not None and source.event_time is not None
    return not is_dated and not table.restricting(source, columns)


def require_no_mistake(spark: SparkSession, registry: Registry, table: Table) -> None:
    """Refuses a table in which the analysis finds a mistake.

    Raises:
        BadDeclaration: the first mistake, with the others in the fact `more`.
    """
    file = f"tables/{table.domain}/{table.name}.py: "
    own = [mistake for mistake in analyse(spark, registry, [table]).mistakes if mistake.message.startswith(file)]
    if own:
        require_none([own[0], *(BadDeclaration(one.message.removeprefix(file), hint=one.hint) for one in own[1:])])


def empty_input(spark: SparkSession, source: Topic, table: Table) -> DataFrame:
    """Builds an empty frame for a topic, as the table's function gets it."""
    from pyspark.sql import types as T
    from pyspark.sql.pandas.types import from_arrow_type

    fields = [T.StructField(name, from_arrow_type(t.arrow), t.nullable) for name, t in source.columns.items()]
    if table.lineage_columns:
        place = [("topic", T.StringType()), ("partition", T.IntegerType()), ("offset", T.LongType())]
        fields.append(T.StructField(RECORD, T.StructType([T.StructField(name, kind) for name, kind in place])))
    return spark.createDataFrame([], T.StructType(fields))


def _analyse(
    spark: SparkSession, table: Table, sources: Mapping[str, Topic | Table], columns: Mapping[str, StructType]
) -> tuple[list[BadDeclaration], StructType | None]:
    frames = {
        name: empty_input(spark, source, table)
        if isinstance(source, Topic)
        else spark.createDataFrame([], columns[source.full_name])
        for name, source in sources.items()
    }
    place = f"tables/{table.domain}/{table.name}.py: {table.derive.__name__}"
    try:
        rows = rows_of(table, frames)
        if not hasattr(rows, "schema"):
            raise TypeError(f"returned {type(rows).__name__}; expected a DataFrame")
        schema = rows.schema
    except Exception as error:
        if isinstance(error, BadDeclaration) and isinstance(error.__cause__, AsksForRows):
            return [error], None
        names = list(dict.fromkeys(column for frame in frames.values() for column in frame.columns))
        return [_explained(place, error, names)], None
    unproved = [mistake for find in (impure_call, open_call) if (mistake := find(table, rows))]
    wrong = [*wrong_columns(table, rows.columns), *wrong_types(table, schema), *_wrong_rules(table, rows)]
    return [*unproved, *wrong], schema


def rows_of(table: Table, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Calls the table's function; of a window that it returns the rows have the start and the end.

    Raises:
        BadDeclaration: it asks Spark a question.
    """
    try:
        with only_lazily(frames.values()):
            rows = table.derive(**frames)
    except AsksForRows as error:
        raise _mistake(table, ASKS_FOR_ROWS, function=error.method) from error
    if not table.window:
        return rows
    times = [f"{SPARK.name(table.window)}.{part} AS {SPARK.name(c)}" for c, part in window_times(table.window).items()]
    columns = ([*times] if name == table.window else [SPARK.name(name)] for name in rows.columns)
    return rows.selectExpr(*(column for group in columns for column in group))


def _explained(place: str, error: Exception, known: Sequence[str]) -> BadDeclaration:
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException) and (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "")
        hint = nearest(name.split(".")[-1], known, f"Its inputs have {', '.join(known)}.")
        return error_of(NO_SUCH_COLUMN.mistake(column=name, near_names=hint), f"{place} ")
    line = str(error).strip().split("\n")[0]
    while (shorter := _AROUND.sub("", line)) != line:
        line = shorter
    kind = "" if type(error).__module__.startswith("pyspark") else f"{type(error).__name__}: "
    return BadDeclaration(f"{place} fails: {kind}{line}", hint=f"Its inputs have {', '.join(known)}.")


def wrong_types(table: Table, schema: StructType) -> Iterator[BadDeclaration]:
    """Yields columns of a type that Delta tables lack, or that does not fit their use in the declaration."""
    for field in schema.fields:
        if (kind := next(_unstored(field.dataType), None)) is not None:
            name = kind.simpleString()
            conversion = next(
                (conversion_of for sign, conversion_of in _CONVERSIONS.items() if sign in name), '.cast("string")'
            )
            yield _mistake(table, UNSTORED, column=field.name, type=name, conversion=conversion)
    yield from _collated(table, schema)
    yield from _wrong_times(table, schema)
    yield from _wrong_tolerances(table, schema)
    yield from _wrong_order(table, schema)


def _unstored(kind: DataType) -> Iterator[DataType]:
    """Yields the types of a value, or of its parts, that Delta tables lack."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        parts = [field.dataType for field in kind.fields]
    elif isinstance(kind, T.MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, T.ArrayType):
        parts = [kind.elementType]
    else:
        if kind.typeName() not in _STORED:
            yield kind
        return
    for part in parts:
        yield from _unstored(part)


def _collated(table: Table, schema: StructType) -> Iterator[BadDeclaration]:
    """Yields text columns with a collation, by which only Spark considers different texts equal."""
    for field in schema.fields:
        if " collate " in (name := field.dataType.simpleString()):
            yield _mistake(table, COLLATED, column=field.name, type=name)


def _wrong_times(table: Table, schema: StructType) -> Iterator[BadDeclaration]:
    """Yields columns that the declaration uses as times and that have another type."""
    for what, kinds in {
        "event_time": ("timestamp", "date"),
        "ends_at": ("timestamp", "date"),
        "closes_at": ("timestamp",),
    }.items():
        column = getattr(table, what)
        kind = next((f.dataType.simpleString() for f in schema.fields if f.name == column), None)
        if kind is not None and kind not in kinds:
            expected = " or a ".join(kinds)
            yield _mistake(table, UNTIMELY, parameter=what, column=column, type=kind, expected=expected)


def _wrong_tolerances(table: Table, schema: StructType) -> Iterator[BadDeclaration]:
    """Refuses errors of values that are no numbers, of which there is no distance."""
    from pyspark.sql.types import NumericType

    for field in schema.fields:
        is_error = 0 < (table.tolerances or {}).get(field.name, 0) < float("inf")
        if is_error and not isinstance(field.dataType, NumericType):
            yield BadDeclaration(
                f"tables/{table.domain}/{table.name}.py: tolerances names {field.name}, which is a "
                f"{field.dataType.simpleString()}; expected a number.",
                hint='Give it float("inf"), by which it makes no row changed, or 0, by which it is exact.',
            )


def _wrong_order(table: Table, schema: StructType) -> Iterator[BadDeclaration]:
    """Yields columns that cannot be compared: those of the key, or any if `sequence_by` keeps the greatest row."""
    maps = [f.name for f in schema.fields if "map<" in f.dataType.simpleString()]
    keys = [name for name in maps if name in table.primary_key]
    if keys or (table.sequence_by and maps):
        what = f"{', '.join(keys)} of its key" if keys else f"sequence_by compares all columns, and {', '.join(maps)}"
        yield _mistake(table, UNORDERED, what=what, column=maps[0])


def _wrong_rules(table: Table, rows: DataFrame) -> Iterator[BadDeclaration]:
    from pyspark.errors import PySparkException

    from twofold.quality.row_checks import split
    from twofold.quality.rules import ROW_RULES

    for rule in table.checks:
        place = f"tables/{table.domain}/{table.name}.py: the rule {rule}"
        missing = [column for column in rule.columns if column not in rows.columns]
        if missing:
            yield _not_returned(table, f"the rule {rule}", missing, rows.columns)
        elif rule.kind in ROW_RULES:
            try:
                _ = split(rows, [rule])[0].columns
            except TwofoldError as error:
                yield BadDeclaration(f"tables/{table.domain}/{table.name}.py: {error.message}", hint=error.hint)
            except PySparkException as error:
                yield _explained(place, error, rows.columns)


_IMPURE_FUNCTIONS = "|".join(sorted(IMPURE))
# A call as a plan of the JVM and as SQL say it, and as a client's plan names its function.
_IMPURE = re.compile(rf'\b({_IMPURE_FUNCTIONS})\(|function_name: "({_IMPURE_FUNCTIONS})"', re.IGNORECASE)


def impure_call(table: Table, rows: DataFrame) -> BadDeclaration | None:
    """Finds an impure Spark function, by the plan without data if there is one, else by the analysed plan."""
    try:
        name = impure_function(table.derive, table.inputs)
    except Unreadable:
        impure = _IMPURE.search(_plan(rows))
        name = impure and (impure[1] or impure[2])
    if not name:
        return None
    place = f"tables/{table.domain}/{table.name}.py: {table.derive.__name__} "
    return error_of(IMPURE_FUNCTION.mistake(function=name), place)


_OPEN_FUNCTIONS = "|".join(sorted({*ORDERED, *NEED_ORDER}))
_OPEN = re.compile(
    rf'\b({_OPEN_FUNCTIONS})\(|function_name: "({_OPEN_FUNCTIONS})"|^[ :+|-]*(GlobalLimit|Offset|Sample|Tail) |'
    r"^ *(limit|offset|sample|tail) \{",
    re.MULTILINE,
)


def open_call(table: Table, rows: DataFrame) -> BadDeclaration | None:
    """Finds what depends on the order of rows, in the analysed plan of a function that cannot be read without data."""
    try:
        impure_function(table.derive, table.inputs)
    except Unreadable:
        if call := _OPEN.search(_plan(rows)):
            return _mistake(table, OPEN_PART, function=next(filter(None, call.groups())), reason="the whole function")
    return None


def wrong_columns(table: Table, columns: Sequence[str]) -> Iterator[BadDeclaration]:
    """Yields columns that the declaration names and the function does not return, or returns and must not."""
    for what in (*NAMING, "columns"):
        value = getattr(table, what)
        named = [value] if isinstance(value, str) else list(value or [])
        what = "a line of its docstring" if what == "columns" else what
        missing = [column for column in named if column not in columns]
        if missing:
            yield _not_returned(table, what, missing, columns)
    platform = [column for column in columns if column.startswith("_")]
    if platform:
        yield _mistake(table, PLATFORM, columns=", ".join(platform))


def _not_returned(table: Table, what: str, missing: Sequence[str], columns: Sequence[str]) -> BadDeclaration:
    return _mistake(table, NOT_RETURNED, **not_returned(table.derive, what, missing, columns))


def _mistake(table: Table, refusal: Refusal, **details: object) -> BadDeclaration:
    return error_of(refusal.mistake(**details), f"tables/{table.domain}/{table.name}.py: ")


def _plan(rows: DataFrame) -> str:
    """Returns the analysed plan as text, before constant functions are evaluated; for a client, the plan as sent."""
    if type(rows).__module__.startswith("pyspark.sql.connect."):
        remote: Any = rows
        return str(remote._plan.to_proto(remote._session.client))
    is_verbose, most_fields, others = True, 1 << 30, [False, False]  # its own text leaves out fields after the 25th
    return str(rows._jdf.queryExecution().analyzed().treeString(is_verbose, False, most_fields, *others))

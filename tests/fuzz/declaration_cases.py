"""Draws random declarations over readings that change and alarms, and the rows that arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.fuzz.declaration_parts import (
    AGGREGATES,
    ASKS,
    CLAUSES,
    KEYS,
    LOST,
    OPEN,
    STEPS,
    TIES,
    VALUES,
    WINDOWED,
    Part,
)

HEAD = '"""A table."""\nfrom twofold import F, Window, sql, table\n\n\n'
ALARMS = Part(
    'rows = rows.join(alarms.groupBy("sensor").agg(F.max("level").alias("level")), "sensor", "left")',
    " LEFT JOIN (SELECT sensor AS other, max(level) AS level FROM {alarms} GROUP BY sensor) a ON other = sensor",
)
RESULTS = [
    Part('rows.groupBy("sensor").pivot("value", [1.0, 2.0]).agg(F.count("label"))'),
    Part('rows.groupBy("sensor").pivot("label").agg(F.max("value"))', refused=VALUES),
    Part('rows.select("sensor", "value").transpose("sensor").withColumn("sensor", F.col("key"))', refused=VALUES),
    Part('rows.crosstab("sensor", "label").withColumn("sensor", F.col("sensor_label"))', refused=VALUES),
    Part(
        'rows.groupBy("sensor").pivot("value", [row[0] for row in each.select("value").distinct().collect()]).count()',
        refused=ASKS,
    ),
    Part('rows.groupBy("sensor").agg(F.count("*").alias("x")).orderBy("x", "sensor").limit(2)'),
    Part('rows.groupBy("sensor").agg(F.count("*").alias("x")).orderBy("x").limit(2)', refused=TIES),
]
"""Results whose key is the sensor."""
READ = "read_at, value, label, sent_at FROM {each}"
COPIED = Part("", "sensor")
DERIVED = [
    Part("", "concat(sensor, 'x')", LOST),
    Part("", "CASE WHEN value > 1 THEN 'x' ELSE sensor END", LOST),
]
"""What a CTE has for the sensor; the other ones are not known to identify a reading."""
QUALIFIED = [
    Part("", ""),
    Part("", "QUALIFY row_number() OVER (PARTITION BY sensor ORDER BY value, read_at) = 1"),
    Part("", "QUALIFY row_number() OVER (PARTITION BY sensor ORDER BY value) = 1", TIES),
    Part("", "WINDOW w AS (PARTITION BY sensor ORDER BY read_at)"),
    Part("", "WINDOW w AS (PARTITION BY sensor ORDER BY value)", TIES),
    Part("", "ORDER BY value, sensor, read_at LIMIT 4"),
    Part("", "ORDER BY value LIMIT 4", TIES),
]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A random declaration.

    Attributes:
        body: of the function.
        given: the parameters that are written by hand.
        refused: patterns of the refusals that are true of it; none: it is to be accepted.
    """

    body: str
    given: str
    refused: tuple[str, ...]

    @property
    def inputs(self) -> list[str]:
        """The tables that the function reads."""
        return ["each", "alarms"] if "alarms" in self.body else ["each"]

    def text(self, name: str) -> str:
        """Returns the file that declares the table of this name."""
        return f"{HEAD}@table({self.given})\ndef {name}({', '.join(self.inputs)}):\n    {self.body}\n"


def _one_of(parts: Sequence[Part]) -> st.SearchStrategy[Part]:
    """A part, in most cases a right one: with many parts most functions would have a wrong one."""
    right = st.sampled_from([part for part in parts if not part.refused])
    wrong = [part for part in parts if part.refused]
    return st.integers(0, 3).flatmap(lambda n: st.sampled_from(wrong) if wrong and n == 3 else right)


def _given(key: Sequence[str], scopes: Sequence[Sequence[str]]) -> st.SearchStrategy[str]:
    """Parameters: none, or the key and one of these scopes."""
    by_hand = st.sampled_from([f"primary_key={list(key)}, recompute_by={list(by)}" for by in scopes])
    return st.one_of(st.just(""), by_hand, by_hand)


def _declared(body: str, given: str, parts: Sequence[Part]) -> Declared:
    refused = [part.refused for part in parts if part.refused]
    return Declared(body=body, given=given, refused=tuple(dict.fromkeys([*refused, OPEN] if refused else [])))


@st.composite
def frames(draw: st.DrawFn) -> Declared:
    """Functions that are written with DataFrames."""
    steps = draw(st.lists(st.one_of(_one_of(STEPS), st.just(ALARMS)), max_size=2, unique=True))
    kind = draw(st.sampled_from(["group", "group", "window", "distinct", "result", "result"]))
    by, key = draw(_one_of(KEYS)), ["kind"]
    scopes: list[list[str]] = [[], ["kind"]]
    if kind == "group":
        last = draw(_one_of(AGGREGATES))
        result = f'rows.groupBy({by.frame}.alias("kind")).agg({last.frame}.alias("x"))'
    elif kind == "distinct":
        last, result = Part(""), f'rows.select({by.frame}.alias("kind")).distinct()'
    elif kind == "window":
        last, key, scopes = draw(_one_of(WINDOWED)), ["sensor", "read_at"], [[]]
        result = f'rows.select("sensor", "read_at", {by.frame}.alias("kind"), {last.frame}.alias("x"))'
    else:
        last, key, scopes, by = draw(st.sampled_from(RESULTS)), ["sensor"], [[]], Part("")
        result = last.frame
    lines = ["rows = each", *(step.frame for step in steps), f"return {result}"]
    return _declared("\n    ".join(lines), draw(_given(key, scopes)), [*steps, by, last])


@st.composite
def queries(draw: st.DrawFn) -> Declared:
    """Functions that are SQL."""
    takes_a_name = draw(st.sampled_from([True, False, False]))  # of an input, and reads the input as well
    name = "each" if takes_a_name else draw(st.sampled_from(["", "each", "recent"]))
    is_grouped = takes_a_name or draw(st.booleans())
    by = draw(_one_of([key for key in KEYS if "sensor" in key.query] if name else KEYS))
    of = draw(st.sampled_from([COPIED, *DERIVED[: 1 + is_grouped]])) if name else COPIED
    named = f"WITH {name} AS (SELECT {of.query} AS sensor, {READ}) " if name else ""
    where = draw(st.lists(_one_of([step for step in STEPS if step.query]), max_size=1))
    clause = draw(st.one_of(*[st.just(Part(""))] * 3, st.sampled_from(CLAUSES)))
    source = "{each}" if takes_a_name else draw(st.sampled_from([name or "{each}", "{each}"]))
    joined = draw(st.sampled_from(["", ALARMS.query]))
    scopes: list[list[str]] = [[], ["kind"]]
    if is_grouped:
        last, key, tail = draw(_one_of(AGGREGATES)), ["kind"], Part("")
        columns, grouped = f"{by.query} AS kind, {last.query} AS x", " GROUP BY 1"
    else:
        tail, last = draw(_one_of(QUALIFIED)), draw(_one_of(WINDOWED))
        key, scopes, grouped = ["sensor", "read_at"], [[]], ""
        over = Part("", "lag(value) OVER w") if "WINDOW" in tail.query else last
        last, clause = over, clause if "TABLESAMPLE" in clause.query else Part("")
        columns = f"sensor, read_at, {by.query} AS kind, {last.query} AS x"
    sampled, view = (clause.query, "") if "TABLESAMPLE" in clause.query else ("", clause.query)
    conditions = " AND ".join(f"({one.query})" for one in where)
    text = (
        f"{named}SELECT {columns} FROM {source} {sampled}{joined} {view}"
        f"{f' WHERE {conditions}' if conditions else ''}{grouped} {tail.query}"
    )
    given = ", ".join(f"{name}={name}" for name in ("each", "alarms") if f"{{{name}}}" in text)
    return _declared(
        f'return sql("""{text}""", {given})', draw(_given(key, scopes)), [of, by, *where, clause, last, tail]
    )


declarations = st.one_of(frames(), queries())


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A reading of a sensor; one of the same sensor and time that was sent later replaces it.

    Attributes:
        hour, sent: hours after the first one; minutes, of which the greatest counts.
        part, again: the portion that it arrives in, and one in which it arrives once more.
    """

    sensor: str
    hour: int
    value: float | None
    label: str | None
    sent: int
    part: int
    again: int | None


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm of a sensor, as `Reading` has it."""

    sensor: str
    hour: int
    level: int | None
    part: int
    again: int | None


PORTIONS = 2
_portion = st.integers(0, PORTIONS - 1)
_again = st.one_of(st.none(), st.none(), _portion)
_sensor = st.sampled_from(["a", "a", "b", "A"])
readings = st.builds(
    Reading,
    sensor=_sensor,
    hour=st.sampled_from([0, 1, 2, 30]),
    value=st.one_of(st.none(), *[st.integers(0, 3).map(float)] * 4),
    label=st.sampled_from(["10:30", "10:30", "2013-03-01 10:30", "7", None]),
    sent=st.integers(0, 99),
    part=_portion,
    again=_again,
)
alarms = st.builds(
    Alarm, sensor=_sensor, hour=st.integers(0, 3), level=st.one_of(st.none(), st.integers(0, 3)), part=_portion,
    again=_again,
)  # fmt: skip

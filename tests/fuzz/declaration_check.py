"""Loads random declarations, refreshes the accepted ones over random rows, and compares them with plain Spark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.errors import BadDeclaration, TwofoldError
from infra.settings import Settings
from tables.declare.analysis import analyse
from tables.declare.declaration_files import mistakes_in
from tables.declare.registry import Registry, load
from tests.fuzz.declaration_cases import PORTIONS, Alarm, Declared, Reading
from tests.tables.declared import written
from tests.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INPUTS = {
    "plant/readings.py": '''\
        """Readings of sensors."""
        from tables import Topic

        TOPIC = Topic(
            schema={
                "sensor": "string", "read_at": "timestamp", "value": "double?", "label": "string?",
                "sent_at": "timestamp",
            },
            event_time="read_at",
            message_key="sensor",
            dedup_keys=["sensor", "sent_at"],
        )
        ''',
    "plant/alarms.py": '''\
        """Alarms of sensors."""
        from tables import Topic

        TOPIC = Topic(
            schema={"alarm": "string", "sensor": "string", "raised_at": "timestamp", "level": "int?"},
            event_time="raised_at",
            message_key="sensor",
            dedup_keys=["alarm"],
        )
        ''',
    "plant/each.py": '''\
        """The newest reading of each sensor and time."""
        from tables import table


        @table(primary_key=["sensor", "read_at"], sequence_by=["sent_at"])
        def each(readings):
            return readings
        ''',
}
EACH = "sensor string, read_at timestamp, value double, label string, sent_at timestamp"
ALARMS = "alarm string, sensor string, raised_at timestamp, level int"
START = datetime(2013, 3, 1, 9, tzinfo=UTC)
MOVED = timedelta(days=10_227)
"""Years of the same weekdays and leap days, of which the later ones are in the future."""
YEARS = ("2013-", "2041-")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that arrive."""

    readings: Sequence[Reading]
    alarms: Sequence[Alarm]

    def portions(self) -> Iterator[dict[str, list[bytes]]]:
        """The records of each portion, in the order of arrival."""
        for number in range(PORTIONS):
            yield {
                "readings": [_bytes(self._reading(n)) for n, one in enumerate(self.readings) if _is_in(one, number)],
                "alarms": [_bytes(self._alarm(n)) for n, one in enumerate(self.alarms) if _is_in(one, number)],
            }

    def final(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of both inputs when all has arrived: of readings the last that was sent."""
        newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for row in sorted((tuple(self._reading(n).values()) for n in range(len(self.readings))), key=lambda r: r[4]):
            newest[row[:2]] = row
        return {"each": list(newest.values()), "alarms": [tuple(self._alarm(n).values()) for n in range(len(self.alarms))]}

    def _reading(self, number: int) -> dict[str, Any]:
        one = self.readings[number]
        at = {"read_at": START + timedelta(hours=one.hour), "sent_at": START + timedelta(minutes=one.sent, seconds=number % 60)}
        return {"sensor": one.sensor, "read_at": at["read_at"], "value": one.value, "label": one.label, "sent_at": at["sent_at"]}

    def _alarm(self, number: int) -> dict[str, Any]:
        one = self.alarms[number]
        at = START + timedelta(hours=one.hour)
        return {"alarm": f"n{number}", "sensor": one.sensor, "raised_at": at, "level": one.level}


def _is_in(one: Reading | Alarm, portion: int) -> bool:
    return portion in (one.part, one.again)


def _bytes(record: Mapping[str, Any]) -> bytes:
    return json.dumps({k: f"{v:%Y-%m-%dT%H:%M:%SZ}" if isinstance(v, datetime) else v for k, v in record.items()}).encode()


def faults_of(spark: SparkSession, folder: Path, declared: Sequence[Declared], rows: Rows) -> tuple[list[str], Counter[str]]:
    """What is wrong with the declarations, and how many were refused and accepted."""
    texts = {f"t{n}": one for n, one in enumerate(declared)}
    refused = dict(_refused(spark, folder / "declared", texts))
    faults = [f"{texts[name].text(name)}{fault}" for name, found in refused.items() for fault in _untrue(texts[name], found)]
    accepted = {name: one for name, one in texts.items() if name not in refused}
    for name, fault in _wrong(spark, folder, accepted, rows):
        faults.append(f"{texts[name].text(name)}{fault}\n{rows.final()}\n{list(rows.portions())}")
    return faults, Counter(refused=len(refused), accepted=len(accepted))


def _load(folder: Path, texts: Mapping[str, Declared]) -> Registry:
    return load(written(folder, {**INPUTS, **{f"plant/{name}.py": one.text(name) for name, one in texts.items()}}))


def _refused(spark: SparkSession, folder: Path, texts: Mapping[str, Declared]) -> Iterator[tuple[str, list[BadDeclaration]]]:
    """The declarations that `check` refuses, by the registry or by Spark's analysis, and why."""
    registry = _load(folder, texts)
    faults = {**registry.faults, **registry.unproved}
    for name in texts:
        if fault := faults.get(f"plant.{name}"):
            assert isinstance(fault, BadDeclaration), fault
            yield name, mistakes_in(fault)
        elif found := analyse(spark, registry, [registry.find_table(f"plant.{name}")]).mistakes:
            yield name, list(found)


def _untrue(one: Declared, mistakes: Sequence[BadDeclaration]) -> Iterator[str]:
    """Refusals whose reason none of the parts is, or that have no hint."""
    for mistake in mistakes:
        if not mistake.hint:
            yield f"is refused without a hint: {mistake.message}"
        if not any(re.search(pattern, mistake.message) for pattern in one.refused):
            yield f"is refused with an untrue reason: {mistake.message}\nHint: {mistake.hint}"


def _wrong(spark: SparkSession, folder: Path, texts: Mapping[str, Declared], rows: Rows) -> Iterator[tuple[str, str]]:
    """The accepted declarations whose rows are not those of plain Spark, and how they differ."""
    registry = _load(folder / "accepted", texts)
    world = World(spark, Settings(home=folder / "home", shuffle_partitions=1), "plant", registry)
    names = [f"plant.{name}" for name in texts]
    failed: dict[str, str] = {}
    import time; s=time.time()
    for portion in rows.portions():
        world.append(portion)
        world.maintain(["plant.each"])
        for name in names:
            if name not in failed:
                try:
                    world.maintain([name])
                except TwofoldError as error:
                    failed[name] = f"cannot be refreshed: {error}"
    print("refreshed", len(names), time.time()-s); s=time.time()
    for name, one in texts.items():
        full = f"plant.{name}"
        if full in failed:
            yield name, failed[full]
            continue
        whole = _plain(spark, one, rows)
        found = Counter(map(_text, world.rows(full).to_pylist()))
        if _plain(spark, one, rows, in_reverse=True, moved=MOVED) != whole:
            in_order = _plain(spark, one, rows, in_reverse=True) == whole
            yield name, f"is accepted, and has two results, of {'two years' if in_order else 'two orders of rows'}"
        elif found != whole:
            yield name, f"differs: held {found - whole}, plain Spark {whole - found}"
    print("compared", time.time()-s); s=time.time()


def _plain(
    spark: SparkSession, one: Declared, rows: Rows, *, in_reverse: bool = False, moved: timedelta = timedelta()
) -> Counter[str]:
    """The rows that the function gives for all rows, without the platform."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def sql(text: str, **frames: DataFrame) -> DataFrame:
        return spark.sql(text, **frames)

    def table(**_: object) -> Any:
        return lambda function: function

    text = one.text("derive").partition("\n\n\n")[2]
    if moved:
        text = text.replace(*YEARS)
    given: dict[str, Any] = {"F": F, "Window": Window, "sql": sql, "table": table}
    exec(text, given)
    frames = {}
    for name, schema in (("each", EACH), ("alarms", ALARMS)):
        values = [tuple(_moved(value, moved) for value in row) for row in rows.final()[name]]
        frames[name] = spark.createDataFrame(values[::-1] if in_reverse else values, schema)
    derive = given["derive"]
    result = derive(**{name: frames[name] for name in derive.__code__.co_varnames[: derive.__code__.co_argcount]})
    back = [{k: _moved(v, -moved) for k, v in row.items()} for row in result.toArrow().to_pylist()]
    return Counter(map(_text, back))


def _moved(value: Any, by: timedelta) -> Any:
    if isinstance(value, str) and by:
        return value.replace(*(YEARS if by > timedelta() else YEARS[::-1]))
    return value + by if isinstance(value, date) else value


def _text(row: Mapping[str, Any]) -> str:
    return str({name: value for name, value in row.items() if not name.startswith("_")})

"""Loads random declarations, refreshes the accepted ones over random rows, and compares them with plain Spark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fuzz.declaration_cases import PORTIONS, Alarm, Declared, Reading
from tests.tables.declared import written
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.settings import Settings
from twofold.tables.declare.analysis import analyse
from twofold.tables.declare.declaration_files import mistakes_in
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INPUTS = {
    "plant/readings.py": '''\
        """Readings of sensors."""
        from twofold import Topic

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
        from twofold import Topic

        TOPIC = Topic(
            schema={"alarm": "string", "sensor": "string", "raised_at": "timestamp", "level": "int?"},
            event_time="raised_at",
            message_key="sensor",
            dedup_keys=["alarm"],
        )
        ''',
    "plant/each.py": '''\
        """The newest reading of each sensor and time."""
        from twofold import table


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
FAILS = Counter(["it fails"])


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that arrive."""

    readings: Sequence[Reading]
    alarms: Sequence[Alarm]

    def portions(self) -> Iterator[dict[str, list[bytes]]]:
        """Yields the records of each portion, in the order of arrival."""
        numbered = {"readings": list(enumerate(self.readings)), "alarms": list(enumerate(self.alarms))}
        for portion in range(PORTIONS):
            yield {
                topic: [_bytes(_record(n, one)) for n, one in rows if portion in (one.part, one.again)]
                for topic, rows in numbered.items()
            }

    @property
    def changed(self) -> int:
        """How many readings of the last portion count in the end."""
        newest = {(one.sensor, one.hour): one.part for one in sorted(self.readings, key=lambda one: one.sent)}
        return sum(part == PORTIONS - 1 for part in newest.values())

    def final(self) -> dict[str, list[tuple[Any, ...]]]:
        """Returns the rows of both inputs once all has arrived: of readings the one that was sent last."""
        readings, alarms = ([_record(n, one) for n, one in enumerate(rows)] for rows in (self.readings, self.alarms))
        newest = {(one["sensor"], one["read_at"]): one for one in sorted(readings, key=lambda one: one["sent_at"])}
        return {"each": [tuple(one.values()) for one in newest.values()], "alarms": [tuple(a.values()) for a in alarms]}


def _record(number: int, one: Reading | Alarm) -> dict[str, Any]:
    at = START + timedelta(hours=one.hour)
    if isinstance(one, Alarm):
        return {"alarm": f"n{number}", "sensor": one.sensor, "raised_at": at, "level": one.level}
    sent = START + timedelta(minutes=one.sent, seconds=number)
    return {"sensor": one.sensor, "read_at": at, "value": one.value, "label": one.label, "sent_at": sent}


def _bytes(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, default=lambda at: f"{at:%Y-%m-%dT%H:%M:%SZ}").encode()


def faults_of(
    spark: SparkSession, folder: Path, declared: Sequence[Declared], rows: Rows
) -> tuple[list[str], Counter[str]]:
    """Returns what is wrong with the declarations, and how many were refused and accepted."""
    texts = _named(declared)
    registry = _load(folder / "declared", texts)
    refused = dict(_refused(registry, texts, lambda table: analyse(spark, registry, [table]).mistakes))
    accepted = {name: one for name, one in texts.items() if name not in refused}
    faults = [(name, fault) for name, found in refused.items() for fault in _untrue(texts[name], found)]
    if accepted:
        arrived = f"the portions were {list(rows.portions())}"
        faults += [(name, f"{fault}; {arrived}") for name, fault in _wrong(spark, folder, accepted, rows)]
    counted = Counter(refused=len(refused), accepted=len(accepted))
    return [f"{texts[name].text(name)}{fault}" for name, fault in faults], counted


def untrue_refusals(folder: Path, declared: Sequence[Declared]) -> list[str]:
    """Returns the declarations that the registry alone refuses for a reason that is not true, or without a hint."""
    texts = _named(declared)
    refused = _refused(_load(folder, texts), texts, lambda _: [])
    return [f"{texts[name].text(name)}{fault}" for name, found in refused for fault in _untrue(texts[name], found)]


def _named(declared: Sequence[Declared]) -> dict[str, Declared]:
    return {f"t{number}": one for number, one in enumerate(declared)}


def _load(folder: Path, texts: Mapping[str, Declared]) -> Registry:
    return load(written(folder, {**INPUTS, **{f"plant/{name}.py": one.text(name) for name, one in texts.items()}}))


def _refused(
    registry: Registry, texts: Mapping[str, Declared], analysed: Callable[[Table], Sequence[BadDeclaration]]
) -> Iterator[tuple[str, Sequence[BadDeclaration]]]:
    """Yields the declarations that are refused, by the registry or by Spark's analysis, and why."""
    faults = {**registry.faults, **registry.unproved}
    for name in texts:
        fault = faults.get(f"plant.{name}")
        assert fault is None or isinstance(fault, BadDeclaration), fault
        if found := mistakes_in(fault) if fault else analysed(registry.find_table(f"plant.{name}")):
            yield name, found


def _untrue(one: Declared, mistakes: Sequence[BadDeclaration]) -> Iterator[str]:
    """Yields refusals that are true of none of the parts, or have no hint."""
    for mistake in mistakes:
        if not mistake.hint:
            yield f"is refused without a hint: {mistake.message}"
        if not any(re.search(pattern, mistake.message) for pattern in one.refused):
            yield f"is refused with an untrue reason: {mistake.message}\nHint: {mistake.hint}"


def _wrong(spark: SparkSession, folder: Path, texts: Mapping[str, Declared], rows: Rows) -> Iterator[tuple[str, str]]:
    """Yields the accepted declarations whose rows are not those of plain Spark, and how they differ."""
    world = World(
        spark, Settings(home=folder / "home", shuffle_partitions=1), "plant", _load(folder / "accepted", texts)
    )
    failed: dict[str, str] = {}
    for portion in rows.portions():
        world.append(portion)
        world.maintain(["plant.each"])
        for name in [name for name in texts if name not in failed]:
            try:
                world.maintain([f"plant.{name}"])
            except Exception as error:  # of any kind, as a user would see it
                failed[name] = str(error)
    for name, one in texts.items():
        whole = _plain(spark, one, rows)
        held = FAILS if name in failed else Counter(map(_text, world.rows(f"plant.{name}").to_pylist()))
        if _plain(spark, one, rows, in_reverse=True, moved=MOVED) != whole:
            is_by_year = _plain(spark, one, rows, in_reverse=True) == whole
            yield name, f"is accepted, and has two results, of two {'years' if is_by_year else 'orders of rows'}"
        elif held != whole:
            yield name, f"holds {held - whole} for {whole - held}, {failed.get(name)}"


def _plain(
    spark: SparkSession, one: Declared, rows: Rows, *, in_reverse: bool = False, moved: timedelta = timedelta()
) -> Counter[str]:
    """Returns the rows that the function gives for all rows, without the platform.

    Args:
        moved: how much later all times are, those in the function and in texts, too; in the result they are moved back.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    text = one.text("derive").partition("\n\n\n")[2]
    named: dict[str, Any] = {"F": F, "Window": Window, "sql": spark.sql, "table": lambda **_: lambda derive: derive}
    exec(text.replace(*YEARS) if moved else text, named)
    frames = {}
    for name, schema in (("each", EACH), ("alarms", ALARMS)):
        values = [tuple(_moved(value, moved) for value in row) for row in rows.final()[name]]
        frames[name] = spark.createDataFrame(values[::-1] if in_reverse else values, schema)
    try:
        result = named["derive"](*(frames[name] for name in one.inputs)).toArrow().to_pylist()
    except PySparkException:
        return FAILS
    return Counter(_text({name: _moved(value, -moved) for name, value in row.items()}) for row in result)


def _moved(value: Any, by: timedelta) -> Any:
    if isinstance(value, str) and by:
        return value.replace(*(YEARS if by > timedelta() else YEARS[::-1]))
    return value + by if isinstance(value, date) else value


def _text(row: Mapping[str, Any]) -> str:
    return str({name: value for name, value in sorted(row.items()) if not name.startswith("_")})

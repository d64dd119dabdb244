"""Records of any topic, made from its declaration: good ones, and late, repeated and broken ones among them."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from twofold.infra.encodings.column_types import FieldType
from twofold.quality.rules import Between, Matches, OneOf
from twofold.tables.declare.topic import Topic

START = datetime(2013, 1, 1, tzinfo=UTC)
NAMES = ("a", "b", "c", "d", "e")
_parser: Any = re._parser  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares of records, from 0 to 1, with a fault.

    Attributes:
        late: are sent hours after others of their time.
        repeated: are sent twice.
        corrupt: are cut off, so that they are quarantined.
    """

    late: float = 1 / 15
    repeated: float = 1 / 20
    corrupt: float = 1 / 50


SOME = Faults()
"""Some of each kind."""


def records_of(topic: Topic, count: int = 400, days: int = 2, seed: int = 1, faults: Faults = SOME) -> list[bytes]:
    """Makes records of a topic, in the order in which they are sent; their event times grow."""
    chance = random.Random(f"{topic.full_name} {seed}")
    sent: list[tuple[float, bytes]] = []
    for number in range(count):
        at = START + timedelta(days=days) * (number / count)
        value = json.dumps(_record(topic, number, at, chance)).encode()
        late = chance.randint(30, 200) if _is_turn(number, faults.late, 7) else 0
        sent.append((number + late, value[: len(value) // 2] if _is_turn(number, faults.corrupt, 49) else value))
        if _is_turn(number, faults.repeated, 3):
            sent.append((number + chance.randint(1, 100), value))
    return [value for _, value in sorted(sent, key=lambda pair: pair[0])]


def _is_turn(number: int, share: float, first: int) -> bool:
    """Whether a record is one of a share, which are as far from each other as can be."""
    return share > 0 and number % (every := max(round(1 / share), 1)) == first % every


def _record(topic: Topic, number: int, at: datetime, chance: random.Random) -> dict[str, Any]:
    times = {topic.event_time, *(topic.clock.columns if topic.clock else ())}
    record: dict[str, Any] = {}
    for column, kind in topic.types.items():
        if column in times or kind.name == "timestamp":
            record[column] = at.isoformat()
        elif kind.nullable and chance.random() < 0.1:
            record[column] = None
        else:
            record[column] = _value(topic, column, kind, number, chance)
    return record


def _value(topic: Topic, column: str, kind: FieldType, number: int, chance: random.Random) -> Any:
    if kind.name == "array" and kind.element:
        return [_value(topic, column, kind.element, number, chance) for _ in range(chance.randint(0, 3))]
    if kind.name == "map" and kind.element:
        return {name: _value(topic, column, kind.element, number, chance) for name in NAMES[: chance.randint(0, 3)]}
    if kind.name == "struct":
        return {name: _value(topic, f"{column}.{name}", inner, number, chance) for name, inner in kind.fields}
    if kind.name == "json":
        return {"number": number}
    for rule in topic.checks:
        if column in rule.columns and isinstance(rule, OneOf):
            return chance.choice(rule.values)
        if column in rule.columns and isinstance(rule, Matches):
            return "".join(_matching(_parser.parse(rule.portable), chance))
    low, high = _bounds(topic, column)
    if kind.name == "string":
        return (
            f"{chance.choice(NAMES)}{number}"
            if column in topic.dedup_keys and column != topic.message_key
            else chance.choice(NAMES)
        )
    if kind.name == "boolean":
        return chance.random() < 0.5
    if kind.name in ("int", "long"):
        return chance.randint(int(low), int(high))
    if kind.name == "decimal":
        return f"{chance.randint(0, 9)}.{'0' * kind.scale}" if kind.scale else "1"
    if kind.name in ("timestamp", "timestamp_ntz"):
        return START.isoformat() if kind.name == "timestamp" else "2013-01-01T00:00:00"
    if kind.name == "binary":
        return "AAAA"
    if kind.name == "double":
        return round(chance.uniform(low, high), 3)
    return (date(2013, 1, 1) + timedelta(days=chance.randint(0, 1))).isoformat()


def _bounds(topic: Topic, column: str) -> tuple[float, float]:
    for rule in topic.checks:
        if column in rule.columns and isinstance(rule, Between):
            low = rule.low if isinstance(rule.low, int | float) else 0
            high = rule.high if isinstance(rule.high, int | float) else low + 100
            return low, min(high, low + 1_000)
    return 0, 100


def _matching(pattern: Sequence[Any], chance: random.Random) -> Iterator[str]:
    """Yields characters that a regular expression matches."""
    for kind, value in pattern:
        match str(kind):
            case "LITERAL":
                yield chr(value)
            case "IN":
                yield chance.choice(_members(value))
            case "ANY":
                yield chance.choice(string.ascii_letters)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = value
                for _ in range(chance.randint(least, min(most, least + 3))):
                    yield from _matching(inner, chance)
            case "SUBPATTERN":
                yield from _matching(value[-1], chance)
            case "BRANCH":
                yield from _matching(chance.choice(value[1]), chance)
            case "AT":
                pass
            case other:
                raise ValueError(f"no value is made for {other} in a regular expression")


def _members(value: Sequence[Any]) -> list[str]:
    found: list[str] = []
    for kind, what in value:
        match str(kind):
            case "LITERAL":
                found.append(chr(what))
            case "RANGE":
                found += map(chr, range(what[0], what[1] + 1))
            case "CATEGORY":
                digits = "DIGIT" in str(what)
                found += string.digits if digits else string.ascii_letters
            case "NEGATE":
                return [c for c in string.printable[:62] if c not in _members(value[1:])]
    return found

"""Injects faults into records: delays, repetitions, garbage.

The faults of a record depend only on the seed and the record's identity, so that they are the same in every run and for
every range.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from twofold.demo.traffic.sources import Record
from twofold.infra.errors import BadArgument
from twofold.tables.declare.topic import Topic

TRUE, DUPLICATE, CORRUPT = "true", "duplicate", "corrupt:"

_ENCODER = msgspec.json.Encoder()
_UNIT = 1 / 2**64


class Message(NamedTuple):
    """A message to send, in the order of sending.

    Attributes:
        send_at: the time at which it would have arrived.
        kind: `true`, `duplicate`, or `corrupt:` with one of `CORRUPTIONS`.
    """

    send_at: datetime
    topic: str
    key: bytes
    value: bytes
    kind: str


def encode(record: Record, topic: Topic, reported_at: datetime) -> bytes:
    """Encodes the record as sent: compact JSON, with `reported_at` if declared; times are RFC 3339 in UTC."""
    value = _ENCODER.encode(record)
    if "reported_at" in topic.schema:
        return b'%b,"reported_at":%b}' % (value[:-1], _ENCODER.encode(reported_at))
    return value


@dataclass(frozen=True, kw_only=True)
class FaultInjection:
    """The faults of the reporters; shares are of all true records.

    Args:
        seed: another seed gives the faults to other records.
        prompt_s: a record is reported after 1 to this many seconds, evenly; 0: at once ...
        minutes_share: ... but this share takes 1 to 45 minutes ...
        hours_share: ... and this one 1 hour to 2 days, the longer the rarer (log-uniform).
        duplicate_share: sent again, the same bytes, up to `again_s` seconds later.
        corrupt_share: an extra record with the same key that no reader may accept, up to `again_s` seconds later; the
            true record is sent nevertheless.
        again_s: see above.
        corruptions: the kinds of garbage, of `CORRUPTIONS`, all equally frequent.
    """

    seed: int = 2013
    prompt_s: int = 50
    minutes_share: float = 0.08
    hours_share: float = 0.015
    duplicate_share: float = 0.01
    corrupt_share: float = 0.005
    again_s: int = 600
    corruptions: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "corruptions", tuple(self.corruptions) or tuple(CORRUPTIONS))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_share") and not 0 <= value <= 1:
                raise BadArgument(f"{field.name}={value}: expected a share from 0 to 1.")
            if field.name.endswith("_s") and value < 0:
                raise BadArgument(f"{field.name}={value}: expected 0 seconds or more.")
        if self.minutes_share + self.hours_share > 1:
            raise BadArgument(
                f"minutes_share={self.minutes_share} and hours_share={self.hours_share} exceed 1 together."
            )
        if unknown := set(self.corruptions) - set(CORRUPTIONS):
            raise BadArgument(
                f"corruptions names {', '.join(sorted(unknown))}.", hint=f"The kinds are {', '.join(CORRUPTIONS)}."
            )

    @classmethod
    def none(cls) -> FaultInjection:
        """Returns a configuration without faults: every record once, correct, without delay."""
        return cls(prompt_s=0, minutes_share=0, hours_share=0, duplicate_share=0, corrupt_share=0)

    def messages(self, record: Record, topic: Topic) -> Iterator[Message]:
        """Yields the messages sent for a record, the record itself first.

        A compacted topic holds what was sent last, so that its records are sent at once, and once.

        Args:
            topic: the declaration of the record's topic.
        """
        key = record.key.encode()
        if topic.compacted:
            yield Message(record.at, record.topic, key, encode(record, topic, record.at), TRUE)
            return
        identity = b"%d|%b|%b|%d" % (self.seed, record.topic.encode(), key, int(record.at.timestamp()))
        digest = blake2b(identity, digest_size=48).digest()
        dice = [n * _UNIT for n in struct.unpack("<6Q", digest)]
        how_late, how_much, again, again_when, garbage, garbage_when = dice

        reported_at = record.at + timedelta(seconds=self._delay_s(how_late, how_much))
        value = encode(record, topic, reported_at)
        yield Message(reported_at, record.topic, key, value, TRUE)
        if again < self.duplicate_share:
            yield Message(self._later(reported_at, again_when), record.topic, key, value, DUPLICATE)
        if garbage < self.corrupt_share:
            more_dice = random.Random(digest)
            kind = more_dice.choice([kind for kind in self.corruptions if _befalls(kind, topic)])
            corrupt = CORRUPTIONS[kind](value, topic, more_dice)
            yield Message(self._later(reported_at, garbage_when), record.topic, key, corrupt, CORRUPT + kind)

    def _delay_s(self, how_late: float, how_much: float) -> int:
        if how_late < self.hours_share:
            return round(3_600 * math.exp(how_much * math.log(48)))
        if how_late < self.hours_share + self.minutes_share:
            return 60 + int(how_much * 44 * 60)
        return math.ceil(how_much * self.prompt_s)

    def _later(self, instant: datetime, when: float) -> datetime:
        return instant + timedelta(seconds=math.ceil(when * self.again_s))


Corruption = Callable[[bytes, Topic, random.Random], bytes]


def _truncated(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    return value[: dice.randrange(1, len(value))]


def _wrong_type(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    """Replaces a value by one of another type: text for a number, an object for text, a boolean for a time."""
    record = json.loads(value)
    column = dice.choice([c for c, content in record.items() if content is not None and c in topic.types])
    kind = topic.types[column].name
    if kind == "string":
        record[column] = {"value": record[column]}
    elif kind == "timestamp":
        record[column] = True
    else:
        record[column] = f"about {record[column]}"
    return _dump(record)


def _nan(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    """Replaces a number by `NaN`, which is not JSON but accepted by many parsers."""
    return _dump(json.loads(value) | {dice.choice(_numbers(topic)): math.nan})


def _epoch_milliseconds(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    record = json.loads(value)
    instant = datetime.fromisoformat(record[topic.event_time])
    return _dump(record | {topic.event_time: int(instant.timestamp() * 1000)})


def _invalid_utf8(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    """Inserts a byte that is invalid in UTF-8 into the text of the key's column."""
    start = b'"%b":"' % topic.message_key.encode()
    return value.replace(start, start + dice.choice([b"\xff", b"\xc0", b"\xfe"]), 1)


def _oversized(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    """Pads the record with white space so that only its size is wrong; brokers accept up to 1 MiB."""
    return value[:-1] + b" " * (topic.max_bytes - len(value) + dice.randrange(1, 1_000)) + b"}"


def _duplicate_key(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    """Repeats the event time with an hour's difference: a lenient parser's choice is a guess."""
    instant = datetime.fromisoformat(json.loads(value)[topic.event_time])
    other = _ENCODER.encode(instant + timedelta(hours=1))
    return b'%b,"%b":%b}' % (value[:-1], topic.event_time.encode(), other)


def _unknown_field(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    return b'%b,"remark":"gate B%d"}' % (value[:-1], dice.randrange(1, 80))


def _broken_rule(value: bytes, topic: Topic, dice: random.Random) -> bytes:
    """Sets well-formed but absurd values: a delay of 69 days, humidity of 999 %, an order of a billion."""
    return _dump(json.loads(value) | {column: number for column, number in _ABSURD.items() if column in topic.schema})


def _numbers(topic: Topic) -> list[str]:
    return [column for column, kind in topic.types.items() if kind.name in ("int", "long", "double")]


def _befalls(kind: str, topic: Topic) -> bool:
    """Whether this kind of garbage applies to records of the topic."""
    if kind == "nan":
        return bool(_numbers(topic))
    return kind != "broken_rule" or not _ABSURD.keys().isdisjoint(topic.schema)


_ABSURD: Mapping[str, float] = {"delay_min": 99_999, "humidity_pct": 999.0, "cents": 1_000_000_000, "version": -1}


def _dump(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


CORRUPTIONS: Mapping[str, Corruption] = {
    "truncated": _truncated,
    "wrong_type": _wrong_type,
    "nan": _nan,
    "epoch_milliseconds": _epoch_milliseconds,
    "invalid_utf8": _invalid_utf8,
    "oversized": _oversized,
    "duplicate_key": _duplicate_key,
    "unknown_field": _unknown_field,
    "broken_rule": _broken_rule,
}

"""Fingerprints the decoding of a topic's records: its declaration, its schema files, the decoder's code."""

from __future__ import annotations

import functools
from collections.abc import Callable

from twofold.tables.declare.code_fingerprint import digest, parameters, read_code
from twofold.tables.declare.encodings import find_encoding
from twofold.tables.declare.parameter_checks import BOUND
from twofold.tables.declare.topic import Topic

_SAID_BEFORE = {
    # For no record at all, which raised.
    "np.array([cell is None for cell in cells], bool)": "np.array([cell is None for cell in cells])",
    "    clock: DeviceClock | None = None": "    captures: str | None = None\n    clock: DeviceClock | None = None",
    "= self.origin.most_bytes or max(": "= 32 << 20 if self.captures else max(",
}
"""Part of the decoder's code -> what it was, where a record becomes the same by both."""
# What these say does not change what a record becomes.
_NOT_DECODING = BOUND | {"idle_timeout", "partitions", "tiered", "segment_bytes", "local_retention", "origin", "scheme"}


def decoding(topic: Topic) -> str:
    """Computes twelve hex digits that change if the result of decoding a record of the topic may change."""
    schemas = [repr(topic.schema_files)] if topic.has_schema_files else []
    kinds: dict[str, Callable[..., object]] = {rule.kind: type(rule) for rule in topic.checks}
    rules = [line for _, kind in sorted(kinds.items()) for line in _rule(kind)]
    given = parameters(topic, _NOT_DECODING, captures=topic.captures)
    return digest([given, *_decoder(topic.encoding), *rules, *schemas])


@functools.cache
def _decoder(encoding: str) -> tuple[str, ...]:
    # with pyarrow, which a plan, that asks for tables only, does without
    from twofold.tables.refresh.events.record_decoder import Decoder

    lines = (*read_code(Decoder).complete_lines, *read_code(find_encoding(encoding).parser_class).complete_lines)
    return tuple(functools.reduce(lambda line, said: line.replace(*said), _SAID_BEFORE.items(), line) for line in lines)


@functools.cache
def _rule(kind: Callable[..., object]) -> tuple[str, ...]:
    """Returns the code of a kind of rule as records are checked by it; the decoder itself knows none."""
    return read_code(kind).complete_lines

"""The columns that the platform adds to events, and descriptions of columns, without an engine's imports."""

from __future__ import annotations

import re
from collections.abc import Mapping

PARTITION, OFFSET, APPENDED_AT = "_partition", "_offset", "_appended_at"
LATE_BY_MS, REPLAYED = "_late_by_ms", "_replayed"
LOG_OFFSET, TOMBSTONE = "log_offset", "is_tombstone"
"""Of a compacted topic, which a function reads: the order of the records of a key, and whether a record removes it."""
REST = "_rest"
"""Of a topic that keeps them: the fields of a record that its schema does not name, as JSON."""

OF_EVENTS: Mapping[str, str] = {
    PARTITION: "partition of the topic. A row without it is no record but a heartbeat of an idle topic",
    OFFSET: f"offset in the partition; with `{PARTITION}` the identity of the row",
    APPENDED_AT: "when the broker appended the record; producers cannot set it",
    LATE_BY_MS: "the topic's greatest event time committed before this micro-batch, minus the row's own, in "
    "milliseconds; negative when the row is ahead, null when nothing was committed before",
    REPLAYED: "written by a replay; streams skip the row, the batch applies it",
    REST: "fields of the record that the topic does not name, as JSON",
}
OF_QUARANTINE: Mapping[str, str] = {
    **OF_EVENTS,
    "key": "the record's key, raw bytes",
    "value": "the record's value, raw bytes",
    "headers": "the record's headers, where the topic reads them",
    "reasons": "all reasons why the record was refused",
}
OF_COMPACTED: Mapping[str, str] = {
    LOG_OFFSET: "offset in the log, which orders the records of a key",
    TOMBSTONE: "whether the record removes its key",
}
_DESCRIBED = re.compile(r"([A-Za-z]\w*(?:, [A-Za-z]\w*)*): (\S.*)", re.ASCII)


def described_columns(docstring: str | None) -> dict[str, str]:
    """Parses lines `column: text` or `column, column: text`; lines that are indented further continue the text."""
    described: dict[str, str] = {}
    last: list[str] = []
    for line in (docstring or "").splitlines():
        head = _DESCRIBED.match(line)
        if head:
            last = head[1].split(", ")
            described |= dict.fromkeys(last, head[2])
        elif line.startswith("    "):
            described |= {name: f"{described[name]} {line.strip()}" for name in last}
        else:
            last = []
    return described


def copied_descriptions(
    copied: Mapping[str, tuple[str, str]], of_inputs: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Describes columns that have the values of an input's column as this is described.

    Args:
        copied: column -> the input, and its column.
        of_inputs: input -> its columns -> their descriptions.
    """
    return {name: text for name, (one, column) in copied.items() if (text := of_inputs.get(one, {}).get(column))}

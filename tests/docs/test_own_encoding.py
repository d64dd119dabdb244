"""The encoding that a page shows parses records, and refuses those that do not fit."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests import ROOT
from tests.tables.declared import written
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder

PAGE = ROOT / "docs" / "how-to" / "write-an-encoding.md"
AT = datetime(2013, 1, 1, 8, tzinfo=UTC)
LINES = [
    b"g1,2013-01-01T07:00:00Z,1.5",
    b'"g,2",2013-01-01T07:30:00Z,',
    b"g1,2013-01-01T07:00:00Z",
    b"g1,yesterday,1",
    b",2013-01-01T07:00:00Z,1",
    b"\xff",
    None,
]


def test_lines_become_events_or_are_quarantined_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser, topic = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    written(tmp_path, {"parsers/__init__.py": "", "parsers/csv_lines.py": parser, "tables/river/levels.py": topic})
    monkeypatch.syspath_prepend(tmp_path)
    declared = load(tmp_path / "tables").require_sound().find_topic("levels")
    raw = pa.Table.from_pylist(
        [{"partition": 0, "offset": n, "timestamp": AT, "key": b"k", "value": line} for n, line in enumerate(LINES)],
        schema=RAW_SCHEMA,
    )
    decoded = Decoder(declared).decode(raw, None)
    assert decoded.accepted.select(["gauge", "read_at", "level"]).to_pylist() == [
        {"gauge": "g1", "read_at": AT.replace(hour=7), "level": 1.5},
        {"gauge": "g,2", "read_at": AT.replace(hour=7, minute=30), "level": None},
    ]
    assert [(r["_offset"], r["value"], r["reasons"][0]) for r in decoded.rejected.to_pylist()] == [
        (2, LINES[2], "2 values: expected 3"),
        (3, LINES[3], "Expected `timestamp`, got 'yesterday' at `read_at`"),
        (4, LINES[4], "Expected `string`, got `null` at `gauge`"),
        (5, LINES[5], "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (6, None, "no value: expected a line of values; tombstones need a topic that is declared with compacted=True"),
    ]


def test_a_parser_that_cannot_be_imported_is_a_mistake_of_the_topic(tmp_path: Path) -> None:
    _, topic = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    folder = written(tmp_path / "tables", {"river/levels.py": topic.replace("parsers.csv_lines", "parsers.none")})
    with pytest.raises(BadDeclaration, match=r"encoding='parsers\.none:CsvParser': No module named 'parsers"):
        load(folder).require_sound()

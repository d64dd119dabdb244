"""A fingerprint tells one definition of a table from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tables.derive import fingerprint, version_columns
from tables.registry import load
from tests.tables.declared import TABLE_FILE, TOPIC_FILE, a_table, written


def of(folder: Path, text: str) -> str:
    registry = load(written(folder, {"plant/readings.py": TOPIC_FILE, "plant/newest.py": text}))
    return fingerprint(registry.tables["plant.newest"])


def test_the_same_definition_has_the_same_fingerprint_wherever_it_lies(tmp_path: Path) -> None:
    first = of(tmp_path / "one", TABLE_FILE)
    assert len(first) == 12
    assert first == of(tmp_path / "two", TABLE_FILE) == of(tmp_path / "two", TABLE_FILE + "\n\n# The end.\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return readings", "return readings.distinct()"),
        ('key=["sensor"]', 'key=["sensor", "value"]'),
        ('latest_by=["read_at"]', 'latest_by=["value"]'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], watermark="1 hour"'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], event_time="read_at"'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], late="drop"'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], event_time="read_at", lookback="1 hour"'),
    ],
)
def test_another_definition_has_another_fingerprint(tmp_path: Path, old: str, new: str) -> None:
    changed = TABLE_FILE.replace(old, new)
    assert changed != TABLE_FILE
    assert of(tmp_path, TABLE_FILE) != of(tmp_path, changed)


def test_versions_order_any_two_different_rows_of_a_key() -> None:
    table = a_table(closes_at=None, lookback=None, key=["sensor"], latest_by=["read_at", "sensor"])
    assert version_columns(table, ["value", "sensor", "read_at", "count"]) == ["read_at", "value", "count"]

"""Files that are found whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from twofold.infra.atomic_write import settle, write_atomically


def test_a_text_is_on_the_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "position"
    write_atomically(file, "old")
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "twofold.infra.atomic_write._sync", lambda path: seen.append((path.suffix or path.name, file.read_text()))
    )
    write_atomically(file, "new")
    assert seen == [(".draft", "old"), (tmp_path.name, "new")]
    assert [path.name for path in tmp_path.iterdir()] == ["position"]


def test_what_need_not_last_costs_no_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.infra.atomic_write._sync", pytest.fail)
    write_atomically(tmp_path / "progress", "new", lasting=False)
    settle([tmp_path / "gone"])
    assert (tmp_path / "progress").read_text() == "new"

"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from twofold.infra.errors import MissingTool
from twofold.infra.java import java, java_version


def fake_java(directory: Path, version: str) -> Path:
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    launcher.chmod(0o755)
    return launcher


@pytest.mark.parametrize(("printed", "feature"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_the_feature_release_is_read_from_what_java_prints(tmp_path: Path, printed: str, feature: int) -> None:
    assert java_version(fake_java(tmp_path, printed)) == feature


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    chosen, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")

    found = java({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(other.parent)})

    assert found == chosen


def test_an_unusable_java_home_does_not_hide_a_usable_java_on_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    usable = fake_java(tmp_path / "new", "21.0.1")

    assert java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(usable.parent)}) == usable


def test_a_wrong_java_is_named_with_its_version(tmp_path: Path) -> None:
    launcher = fake_java(tmp_path, "11.0.2")

    with pytest.raises(MissingTool, match=rf"Java 17 to 21 is needed; {launcher} is Java 11") as missing:
        java({"PATH": str(launcher.parent)})

    assert "JAVA_HOME" in str(missing.value.hint)


def test_no_java_at_all_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="neither JAVA_HOME nor PATH has a java"):
        java({"PATH": str(tmp_path)})


def test_a_java_that_does_not_start_is_not_taken(tmp_path: Path) -> None:
    launcher = tmp_path / "java"
    launcher.write_text("not a program")
    launcher.chmod(0o755)

    with pytest.raises(MissingTool, match="no Java that runs"):
        java({"PATH": str(tmp_path)})

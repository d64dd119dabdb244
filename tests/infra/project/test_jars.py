"""Only pinned jars are run: what is missing, extra or different is found."""

from __future__ import annotations

import hashlib
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.infra.errors import MissingTool
from twofold.infra.project import jars
from twofold.infra.project.jars import Jar
from twofold.infra.project.settings import Settings

ONE = Jar(sha256=hashlib.sha256(b"one").hexdigest(), configuration="spark", organisation="o", name="one", revision="1")
TEST = replace(ONE, sha256=hashlib.sha256(b"test").hexdigest(), configuration="broker", classifier="test")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that has exactly ONE and TEST."""
    for path, content in {"spark/one-1.jar": b"one", "broker/one-1-test.jar": b"test"}.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes(content)
    return tmp_path


def test_the_lock_pins_every_jar_once() -> None:
    pinned = jars.pinned()

    assert len({jar.path for jar in pinned}) == len(pinned) == 120
    assert {len(jar.sha256) for jar in pinned} == {64}
    assert "broker/kafka-storage-4.3.1-test.jar" in {jar.path for jar in pinned}
    assert "broker/kafka-storage-4.3.1.jar" in {jar.path for jar in pinned}


def test_exactly_the_pinned_jars_are_no_problem(directory: Path) -> None:
    assert jars.problems(directory, [ONE, TEST]) == []


def test_an_archive_is_pinned_by_its_extension(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"all").hexdigest()
    (tmp_path / "lock").write_text(f"{digest}  registry  o:app:1:all@tar.gz\n")
    [archive] = jars.pinned(tmp_path / "lock")

    assert archive.path == "registry/app-1-all.tar.gz"
    assert jars.problems(tmp_path, [archive]) == ["registry/app-1-all.tar.gz is missing"]
    (tmp_path / "registry").mkdir()
    (tmp_path / archive.path).write_bytes(b"all")
    assert jars.problems(tmp_path, [archive]) == []


def test_a_missing_jar_is_a_problem(directory: Path) -> None:
    (directory / "spark/one-1.jar").unlink()

    assert jars.problems(directory, [ONE, TEST]) == ["spark/one-1.jar is missing"]


def test_an_extra_jar_is_a_problem(directory: Path) -> None:
    (directory / "spark/log4shell-1.jar").write_bytes(b"")

    assert jars.problems(directory, [ONE, TEST]) == ["spark/log4shell-1.jar is not in jars.lock"]


def test_a_jar_with_other_bytes_is_a_problem_that_names_both_digests(directory: Path) -> None:
    (directory / "spark/one-1.jar").write_bytes(b"onE")

    [problem] = jars.problems(directory, [ONE, TEST])

    assert ONE.sha256 in problem
    assert hashlib.sha256(b"onE").hexdigest() in problem


def test_the_installed_jars_are_complete_until_one_of_them_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = relocated(tmp_path, monkeypatch)
    jar = settings.jars / "spark" / "one-1.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"one")
    monkeypatch.setattr(jars, "pinned", lambda: (ONE,))

    assert not jars.is_complete(settings, ["spark"])
    jars.ensure(settings, ["spark"])
    assert jars.is_complete(settings, ["spark"])
    jar.write_bytes(b"onE")
    assert not jars.is_complete(settings, ["spark"])


def test_what_was_fetched_is_refused_when_it_is_not_what_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(target: Path, **_: object) -> None:
        (target / "spark").mkdir(parents=True)
        (target / "spark" / "one-1.jar").write_bytes(b"hostile")

    settings = relocated(tmp_path, monkeypatch)
    monkeypatch.setattr(jars, "pinned", lambda: (ONE,))
    monkeypatch.setattr(jars, "_resolve", resolve)

    with pytest.raises(MissingTool, match=r"not the pinned ones:\n  spark/one-1.jar has SHA-256"):
        jars.ensure(settings, ["spark"])

    assert list(settings.jars.glob("*/*.jar")) == []


def test_a_jar_of_an_earlier_lock_is_gone_after_the_next_resolve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(target: Path, **_: object) -> None:
        for path, content in {"spark/one-1.jar": b"one", "broker/one-1-test.jar": b"test"}.items():
            (target / path).parent.mkdir(parents=True)
            (target / path).write_bytes(content)

    settings = relocated(tmp_path, monkeypatch)
    (settings.jars / "spark").mkdir(parents=True)
    (settings.jars / "spark" / "one-0.jar").write_bytes(b"old")
    monkeypatch.setattr(jars, "pinned", lambda: (ONE, TEST))
    monkeypatch.setattr(jars, "_resolve", resolve)

    jars.ensure(settings, ["spark", "broker"])

    assert sorted(path.name for path in settings.jars.glob("*/*.jar")) == ["one-1-test.jar", "one-1.jar"]
    assert jars.is_complete(settings, ["spark"])


def test_of_two_that_start_together_one_fetches_and_both_find_the_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def resolve(target: Path, **_: object) -> None:
        fetched.append(target)
        time.sleep(0.3)
        for path, content in {"spark/one-1.jar": b"one", "broker/one-1-test.jar": b"test"}.items():
            (target / path).parent.mkdir(parents=True)
            (target / path).write_bytes(content)

    settings = relocated(tmp_path, monkeypatch)
    monkeypatch.setattr(jars, "pinned", lambda: (ONE, TEST))
    monkeypatch.setattr(jars, "_resolve", resolve)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(jars.ensure, settings, ["spark", "broker"]) for _ in range(2)]:
            done.result()

    assert len(fetched) == 1
    assert jars.is_complete(settings, ["spark"])


def test_a_fetch_that_fails_says_so_in_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, stdout="\t:: o#one;1: not found\n", stderr="")

    settings = relocated(tmp_path, monkeypatch)
    monkeypatch.setattr(jars, "java", lambda: Path("java"))
    monkeypatch.setattr(subprocess, "run", ran)

    with pytest.raises(MissingTool, match="cannot be fetched: :: o#one;1: not found") as missing:
        jars.ensure(settings, ["spark"])

    assert "network" in str(missing.value.hint)


def test_the_jars_that_have_come_are_counted_while_others_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[int, int]] = []

    def until(done: int) -> None:
        while (done, 2) not in counted:
            time.sleep(0.01)

    def fetch(target: Path, *, cache: Path, **_: object) -> None:
        for number, (jar, content) in enumerate(((ONE, b"one"), (TEST, b"test"))):
            until(number)
            for file in (target / jar.path, cache / "o" / "one" / "jars" / Path(jar.path).name):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        until(2)

    settings = relocated(tmp_path, monkeypatch)
    monkeypatch.setattr(jars, "pinned", lambda: (ONE, TEST))
    monkeypatch.setattr(jars, "_resolve", fetch)

    jars.ensure(settings, ["spark", "broker"], count=lambda *numbers: counted.append(numbers))

    assert list(dict.fromkeys(counted)) == [(0, 2), (1, 2), (2, 2)]


def relocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose jars lie in a place of this test."""
    (tmp_path / "twofold.toml").write_text('cache = ".cache"\n')
    monkeypatch.setenv("TWOFOLD_PROJECT", str(tmp_path))
    return Settings(home=tmp_path / "home")

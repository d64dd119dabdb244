"""A process gets its record, and is ended with all that it started."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers import wait_until
from twofold.features.work_queue.record_process import RecordProcess, variables
from twofold.infra.kafka.group_member import Record


def record(value: bytes | None = b"a value", key: bytes | None = b"ann") -> Record:
    return Record(topic="bank.jobs", partition=2, offset=17, key=key, value=value)


def ended(script: str, timeout_s: float = 60, **of_record: Any) -> str:
    process = RecordProcess(["/bin/sh", "-c", script], record(**of_record), 3, timeout_s)
    wait_until(lambda: (outcome := process.ended()) is not None and found.append(outcome) is None, 60)
    return found.pop()


found: list[str] = []


def test_a_process_gets_value_place_and_key(tmp_path: Path) -> None:
    variables = "$RECORD_TOPIC $RECORD_PARTITION $RECORD_OFFSET $RECORD_KEY $RECORD_DELIVERY $RECORD_TOMBSTONE"
    assert ended(f'echo "$(cat) {variables}" > "{tmp_path}/got"') == ""
    assert (tmp_path / "got").read_text() == "a value bank.jobs 2 17 ann 3 \n"


def test_a_value_of_a_megabyte_that_is_not_read_is_no_failure() -> None:
    assert ended("true", value=b"x" * (1 << 20)) == ""


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\xff\xc3", b"", {"RECORD_KEY": b"\xff\xc3"}),
        (b"\0\0\0\0\x07", b"", {"RECORD_KEY_BASE64": b"AAAAAAc="}),
        (None, None, {"RECORD_TOMBSTONE": "1"}),
    ],
    ids=["binary", "zero bytes", "tombstone"],
)
def test_keys_of_any_bytes_and_tombstones(key: bytes | None, value: bytes | None, expected: dict[str, object]) -> None:
    place = {"RECORD_TOPIC": "bank.jobs", "RECORD_PARTITION": "2", "RECORD_OFFSET": "17", "RECORD_DELIVERY": "1"}
    assert variables(record(value, key), 1) == place | expected
    assert ended("true", key=key, value=value) == ""


@pytest.mark.parametrize(
    ("script", "outcome"), [("exit 3", "exit code 3"), ("kill -9 $$", "signal 9"), ("cat; exit 0", "")]
)
def test_how_a_process_ended(script: str, outcome: str) -> None:
    assert ended(script) == outcome


def test_a_process_that_runs_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    assert ended(f'sleep 600 & echo $! > "{tmp_path}/child"; wait', timeout_s=0.5) == "killed after 0.5 seconds"
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, 10)


def test_what_cannot_be_run_is_an_error_of_the_system() -> None:
    began = time.monotonic()
    with pytest.raises(OSError, match="Argument list too long"):
        RecordProcess(["true"], record(key=b"k" * (1 << 20)), 1, 60)
    assert time.monotonic() - began < 10

"""The command `send`: lines become records with the declared key; what cannot be meant is refused first."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given

from tests.cli.conftest import Cli
from tests.tables.declared import written
from twofold.cli.commands.topic_commands import keyed
from twofold.features.persons.tests.records.test_hostile_records import records
from twofold.infra.project.settings import Settings
from twofold.tables.declare import registry

DEVICES = '''\
"""States of devices."""
from twofold import Topic, key

TOPIC = Topic(
    schema={"device": key(), "at": "timestamp", "state": "string?"},
    event_time="at",
    message_key="device",
    compacted=True,
)
'''


def test_the_key_is_the_field_that_the_topic_declares() -> None:
    lines = [
        b'{"actor": {"login": "ann"}}\n',
        b'{"actor": {"login": 7}}\r\n',
        b'{"actor": {"login": null}}',
        b'{"x": 1}',
    ]
    assert [key for key, _ in keyed(lines, ["actor", "login"], None)] == [b"ann", b"7", None, None]


@pytest.mark.parametrize("line", [b"yesterday", b"[1]", b"7", b"\xff", b'{"id": "\\ud800"}', b"[" * 100_000])
def test_a_line_that_is_no_record_has_no_key_and_stays_as_it_is(line: bytes) -> None:
    assert list(keyed([line + b"\n"], ["id"], None)) == [(None, line)]


@given(records)
def test_any_line_is_sent_as_it_is_with_a_key_or_none(value: bytes) -> None:
    line = value.replace(b"\r", b"").replace(b"\n", b"")
    assert [sent for _, sent in keyed([line], ["mail"], None)] == ([line] if line.strip() else [])


def test_empty_lines_are_skipped() -> None:
    assert list(keyed([b"\n", b'{"id": "a"}\n', b" \r\n", b'{"id": "b"}'], ["id"], None)) == [
        (b"a", b'{"id": "a"}'),
        (b"b", b'{"id": "b"}'),
    ]


def test_a_separator_ends_the_key_and_an_empty_value_is_a_tombstone() -> None:
    lines = [b'k1:{"a": "b:c"}\n', b"k2:\n", b"no key\n"]
    assert list(keyed(lines, [], ":")) == [(b"k1", b'{"a": "b:c"}'), (b"k2", None), (None, b"no key")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["departure"], "Did you mean 'departures'?"),
        (["departures", "missing.jsonl"], "missing.jsonl: No such file or directory."),
        (["departures", "."], ".: Is a directory."),
        (["customer_changes"], "holds changes of the table public.customers, which are no lines of text."),
    ],
)
def test_a_wrong_argument_is_refused_before_the_broker_is_asked(cli: Cli, words: list[str], says: str) -> None:
    ran = cli("send", *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_a_broker_that_does_not_run_is_reported_with_what_starts_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("{}\n")
    ran = cli("send", "departures", str(tmp_path / "lines"))
    assert ran.code == 75
    assert "./twofold up" in ran.err


@pytest.mark.platform
def test_lines_are_acknowledged_on_a_topic_that_was_not_there(
    cli: Cli, broker: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka import KafkaConsumer

    declared = registry.load(written(tmp_path / "tables", {"sent/devices.py": DEVICES})).require_sound()
    monkeypatch.setattr(registry, "load", lambda: declared)
    monkeypatch.setenv("TWOFOLD_BOOTSTRAP", broker.bootstrap_servers)
    assert "is no field of its values" in cli("send", "devices").err
    lines = b'd1:{"at": "2026-01-05T09:00:00Z"}\n\nd1:yesterday\nd1:\n'
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    ran = cli("send", "devices", "-K", ":")
    assert (ran.code, ran.err) == (0, "")
    consumer = KafkaConsumer(
        "sent.devices",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    found = [record for _, record in zip(range(3), consumer, strict=False)]
    consumer.close()
    assert [(record.key, record.value) for record in found] == [
        (b"d1", b'{"at": "2026-01-05T09:00:00Z"}'),
        (b"d1", b"yesterday"),
        (b"d1", None),
    ]
    assert ran.out == f"3 records acknowledged: partition {found[0].partition} at 0-2\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["departures", "--", "true"], "--name='' cannot name a queue."),
        (["departures", "--name", "Mails/2", "--", "true"], "--name='Mails/2' cannot name a queue."),
        (["departures", "--name", "mails"], "No command."),
        (["departures", "--name", "mails", "--", "no-such-program"], "'no-such-program' is no program"),
        (["departures", "--name", "mails", "--workers", "0", "--", "true"], "Invalid value for"),
        (["departures", "--name", "mails", "--deliveries", "0", "--", "true"], "Invalid value for"),
        (["departures", "--name", "mails", "--timeout", "soon", "--", "true"], "--timeout='soon': expected a length"),
        (["departures", "--name", "mails", "--timeout", "0 seconds", "--", "true"], "--timeout='0 seconds'"),
    ],
)
def test_a_wrong_argument_of_a_queue_is_refused_before_anything_starts(cli: Cli, words: list[str], says: str) -> None:
    ran = cli("work", *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


@pytest.mark.platform
def test_a_queue_over_a_topic_that_is_not_there_is_refused(
    cli: Cli, broker: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_BOOTSTRAP", broker.bootstrap_servers)
    ran = cli("work", "departure", "--name", "mails", "--", "true")
    assert (ran.code, ran.out) == (2, "")
    assert "There is no topic 'departure'." in ran.err
    assert "Did you mean 'departures'?" in ran.err
    long = cli("work", "departures", "--name", "m" * 250, "--", "true")
    assert (long.code, long.out) == (2, "")
    assert "Choose a shorter --name." in long.err

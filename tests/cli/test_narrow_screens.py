"""The tables of `demo`, `status` and `tables` fit 80 columns: no broken word, and no list in their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.cli.conftest import Cli
from twofold.cli.commands.platform_commands import print_status
from twofold.demo.run.demo_command import print_account
from twofold.demo.run.demo_report import Account, TableAccount, TopicAccount
from twofold.infra.process.supervisor import ProcessState
from twofold.status.parts.snapshot import PartitionState, QueryState, Snapshot, TableState, TopicState
from twofold.tables.declare.registry import Registry, load

WIDTH = 80
MANY = 128_869
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load()


def assert_fits(text: str, *heads: str) -> None:
    """Each of these tables is one, with a line of heads for it and no more."""
    assert max(len(line.rstrip()) for line in text.splitlines()) <= WIDTH
    for head in heads:
        assert len(re.findall(rf"^ +{head} +\S.*$", text, re.MULTILINE)) == 1, text
    assert "un-" not in text


@pytest.mark.parametrize("domain", ["flights", "shop"])
def test_the_account_of_the_demo(registry: Registry, capsys: pytest.CaptureFixture[str], domain: str) -> None:
    counts = {"missing": 0, "extra": 0, "changed": 0, "unexplained": 0, "corrected": 1_234, "late": 12_469}
    of_topics = {"records": MANY, "acknowledged": MANY, "events": MANY, "quarantined": 1_234}
    print_account(
        Account(
            start=date(2013, 1, 1),
            end=date(2013, 2, 1),
            topics=[
                TopicAccount(name=topic.full_name, missing=0, repeated=0, misjudged=0, **of_topics)
                for topic in registry.domain_topics(domain)
            ],
            tables=[
                TableAccount(name=table.full_name, rows=MANY, by_stream=MANY, compared=MANY, **counts)
                for table in registry.in_order(domain)
            ],
        )
    )
    text = capsys.readouterr().out
    assert_fits(text, "table", "topic")
    assert all(head in text for head in ("unexplained", "differing", "corrected", "missing", "misjudged"))


def queries(registry: Registry) -> Iterator[QueryState]:
    for table in registry.in_order():
        yield QueryState(
            domain=table.domain,
            query=table.name,
            batch=12,
            watermark=NOW if table.closes_at else None,
            inputs={},
            held_back_by=registry.upstream(table)[0].full_name if table.closes_at else None,
            rows_in=MANY,
            rows_out=MANY,
            batch_s=72.2,
            freshness_s=3_599,
            updated_at=NOW - timedelta(minutes=119),
            behind=1_234,
            error="",
        )


def test_the_status(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    partition = {"earliest": 0, "latest": MANY, "next": MANY, "lag": 0, "earliest_local": 0, "tiered": MANY}
    topics = [
        TopicState(
            name=topic.full_name,
            partitions=[PartitionState(partition=number, **partition) for number in range(topic.partitions)],
            events=MANY,
            quarantined=123,
            archive_bytes=123_456_789,
        )
        for topic in registry.topics.values()
    ]
    tables = [
        TableState(
            name=table.full_name,
            strategy=registry.strategy(table),
            rows=MANY,
            late=1_234,
            corrections=1_234,
            version=345,
        )
        for table in registry.in_order()
    ]
    processes = [
        ProcessState(name="airflow-dag-processor", state="RUNNING", pid=123_456, uptime_s=7_000.0, starts=1, detail="")
    ]
    print_status(Snapshot(at=NOW, processes=processes, topics=topics, queries=list(queries(registry)), tables=tables))
    text = capsys.readouterr().out
    assert_fits(text, "process", "table")
    assert len(re.findall(r"^ +query +\S.*freshness.*behind", text, re.MULTILINE)) == 2


def test_the_list_of_tables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    text = cli("tables").out
    assert_fits(text, "topic", "table")
    assert all(name in text for name in ("shop.customer_changes", "flights.missed_turnarounds"))

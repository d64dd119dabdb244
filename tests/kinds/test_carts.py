"""Carts from their events: a gap, a version twice and an event against the cart's state are found, and reported."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests import ROOT
from tests.kinds.test_shop import of_records
from twofold.cli.__main__ import main
from twofold.declared.shop.carts import fold
from twofold.infra.project.settings import Settings
from twofold.quality.gate import Subject, gate
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "how-to" / "explain-a-row.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(twofold as-of carts .*?)^```\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
DAY = datetime(2026, 3, 2, tzinfo=UTC)


def event(
    version: int, kind: str, product: str | None = None, quantity: int | None = None, at: str = "10:00"
) -> dict[str, Any]:
    hour, minute = map(int, at.split(":"))
    return {
        "cart_id": "b7",
        "version": version,
        "kind": kind,
        "product": product,
        "quantity": quantity,
        "happened_at": DAY.replace(hour=hour, minute=minute),
        "record": None,
    }


CUP, LAMP, ORDER = event(1, "added", "cup", 2), event(2, "added", "lamp", 1, "10:10"), event(3, "ordered", at="10:20")


@pytest.mark.parametrize(
    ("events", "faults"),
    [
        ([CUP, LAMP, ORDER], [None, None, None]),
        ([CUP, CUP, LAMP], [None, None]),  # sent twice
        ([CUP, ORDER], [None, "version 2 is missing"]),
        ([LAMP, ORDER], ["version 1 is missing", "version 1 is missing"]),
        (
            [CUP, event(2, "added", "rug", 1), LAMP, ORDER],
            [None, "version 2 is there twice", "version 2 is there twice"],
        ),
        ([event(1, "ordered")], ["version 1 orders nothing"]),
        ([CUP, event(2, "removed", "cup", 3)], [None, "version 2 removes more than there is"]),
        ([CUP, event(2, "removed", "lamp", 1)], [None, "version 2 removes more than there is"]),
        ([CUP, event(2, "removed", "cup", 2), ORDER], [None, None, "version 3 orders nothing"]),
        ([CUP, LAMP, ORDER, event(4, "added", "cup", 1)], [None, None, None, "version 4 comes after the order"]),
    ],
)
def test_the_first_fault_of_a_cart_is_named_from_its_version_on(
    events: list[dict[str, Any]], faults: list[str | None]
) -> None:
    assert [row["fault"] for row in fold(events)] == faults


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The cart of the page: its second event came to the broker after the third, at 11:00."""
    settings = Settings(home=tmp_path_factory.mktemp("carts") / "home", shuffle_partitions=1)
    world = World(spark, settings, "shop", of_records(load().restricted_to(["shop"])))
    for sent, appended in [(CUP, "10:00"), (ORDER, "10:20"), (LAMP, "11:00")]:
        append(world, sent, appended)
    world.maintain(["shop.carts"])
    return world


def append(world: World, sent: dict[str, Any], appended: str) -> None:
    """Ingest an event that the broker got at a time of the day."""
    topic = world.registry.find_topic("shop.cart_events")
    record = {key: value for key, value in sent.items() if key != "record"} | {
        "happened_at": sent["happened_at"].isoformat()
    }
    raw, ranges = world.raw(topic.full_name, [json.dumps(record).encode()])
    column = raw.schema.get_field_index("timestamp")
    hour, minute = map(int, appended.split(":"))
    at = pa.array([DAY.replace(hour=hour, minute=minute)], raw.schema.field(column).type)
    raw = raw.filter(pc.greater_equal(raw["offset"], ranges[0][0])).set_column(column, "timestamp", at)
    TopicWriter(world.spark, world.lake, topic).take(raw, ranges)


def verdict_of(world: World) -> str:
    table = world.registry.find_table("shop.carts")
    subject = Subject(
        df=world.lake.frame(world.spark, table.full_name),
        table=table.full_name,
        rules=table.checks,
        key=table.primary_key,
    )
    [verdict] = gate([subject], world.settings, DAY)
    return "; ".join(f"{rule} {[str(s) for s in verdict.samples]}" for rule in verdict.failed)


def test_a_gap_fails_the_check_of_carts_until_its_event_comes(world: World, tmp_path: Path, settings: Settings) -> None:
    assert verdict_of(world) == ""
    world = world.copied_to(replace(settings, home=tmp_path / "copy"))
    append(world, event(5, "added", "rug", 1, "11:10"), "11:10")
    world.maintain(["shop.carts"])
    found = verdict_of(world)
    assert "fault IS NULL" in found
    assert "1 of 4 rows" in found
    assert "cart_id=b7, version=5" in found


def test_an_event_that_is_none_is_in_quarantine(world: World, tmp_path: Path, settings: Settings) -> None:
    world = world.copied_to(replace(settings, home=tmp_path / "copy"))
    for wrong in (event(0, "added", "rug", 1), event(4, "lost", "rug", 1), event(4, "added", "rug", 0)):
        append(world, wrong, "11:10")
    reasons = [row["reasons"] for row in world.rows("shop.cart_events_quarantine").to_pylist()]
    assert len(reasons) == 3, reasons
    assert len(world.rows("shop.cart_events")) == 3


def test_the_page_shows_a_cart_at_a_time_and_at_an_offset(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import SparkSession

    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 2
    for commands, shown in BLOCKS:
        for command in commands.splitlines():
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main(shlex.split(command)[1:])
            printed = capsys.readouterr()
            assert not ended.value.code, printed.out + printed.err
        assert printed.out == shown

"""Status shows how far the rows of a table are closed, the input that holds it back, and what waits for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.instants import epoch_ms
from twofold.infra.project.settings import Settings
from twofold.streaming.query.progress import Progress, write
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.ingested_offsets import INGEST, ROWLESS, IngestedOffsets
from twofold.tables.refresh.events.record_decoder import events_schema, heartbeat

NEWEST = datetime(2013, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def streams(home: Path) -> None:
    """The stream of `delays_by_hour`, whose input has come to noon."""
    settings = Settings.from_environment()
    lake, topic = Lake(settings), load().find_topic("departures")
    newest_ms = epoch_ms(NEWEST)
    assert newest_ms is not None
    after = IngestedOffsets().after({0: (0, 1)}, newest_ms)
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    stamp = CommitTag(app=INGEST, version=after.number, info=after.info)
    Writer(lake, topic.full_name).append(heartbeat(topic, newest_ms, 0), stamp)
    behind = datetime(2013, 1, 1, 9, 30, tzinfo=UTC)
    for query, watermark in {"delays_by_hour": behind, "airport_weather": None}.items():
        write(settings, Progress(domain="flights", query=query, batch=7, watermark=watermark))


def test_status_names_the_input_that_holds_a_watermark_back(cli: Cli) -> None:
    queries = {query["query"]: query for query in cli("status", "--json").document["queries"]}
    hours, weather = queries["delays_by_hour"], queries["airport_weather"]
    assert hours["watermark"] == "2013-01-01T09:30:00+00:00"
    assert hours["inputs"] == {"flights.departures": "2013-01-01T10:00:00+00:00"}  # noon less two hours
    assert hours["held_back_by"] == "flights.departures"
    assert (weather["watermark"], weather["inputs"], weather["held_back_by"]) == (None, {}, None)


def test_what_changed_no_row_leaves_no_table_behind(cli: Cli) -> None:
    settings, topic = Settings.from_environment(), load().find_topic("departures")
    lake, writer = Lake(settings), Writer(Lake(settings), topic.full_name)
    read = {topic.full_name: lake.version(topic.full_name) + 1}
    write(settings, Progress(domain="flights", query="delays_by_hour", batch=7, versions=read))

    def behind() -> int:
        queries = cli("status", "--json").document["queries"]
        return next(query["behind"] for query in queries if query["query"] == "delays_by_hour")

    def append(cause: str) -> None:
        stamp = CommitTag(app="test", version=lake.version(topic.full_name), info={"cause": cause})
        writer.append(heartbeat(topic, 0, 0), stamp)

    for cause in ROWLESS:
        append(cause)
    lake.open(topic.full_name).optimize.compact()
    assert lake.version(topic.full_name) + 1 > read[topic.full_name]
    assert behind() == 0
    append("ingest")
    assert behind() == 1


def test_status_shows_it_next_to_the_watermark(cli: Cli) -> None:
    [line] = [line for line in cli("status").out.splitlines() if "2013-01-01 09:30" in line]
    assert "departures" in line


def test_status_shows_all_of_a_query_on_a_narrow_screen(cli: Cli) -> None:
    shown = cli("status").out
    queries = shown[shown.index("Queries of flights") : shown.index("Tables")]
    assert all(head in queries for head in ("watermark (UTC)", "held by", "freshness", "behind", "last"))
    assert [line for line in queries.splitlines() if "delays_by_hour" in line and line.rstrip().endswith(" s")]

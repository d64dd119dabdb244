"""A connector's configuration loses nothing silently; a slot that has not what the connector needs is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.support.postgres import Server
from twofold.features.capture import debezium_connector, kafka_connect
from twofold.features.capture.captured_table import Capture
from twofold.features.capture.debezium_connector import configuration, require_no_gap
from twofold.features.capture.log_marks import MARK_CHANGES
from twofold.features.outputs.targets.postgres_output import COPIES
from twofold.infra.errors import CaptureFailed
from twofold.infra.postgres.database_connection import supervised_address
from twofold.infra.project.settings import Settings

CAPTURE = Capture(topic="bank.people", table="public.people")


def test_the_connector_captures_one_table_for_one_topic(settings: Settings) -> None:
    found = configuration(replace(settings, database="postgresql://me:p%40ss@db.example:6543/shop"), CAPTURE)
    where = [found[f"database.{name}"] for name in ("hostname", "port", "user", "dbname")]
    assert where == ["db.example", "6543", "me", "shop"]
    assert "p@ss" not in str(found)
    assert re.fullmatch(found["table.include.list"], "public.people")
    assert not re.fullmatch(found["table.include.list"], "publicxpeople")
    route = re.compile(found["transforms.route.regex"])
    assert route.fullmatch("twofold_1_bank_people.public.people")
    assert found["transforms.route.replacement"] == "bank.people"


def test_the_rows_of_an_outbox_alone_become_records(settings: Settings) -> None:
    found = configuration(settings, replace(CAPTURE, is_outbox=True))
    row = re.compile(found["predicates.row.pattern"])
    assert row.fullmatch("twofold_1_bank_people.public.people")
    assert not row.fullmatch("__debezium-heartbeat.twofold_1_bank_people")
    assert found["transforms.outbox.predicate"] == "row"
    assert found["transforms.outbox.route.topic.replacement"] == "bank.people"


def test_slots_are_kept_after_a_failover_where_that_is_set(settings: Settings) -> None:
    assert configuration(settings, CAPTURE)["slot.failover"] == "false"
    assert configuration(replace(settings, slot_failover="on"), CAPTURE)["slot.failover"] == "true"


def test_what_is_lost_silently_by_default_is_configured(settings: Settings) -> None:
    found = configuration(settings, CAPTURE)
    assert found["offset.mismatch.strategy"] == "trust_offset"
    assert found["skipped.operations"] == "none"
    assert found["include.unknown.datatypes"] == "true"
    assert found["decimal.handling.mode"] == "string"
    assert found["errors.tolerance"] == "none"
    larger = configuration(settings, replace(CAPTURE, largest_record=1 << 24))
    assert larger["producer.override.max.request.size"] == str(1 << 24)


@pytest.mark.parametrize(
    ("offsets", "slot", "expected"),
    [
        (None, [], None),
        ([{"offset": {"lsn": 50, "lsn_commit": 40, "lsn_proc": 50}}], [("reserved", 0, 50, 60)], None),
        ([{"offset": {"lsn": 50}}], [("extended", 0, 30, 60)], None),
        ([{"offset": {"lsn": 50}}], [], "is gone"),
        ([{"offset": {"lsn": 50}}], [("lost", 0, 50, 60)], "is lost"),
        ([{"offset": {"lsn": 50}}], [("unreserved", 0, 50, 60)], "is unreserved"),
        ([{"offset": {"lsn": 50}}], [("reserved", 0, 51, 60)], "beyond the connector's 50"),
        ([{"offset": {"lsn": 50}}], [("reserved", 0, 30, 40)], "log ends at LSN 40, before the connector's 50"),
    ],
)
def test_a_slot_without_what_the_connector_needs_is_refused(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    offsets: Any,
    slot: list[tuple[str, int, int, int]],
    expected: str | None,
) -> None:
    monkeypatch.setattr(kafka_connect, "ask", lambda *_: offsets and {"offsets": offsets})
    monkeypatch.setattr(debezium_connector, "query", lambda *_: slot)
    if expected is None:
        require_no_gap(settings, CAPTURE)
    else:
        with pytest.raises(CaptureFailed, match=expected):
            debezium_connector.require_no_gap(settings, CAPTURE)


def test_a_connector_that_goes_on_while_one_looks_has_no_gap(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at either moves both on: the connector's position first, then the slot."""
    now = {"position": 50, "confirmed": 50}

    def moved_on(found: Any) -> Any:
        now.update(position=now["position"] + 10, confirmed=now["position"] + 10)
        return found

    monkeypatch.setattr(kafka_connect, "ask", lambda *_: moved_on({"offsets": [{"offset": {"lsn": now["position"]}}]}))
    monkeypatch.setattr(
        debezium_connector, "query", lambda *_: moved_on([("reserved", 0, now["confirmed"], now["position"])])
    )
    require_no_gap(settings, CAPTURE)


@pytest.mark.platform
def test_a_mark_is_written_after_transactions_and_else_once_a_minute(postgres: Server) -> None:
    """Of an idle database each would be a commit of each captured topic, every 10 s, for itself alone."""
    assert (
        configuration(postgres.settings, replace(CAPTURE, writes_marks=True))["heartbeat.action.query"] == MARK_CHANGES
    )
    at = supervised_address(postgres.settings, COPIES)
    with psycopg.connect(**at._asdict(), autocommit=True) as beats, psycopg.connect(**at._asdict()) as writer:

        def marks() -> int:
            return sum(len(beats.execute(MARK_CHANGES).fetchall()) for _ in range(3))  # type: ignore[call-overload]

        assert marks() == 1
        assert marks() == 0
        writer.execute("CREATE TABLE IF NOT EXISTS marked (n int)")
        assert marks() == 0, "no change of it is there before it ends"
        writer.commit()
        assert (marks(), marks()) == (1, 0)
        beats.execute("SELECT pg_logical_emit_message(false, 'another', '')")
        assert marks() == 0, "that of another connector is no transaction"
        a_minute_ago = "(current_setting('twofold.marked')::bigint - 60000000)::text"
        beats.execute(f"SELECT set_config('twofold.marked', {a_minute_ago}, false)")  # type: ignore[call-overload]
        assert (marks(), marks()) == (1, 0)
        writer.execute("DROP TABLE marked")

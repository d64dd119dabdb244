"""What each copy of the bank must hold: the rows of the database, as it says itself."""

from __future__ import annotations

import base64
import contextlib
from datetime import UTC
from typing import Any

import pytest

from tests.support.captured_bank import Bank
from twofold.features.capture import debezium_connector
from twofold.features.capture.captured_topic import captures
from twofold.features.capture.operate import recapture
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.reader import Reader
from twofold.infra.duckdb_session import query
from twofold.infra.errors import ProcessFailed

PAYMENTS = "SELECT id, paid_on, amount FROM {0} WHERE {1} ORDER BY 1, 2, 3"
PEOPLE = """
SELECT row_to_json(t) FROM (SELECT id, name, balance::text, exact::text, ratio, active, born::text,
    to_char(woke_at, 'YYYY-MM-DD"T"HH24:MI:SS.US') AS woke_at,
    to_char(seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') AS seen_at,
    profile::text, translate(encode(photo, 'base64'), E'\\n', '') AS photo, tags, scores, big, token, tokens, mood,
    span::text, price::numeric::text AS price, slots::text, twice
    FROM people ORDER BY id) t;
"""
TENANTS = """
SELECT id, tenant, flat, mail, letter, lower(split_part(mail, '@', 2)) FROM tenants ORDER BY id;
"""


def people_in(bank: Bank) -> list[dict[str, Any]]:
    """The rows of the database."""
    return [row for (row,) in bank.run(PEOPLE)]


def copied_people(bank: Bank) -> list[dict[str, Any]]:
    """The rows of the copy, written as the database writes them as JSON."""
    rows = sorted(bank.rows("people_now"), key=lambda row: row["id"])
    for row in rows:
        for name in ("balance", "born", "price"):
            row[name] = row[name] if row[name] is None else str(row[name])
        for name in ("woke_at", "seen_at"):
            time = row[name] and (row[name].astimezone(UTC) if row[name].tzinfo else row[name])
            row[name] = time and time.replace(tzinfo=None).isoformat(timespec="microseconds")
        row["photo"] = row["photo"] and base64.b64encode(row["photo"]).decode()
    return rows


def require_people(bank: Bank) -> None:
    """The copy holds the rows; intervals, which two systems write in two ways, are compared by the database."""
    assert bank.lost("people") == ""
    expected, found = people_in(bank), copied_people(bank)
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    spans = ", ".join(f"({row['id']}, {row['span']!r})" for row in found if row["span"] is not None)
    same = f"(VALUES {spans}) AS found (id, span) USING (id) WHERE people.span::text = found.span::interval::text"
    assert bank.run(f"SELECT count(*) FROM people JOIN {same};") == bank.run("SELECT count(span) FROM people;")
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.pop("span") is None) == (theirs.pop("span") is None)
        differing = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
        assert not differing, f"row {theirs['id']}: {str(differing)[:2000]}"


def require_current_people(bank: Bank) -> None:
    """The current rows of the history are those of the database."""
    current = {row["id"]: row["name"] for row in bank.rows("people_before") if row["is_current"]}
    assert current == dict(bank.run("SELECT id, name FROM people;"))


def require_explained(bank: Bank, *tables: str) -> None:
    """The batch explains every row of these tables."""
    results = bank.world.reconcile(tables, verify=True)
    assert results
    assert [result.unexplained for result in results if result.unexplained] == []


def payments(bank: Bank, table: str, where: str = "true") -> list[tuple[Any, ...]]:
    """Rows of a table of payments, in order."""
    sql = PAYMENTS.format("rows", where)
    return [tuple(row.values()) for row in query(sql, rows=bank.world.rows(f"bank.{table}")).to_pylist()]


def require_payments(bank: Bank, where: str = "true") -> None:
    assert bank.lost("payments") == ""
    assert payments(bank, "payments_now", where) == bank.run(PAYMENTS.format("payments", where))


def require_orders_once(bank: Bank) -> None:
    """Each committed order has its event, each event its order, in the order of commits for each basket."""
    expected = bank.run("SELECT * FROM orders ORDER BY 1, 2;")
    events = sorted(bank.rows("orders"), key=lambda event: event["_offset"])
    first = list({event["event_id"]: event for event in reversed(events)}.values())[::-1]
    assert sorted(((e["basket"], e["version"]) for e in first), key=lambda event: event[0]) == expected
    assert sorted((row["basket"], row["version"]) for row in bank.rows("orders_made")) == expected


def require_tenants(bank: Bank) -> None:
    """The copy holds the rows, with what is personal in the clear."""
    rows = sorted(bank.rows("tenants_now"), key=lambda row: row["id"])
    with contextlib.closing(KeyStore(bank.settings)) as store:
        reader = Reader(store, "test")
        mails, letters = (reader.values([row[name] for row in rows])[0] for name in ("mail", "letter"))
    assert [
        (row["id"], row["tenant"], row["flat"], mail, letter, row["mail_domain"])
        for row, mail, letter in zip(rows, mails, letters, strict=True)
    ] == bank.run(TENANTS)


PEOPLE_COPIES = ("people_now", "people_before")


def recapture_people(bank: Bank) -> int:
    """Captures the people again as the command does, and requires that all is well; how many rows were gone."""
    settings, topic = bank.settings, bank.registry.topics["bank.people"]
    bank.captures["people"] = capture = recapture.begin(settings, bank.lake, bank.captures["people"])
    assert "is not finished" in bank.fault("people")
    debezium_connector.wait_snapshot(settings, capture, 60)
    with pytest.raises(ProcessFailed, match="the snapshot ends before"):
        recapture.wait_ingested(settings, bank.lake, topic, stalled_s=0.5)
    bank.wait_ingested("people")
    gone = recapture.finish(settings, bank.lake, topic, capture)
    assert debezium_connector.known(settings, capture) == [capture]
    bank.wait_captured("people")
    bank.take_in(*PEOPLE_COPIES)
    assert bank.fault("people") == ""
    assert debezium_connector.undeclared_slots(settings, captures(bank.registry)) == []
    require_people(bank)
    require_current_people(bank)
    return gone

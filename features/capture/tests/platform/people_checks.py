"""Checks of a table of people: values of every type, keys, transactions, columns and truncations."""

from __future__ import annotations

import json

from tests.support.bank_declarations import people
from tests.support.captured_bank import Bank
from twofold.features.capture import debezium_connector
from twofold.features.capture.tests.platform.capture_check import Check
from twofold.features.capture.tests.platform.required_copies import (
    copied_people,
    people_in,
    require_current_people,
    require_explained,
    require_people,
)


class EveryType(Check):
    """Values of every type, of a snapshot and of changes; large ones that do not change do not travel."""

    changes = (
        people(21, 30)
        + """
        UPDATE people SET active = NOT active, balance = balance + 1 WHERE id <= 25;
        UPDATE people SET photo = NULL, tags = '{}', scores = NULL WHERE id = 8; UPDATE people SET mood = 'sad';
        """,
        "ALTER TABLE people REPLICA IDENTITY FULL;",
    )

    def validate(self, bank: Bank, changed: int) -> None:
        require_people(bank)
        require_current_people(bank)
        if changed == 2:
            require_explained(bank, "people_now", "people_before")


class ChangedKeys(Check):
    """Rows that are deleted, come back, or get another key."""

    changes = (
        "DELETE FROM people WHERE id IN (6, 7, 22); INSERT INTO people (id, name) VALUES (7, 'back');",
        """
        UPDATE people SET id = id + 1000 WHERE id IN (9, 10);
        UPDATE people SET active = true WHERE id = 1009;
        """,
    )

    def validate(self, bank: Bank, changed: int) -> None:
        names = {row["id"]: row["name"] for row in bank.rows("people_now")}
        there = [{6, 7, 9, 10, 22} - {22}, {7, 9, 10}, {7, 1009, 1010}][changed]
        assert there == names.keys() & {6, 7, 9, 10, 22, 1009, 1010}
        assert (names[7] == "back") == (changed > 0)


class Transactions(Check):
    """The last state of a transaction counts; what is rolled back is nowhere; a history has each committed row."""

    changes = (
        """
        BEGIN; UPDATE people SET name = 'short' WHERE id = 3;
        UPDATE people SET name = 'shorter' WHERE id = 3; COMMIT;
        BEGIN; UPDATE people SET name = 'never' WHERE id = 4; DELETE FROM people WHERE id = 5; ROLLBACK;
        INSERT INTO people (id, name) VALUES (5001, 'a'); UPDATE people SET name = 'b' WHERE id = 5001;
        """,
        """
        BEGIN; UPDATE people SET name = 'c' WHERE id = 5001; UPDATE people SET name = 'd' WHERE id = 5001; COMMIT;
        DELETE FROM people WHERE id = 5001;
        INSERT INTO people (id, name) VALUES (5001, 'e');
        """,
    )

    def validate(self, bank: Bank, changed: int) -> None:
        before = sorted(bank.rows("people_before"), key=lambda row: row["valid_from"])
        if changed:
            assert {"short", "never"}.isdisjoint(row["name"] for row in before)
            assert "shorter" in [row["name"] for row in before if row["id"] == 3]
        rows = [row for row in before if row["id"] == 5001]
        assert [row["name"] for row in rows] == [[], ["a", "b"], ["a", "b", "d", "e"]][changed]
        assert [row["is_current"] for row in rows] == [False] * (len(rows) - 1) + [True] * bool(rows)
        if changed == 2:
            assert [row["valid_to"] for row in rows[:2]] == [row["valid_from"] for row in rows[1:3]]
            assert rows[2]["valid_to"] < rows[3]["valid_from"]


class ChangedColumns(Check):
    """Columns that change in mid-stream are followed, or what they do to a row is refused and reported."""

    changes = (
        "",
        """
        ALTER TABLE people ADD COLUMN later text DEFAULT 'unknown'; UPDATE people SET later = 'x' WHERE id = 11;
        ALTER TABLE people ALTER COLUMN balance TYPE numeric(30,4), ALTER COLUMN active TYPE boolean;
        UPDATE people SET balance = 9999999999999999.9999 WHERE id = 12;
        """,
    )
    refusals = """
    ALTER TABLE people RENAME COLUMN mood TO spirit; UPDATE people SET spirit = 'happy' WHERE id = 12;
    ALTER TABLE people RENAME COLUMN spirit TO mood; UPDATE people SET mood = 'sad' WHERE id = 12;
    UPDATE people SET balance = balance * 10 WHERE id = 12;
    UPDATE people SET photo = convert_to(repeat('large', 500000), 'UTF8') WHERE id = 11;
    UPDATE people SET balance = 0, photo = NULL WHERE id IN (11, 12);
    """

    def validate(self, bank: Bank, changed: int) -> None:
        # By its place in the database's log: a killed Connect may send an event again.
        kept = {row["cdc_lsn"]: row["_rest"] for row in bank.rows("people") if row["id"] == 11 and row["_rest"]}
        assert [json.loads(rest) for rest in kept.values()] == [{"later": "x"}] * (changed == 2)
        self.moods = {row["id"]: row["mood"] for row in people_in(bank)}

    def validate_refusals(self, bank: Bank) -> None:
        found = {row["id"]: row["mood"] for row in copied_people(bank)}
        inserted = dict.fromkeys(Truncation.inserted, "happy")
        assert {id_: found[id_] for id_ in self.moods} == {**self.moods, 12: "sad", **inserted}
        [kept] = [row["_rest"] for row in bank.rows("people") if row["cdc_missing"] == "mood"]
        assert json.loads(kept)["spirit"] == "happy"


class Truncation(Check):
    """A truncation stops no connector, and is reported like the rows that are refused before it."""

    inserted = (3, 4, 5)
    refusals = f"TRUNCATE people; {people(3, 5)}"

    def validate_refusals(self, bank: Bank) -> None:
        reasons = [str(row["reasons"]) for row in bank.rows("people_quarantine")]
        # Of the balance; of the row that is too large, which its topic refuses, once as it is and once as it was.
        assert [sum(text in reason for reason in reasons) for text in ("at `balance`", "was truncated")] == [1, 1]
        assert sum("bytes: expected at most 1048576" in reason for reason in reasons) == 2
        assert "lack changes that were refused: 4" in bank.lost("people")
        state = debezium_connector.state(bank.settings, bank.captures["people"])
        assert state.state == "RUNNING"
        assert state.fault.startswith("people was truncated")

"""Changes of a captured table before they are in its topic: what is encrypted, computed, or stays as it is."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.tables.declared import bound_as
from twofold import changes_of, domain_of, personal, year_group
from twofold.features.capture.captured_table import LOST, MARK_PREFIX, UNCHANGED
from twofold.features.capture.debezium_decoder import names_no_row, snapshot_of
from twofold.features.persons.keys.ciphertext import RECORD, is_sealed, unseal
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.person_cover import PersonCover
from twofold.features.persons.records.personal import with_sealed_columns
from twofold.features.persons.records.record_sealer import PersonalRecord, RecordSealer
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder

TOPIC = with_sealed_columns(
    bound_as(
        changes_of(
            "public.clients",
            columns={
                "id": "long",
                "client": "string",
                "mail": personal("client"),
                "born": personal("client"),
                "tags": "array<string>",
                "domain": domain_of("mail"),
                "years": year_group("born", [1980]),
            },
            primary_key=["id"],
        ),
        "clients",
        "bank",
    )
)
ANN = {"id": 1, "client": "ann", "mail": "Ann@B.c", "born": "1979-05-01", "tags": ["new"]}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    settings = Settings(home=tmp_path)
    make_keys(settings)
    with closing(KeyStore(settings)) as opened:
        yield opened


def event(op: str, after: Any = None, before: Any = None, **changes: Any) -> bytes:
    """A change as Debezium 3.7 writes it."""
    source = {"name": "twofold_3_bank_clients", "sequence": '["10","20"]', "ts_us": 1_000_000, "table": "clients"}
    given = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1, **changes}
    return json.dumps(given).encode()


def sealed(store: KeyStore, value: bytes) -> Any:
    found = RecordSealer(TOPIC, store).seal(value)
    assert found is not None
    assert PersonalRecord(TOPIC).is_sealed(found)
    return found if is_sealed(found) else json.loads(found)


def revealed(store: KeyStore, text: str) -> Any:
    content = unseal(text, store.find)
    return content if content is None else json.loads(content)


def decoded(*values: bytes | None) -> Any:
    rows = [
        {"partition": 0, "offset": n, "timestamp": 1_795_780_800_000_000, "key": None, "value": v}
        for n, v in enumerate(values)
    ]
    return Decoder(TOPIC).decode(pa.Table.from_pylist(rows, schema=RAW_SCHEMA), None)


def test_both_rows_of_a_change_are_sealed_and_the_rest_stays(store: KeyStore) -> None:
    value = event("u", {**ANN, "nick": "annie"}, {**ANN, "client": "bob"})
    found = sealed(store, value)
    assert b"ann@" not in json.dumps(found).encode().lower()
    after, before = found["after"], found["before"]
    assert {name: after[name] for name in ("id", "client", "tags", "domain", "years")} == {
        "id": 1,
        "client": "ann",
        "tags": ["new"],
        "domain": "b.c",
        "years": "-1979",
    }
    assert [revealed(store, after[name]) for name in ("mail", "born", "nick")] == ["Ann@B.c", "1979-05-01", "annie"]
    assert (before["client"], revealed(store, before["mail"])) == ("bob", "Ann@B.c")
    assert before["mail"] != after["mail"]
    assert {name: found[name] for name in ("op", "source", "ts_ms")} == {
        name: json.loads(value)[name] for name in ("op", "source", "ts_ms")
    }


def test_a_sealed_change_is_an_event_with_computed_columns(store: KeyStore) -> None:
    values = [RecordSealer(TOPIC, store).seal(event("c", {**ANN, "nick": "annie"}))]
    values.append(RecordSealer(TOPIC, store).seal(event("d", None, {"id": 1, "client": None, "mail": None})))
    found = decoded(*values)
    assert found.rejected["reasons"].to_pylist() == []
    insert, delete = found.accepted.to_pylist()
    assert (insert["domain"], insert["years"], insert["cdc_missing"]) == ("b.c", "-1979", None)
    assert revealed(store, insert["mail"]) == "Ann@B.c"
    assert revealed(store, json.loads(insert["_rest"])["nick"]) == "annie"
    assert (delete["cdc_op"], delete["id"], delete["mail"], delete["cdc_missing"]) == ("delete", 1, None, None)


def test_a_value_that_did_not_travel_stays_one(store: KeyStore) -> None:
    """Of an undeclared column it has the form of that column's type."""
    photo = base64.b64encode(UNCHANGED.encode()).decode()
    value = RecordSealer(TOPIC, store).seal(event("u", {**ANN, "mail": UNCHANGED, "photo": photo, "tags": [UNCHANGED]}))
    [row] = decoded(value).accepted.to_pylist()
    assert row["cdc_unchanged"] == ["domain", "mail", "photo", "tags"]
    assert (row["mail"], row["domain"], row["years"]) == (None, None, "-1979")


def test_values_without_an_owner_end_after_a_month_and_their_row_stays(store: KeyStore, tmp_path: Path) -> None:
    """A captured table must not lack a row, also if it does not say whose it is."""
    of_client = store.keys_of([Person("client", "ann")])[Person("client", "ann")]
    for client in (None, UNCHANGED):
        found = sealed(store, event("c", {**ANN, "client": client}))["after"]
        assert (found["id"], found["domain"]) == (1, "b.c")
        assert revealed(store, found["mail"]) == "Ann@B.c"
        assert unseal(found["mail"], lambda _: of_client) is None
    after_a_month = time.time_ns() // 10**6 + 31 * 86_400_000
    assert unseal(found["mail"], KeyStore(Settings(home=tmp_path), now_ms=lambda: after_a_month).find) is None


def test_a_late_change_of_a_forgotten_person_has_nothing_of_it(store: KeyStore) -> None:
    store.forget(Person("client", "ann"), 0)
    found = sealed(store, event("u", {**ANN, "nick": "annie"}, ANN))
    assert found["after"] == {**ANN, "mail": None, "born": None, "domain": None, "years": None}
    assert found["before"] == found["after"]


def test_marks_truncations_and_what_is_lost_stay_as_they_are(store: KeyStore) -> None:
    mark = {"prefix": MARK_PREFIX, "content": base64.b64encode(b"1700000000000000").decode()}
    source = {"name": "twofold_2_bank_clients", "sequence": '[null,"0"]', "ts_us": 0}
    lost = json.dumps({"op": LOST, "source": source}).encode()
    for value in (event("m", message=mark), event("t"), lost):
        found = RecordSealer(TOPIC, store).seal(value)
        assert found is not None
        assert json.loads(found) == json.loads(value)
        assert PersonalRecord(TOPIC).is_sealed(value)
    [row] = decoded(event("m", message=mark)).accepted.to_pylist()
    assert row["cdc_op"] == "mark"
    assert LOST in decoded(lost).rejected["reasons"].to_pylist()[0][0]
    assert (names_no_row(lost), snapshot_of(lost)) == (True, 2)


@pytest.mark.parametrize(
    "value",
    [
        b"no JSON ann@b.c",
        b'"ann@b.c"',
        event("c", "ann@b.c"),
        event("c", ANN, note="ann@b.c"),
        event("m", message={"prefix": "other", "content": "ann@b.c"}),
        event("c", ANN).replace(b'"id": 1', b'"mail": "ann@b.c", "id": 1'),
    ],
)
def test_what_is_no_such_change_is_sealed_as_a_whole(store: KeyStore, value: bytes) -> None:
    found = sealed(store, value)
    assert unseal(found.decode(), store.find, RECORD) == value


def test_a_change_in_the_clear_is_quarantined_and_sealed(store: KeyStore, tmp_path: Path) -> None:
    plain = event("c", ANN)
    found = decoded(plain, RecordSealer(TOPIC, store).seal(plain))
    kept = PersonCover(TOPIC).quarantined(found.rejected, Settings(home=tmp_path))
    [value] = kept["value"].to_pylist()
    assert unseal(value.decode(), store.find, RECORD) == plain
    assert len(found.accepted) == 1


def test_a_computed_column_replaces_what_a_row_has_under_its_name(store: KeyStore) -> None:
    assert sealed(store, event("c", {**ANN, "domain": "forged"}))["after"]["domain"] == "b.c"

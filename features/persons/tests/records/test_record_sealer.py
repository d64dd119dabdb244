"""Records before they are produced: what is encrypted, by whose key, and what stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.tables.declared import bound_as
from twofold import Topic, person, personal, token_of
from twofold.features.persons.keys.ciphertext import RECORD, is_sealed, unseal
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.person_cover import PersonCover
from twofold.features.persons.records.personal import with_sealed_columns
from twofold.features.persons.records.record_sealer import PersonalRecord, RecordSealer, sealing
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = "2026-11-27T12:00:00Z"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIXTURE_ONCE = hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def a_topic(unknown_fields: str = "keep", **schema: str) -> Topic:
    topic = Topic(
        schema={
            "id": "int",
            "customer": "string?",
            "at": "timestamp",
            "mail": personal("customer"),
            "phone": personal("customer", path="contact.phone"),
            "tags": "map<string, struct<n: int>>?",
            **schema,
        },
        event_time="at",
        message_key="id",
        dedup_keys=["id"],
        unknown_fields=unknown_fields,  # type: ignore[arg-type]
    )
    return with_sealed_columns(bound_as(topic, "logins", "bank"))


def a_letter_topic() -> Topic:
    schema = {"id": "int", "sender": "string", "receiver": "long", "at": "timestamp"}
    text = personal("sender", person("client", of="receiver"))
    topic = Topic(schema={**schema, "text": text}, event_time="at", message_key="id", dedup_keys=["id"])
    return with_sealed_columns(bound_as(topic, "letters", "bank"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    settings = Settings(home=tmp_path)
    make_keys(settings)
    with closing(KeyStore(settings)) as opened:
        yield opened


def sealed(store: KeyStore, topic: Topic, value: Any) -> Any:
    found = RecordSealer(topic, store).seal(value if isinstance(value, bytes) else json.dumps(value).encode())
    assert found is not None
    return found.decode() if is_sealed(found) else json.loads(found)


def revealed(store: KeyStore, text: str) -> Any:
    content = unseal(text, store.find)
    return content if content is None else json.loads(content)


@FIXTURE_ONCE
@given(JSON)
def test_any_value_is_the_same_after_sealing(store: KeyStore, value: Any) -> None:
    found = sealed(store, a_topic(), {"id": 1, "customer": "ann", "at": AT, "mail": value})
    assert found["mail"] is None if value is None else revealed(store, found["mail"]) == value
    assert {name: found[name] for name in ("id", "customer", "at")} == {"id": 1, "customer": "ann", "at": AT}


@FIXTURE_ONCE
@given(JSON.filter(lambda value: value is not None), JSON.filter(lambda value: value is not None))
def test_equal_values_of_one_person_are_equal_everywhere(store: KeyStore, one: Any, other: Any) -> None:
    topic = a_topic()
    first = sealed(store, topic, {"customer": "ann", "mail": one, "contact": {"phone": one}})
    again = sealed(store, topic, {"contact": {"phone": other}, "mail": one, "customer": "ann"})
    of_bob = sealed(store, topic, {"customer": "bob", "mail": one})
    assert first["mail"] == first["contact"]["phone"] == again["mail"]
    assert (again["contact"]["phone"] == first["mail"]) == (
        json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    )
    assert of_bob["mail"] != first["mail"]


def test_names_in_another_order_are_the_same_value(store: KeyStore) -> None:
    one, other = (
        RecordSealer(a_topic(), store).seal(b'{"customer": "ann", "mail": %b}' % mail)
        for mail in (b'{"a": 1, "b": "\\u00e9"}', '{"b":"é","a":1}'.encode())
    )
    assert one == other


def test_numbers_stay_exact(store: KeyStore) -> None:
    found = RecordSealer(a_topic(), store).seal(
        b'{"customer": "ann", "mail": [12345678901234567890123, 0.10000000000000000001]}'
    )
    assert found is not None
    assert unseal(json.loads(found)["mail"], store.find) == b"[12345678901234567890123,0.10000000000000000001]"


def test_what_is_declared_and_not_personal_keeps_its_bytes(store: KeyStore) -> None:
    value = b'{"id": 1.50, "customer":"\\u0061nn", "tags": {"x":{"n": 007.0}}}'.replace(b"007", b"7")
    assert RecordSealer(a_topic(), store).seal(value) == b'{"id":1.50,"customer":"\\u0061nn","tags":{"x":{"n":7.0}}}'


def test_undeclared_fields_are_sealed_at_any_depth(store: KeyStore) -> None:
    value = {
        "id": 1,
        "customer": "ann",
        "nick": "annie",
        "tags": {"x": {"n": 1, "why": "secret"}},
        "contact": {"fax": "1"},
    }
    found = sealed(store, a_topic(), value)
    for text, plain in (
        (found["nick"], "annie"),
        (found["tags"]["x"]["why"], "secret"),
        (found["contact"]["fax"], "1"),
    ):
        assert revealed(store, text) == plain
    assert found["tags"]["x"]["n"] == 1
    dropped = sealed(store, a_topic(unknown_fields="ignore"), value)
    assert dropped == {"id": 1, "customer": "ann", "tags": {"x": {"n": 1}}, "contact": {}}


def test_an_object_in_place_of_a_plain_value_is_sealed(store: KeyStore) -> None:
    found = sealed(store, a_topic(), {"id": {"mail": "a@b.c"}, "customer": "ann", "tags": ["a@b.c"]})
    assert revealed(store, found["id"]["mail"]) == "a@b.c", "ingest refuses the object"
    assert [revealed(store, tag) for tag in found["tags"]] == ["a@b.c"]


@pytest.mark.parametrize(
    "value",
    [
        b"a@b.c",
        b'"a@b.c"',
        b'{"customer": "ann", "mail": "a@b.c"',
        b'{"customer": "ann", "mail": "a@b.c", "mail": "d@e.f"}',
        b'{"customer": "ann", "mail": "\xff"}',
        b'{"customer": null, "mail": "a@b.c"}',
        b'{"mail": "a@b.c"}',
        b'{"customer": 1.5, "mail": "a@b.c"}',
        b'{"customer": true, "nick": "a@b.c"}',
        b'{"customer": "ann", "mail": 1e999}',
        b'{"customer": "ann", "mail": %b}' % (b"1" * 6_000),
        b"[" * 5_000,
    ],
)
def test_what_names_no_person_is_sealed_as_a_whole(store: KeyStore, value: bytes) -> None:
    text = sealed(store, a_topic(), value)
    assert unseal(text, store.find, RECORD) == value
    assert unseal(text, store.find) is None


def test_the_key_of_the_day_is_destroyed_after_thirty_days(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    make_keys(settings)
    text = sealed(KeyStore(settings), a_topic(), b"a@b.c")
    for days, is_there in ((29, True), (31, False)):
        late = KeyStore(settings, now_ms=lambda days=days: (__import__("time").time_ns() // 10**6) + days * 86_400_000)
        assert (unseal(text, late.find, RECORD) is not None) == is_there


def test_a_late_record_of_a_forgotten_person_has_no_personal_values(store: KeyStore) -> None:
    store.forget(Person("customer", "ann"), 0)
    value = {"id": 1, "customer": "ann", "at": AT, "mail": "a@b.c", "contact": {"phone": "1"}, "nick": "annie"}
    assert sealed(store, a_topic(), value) == {
        "id": 1,
        "customer": "ann",
        "at": AT,
        "mail": None,
        "contact": {"phone": None},
    }


def test_a_value_of_two_persons_ends_with_either(store: KeyStore) -> None:
    topic, value = a_letter_topic(), {"id": 1, "sender": "ann", "receiver": 7, "text": "hello"}
    text = sealed(store, topic, value)["text"]
    assert revealed(store, text) == "hello"
    store.forget(Person("client", "7"), 0)
    assert revealed(store, text) is None
    assert sealed(store, topic, value)["text"] is None
    store.forget(Person("sender", "ann"), 0)
    assert sealed(store, topic, {**value, "receiver": 8})["text"] is None


def test_a_letter_to_oneself_needs_one_key(store: KeyStore) -> None:
    schema = {"id": "int", "sender": "string", "receiver": "string", "at": "timestamp"}
    text = personal(person("client", of="sender"), person("client", of="receiver"))
    topic = bound_as(
        Topic(schema={**schema, "text": text}, event_time="at", message_key="id", dedup_keys=["id"]), "letters"
    )
    found = sealed(store, topic, {"id": 1, "sender": "ann", "receiver": "ann", "text": "hello"})["text"]
    assert revealed(store, found) == "hello"


def test_ciphertext_that_someone_sends_is_a_value_like_others(store: KeyStore) -> None:
    of_bob = sealed(store, a_topic(), {"customer": "bob", "mail": "b@b.c"})["mail"]
    text = sealed(store, a_topic(), {"customer": "ann", "mail": of_bob})["mail"]
    assert revealed(store, text) == of_bob


def test_a_tombstone_stays_one(store: KeyStore) -> None:
    assert RecordSealer(a_topic(), store).seal(None) is None


def test_records_of_other_topics_stay_as_they_are(tmp_path: Path) -> None:
    """Also without a store: topics without columns of persons need none."""
    plain = bound_as(
        Topic(schema={"id": "int", "at": "timestamp"}, event_time="at", message_key="id", dedup_keys=["id"]), "x"
    )
    with sealing(Settings(home=tmp_path), [plain]) as seal:
        assert seal("plant.x", b"a@b.c") == b"a@b.c"
        assert seal("plant.x", None) is None


def decoded(topic: Topic, *values: bytes) -> Any:
    rows = [
        {"partition": 0, "offset": n, "timestamp": 1_795_780_800_000_000, "key": None, "value": v}
        for n, v in enumerate(values)
    ]
    return Decoder(topic).decode(pa.Table.from_pylist(rows, schema=RAW_SCHEMA), None)


def test_plain_text_of_another_producer_is_quarantined_and_sealed(store: KeyStore, tmp_path: Path) -> None:
    topic = a_topic()
    good = {"id": 1, "customer": "ann", "at": AT, "mail": "a@b.c"}
    ours, wrong = (RecordSealer(topic, store).seal(json.dumps(v).encode()) or b"" for v in (good, {**good, "id": "x"}))
    theirs, broken = json.dumps(good).encode(), b'{"mail": "a@b.c"'
    found = decoded(topic, ours, wrong, theirs, broken)
    assert found.accepted["id"].to_pylist() == [1]
    kept = PersonCover(topic).quarantined(found.rejected, Settings(home=tmp_path))
    assert kept.schema == found.rejected.schema
    values = kept["value"].to_pylist()
    assert values[0] == wrong
    assert [unseal(value.decode(), store.find, RECORD) for value in values[1:]] == [theirs, broken]
    assert kept["reasons"].to_pylist()[1][0].startswith("matches(mail, enc:1:")
    assert b"a@b.c" not in b"".join(values)
    assert PersonCover(topic).quarantined(kept, Settings(home=tmp_path)).equals(kept)


def test_a_frame_of_quarantine_is_sealed_as_a_table_is(spark: SparkSession, store: KeyStore, tmp_path: Path) -> None:
    topic, settings = a_topic(), Settings(home=tmp_path)
    values = [b'{"mail": "a@b.c"', RecordSealer(topic, store).seal(b'{"customer": "ann", "mail": "a"}'), None]
    rows = pa.table({"_offset": [1, 2, 3], "value": pa.array(values, pa.binary())})
    frame = PersonCover(topic).quarantined(spark.createDataFrame(rows), settings)
    assert not isinstance(frame, pa.Table)
    assert frame.orderBy("_offset").toArrow().equals(PersonCover(topic).quarantined(rows, settings))


def test_a_record_is_sealed_if_nothing_is_in_the_clear(store: KeyStore) -> None:
    record, sealer = PersonalRecord(a_topic()), RecordSealer(a_topic(), store)
    for value in (b'{"customer": "ann", "mail": "a", "nick": "b"}', b"no JSON", b'{"mail": null}', b'{"id": 1}'):
        found = sealer.seal(value)
        assert found is not None
        assert record.is_sealed(found)
    for value in (b'{"customer": "ann", "mail": "a"}', b'{"nick": "b"}', b"no JSON", b'{"tags": {"x": {"why": 1}}}'):
        assert not record.is_sealed(value)


def tokens(store: KeyStore, topic: Topic, *mails: object, customer: str = "ann") -> list[Any]:
    records = ({"id": 1, "customer": customer, "at": AT, "mail": mail} for mail in mails)
    return [sealed(store, topic, record)["mail_token"] for record in records]


def test_equal_values_have_one_token_over_persons_and_topics_of_a_domain(store: KeyStore) -> None:
    topic = a_topic(mail_token=token_of("mail"))
    first, other, none, nested = tokens(store, topic, "a@b.c", "A@b.c", None, {"b": 1, "a": "é"})
    assert (len(first), len({first, other, nested}), none) == (22, 3, None)
    assert tokens(store, topic, "a@b.c", customer="bob") == [first]
    assert tokens(store, topic, {"a": "é", "b": 1}) == [nested]
    shop, bank = (bound_as(topic, "visits", domain) for domain in ("shop", "bank"))
    assert tokens(store, bank, "a@b.c") == [first]
    assert tokens(store, shop, "a@b.c") != [first]


def test_only_the_store_makes_a_token_and_no_key_of_a_person_does(store: KeyStore, tmp_path: Path) -> None:
    topic = a_topic(mail_token=token_of("mail"))
    [before] = tokens(store, topic, "a@b.c")
    store.rotate()
    assert tokens(store, topic, "a@b.c") == [before]
    elsewhere = Settings(home=tmp_path / "other")
    make_keys(elsewhere)
    with closing(KeyStore(elsewhere)) as other:
        assert tokens(other, topic, "a@b.c") != [before]
    assert [kind for kind in store.counts() if not kind.startswith("_")] == ["customer"]


def test_a_forgotten_person_gets_no_token_and_others_keep_theirs(store: KeyStore) -> None:
    topic = a_topic(mail_token=token_of("mail"))
    [before] = tokens(store, topic, "a@b.c")
    store.forget(Person("customer", "ann"), 0)
    assert tokens(store, topic, "a@b.c") == [None]
    assert tokens(store, topic, "a@b.c", customer="bob") == [before]


def test_a_token_is_a_column_of_the_event_and_nothing_that_a_record_says(store: KeyStore) -> None:
    topic = a_topic(mail_token=token_of("mail"))
    record = {"id": 1, "customer": "ann", "at": AT, "mail": "a@b.c", "mail_token": "forged"}
    value = RecordSealer(topic, store).seal(json.dumps(record).encode())
    [event] = decoded(topic, value or b"").accepted.to_pylist()
    assert [event["mail_token"]] == tokens(store, topic, "a@b.c")
    assert event["mail"].startswith("enc:1:")

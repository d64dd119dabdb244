"""Columns of persons, as they are declared: what they become, and what is refused at load."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.tables.declared import bound_as, written
from twofold import (
    DeviceClock,
    Topic,
    changes_of,
    domain_of,
    field,
    from_webhook,
    header,
    key,
    outbox_of,
    person,
    personal,
    start_of,
    token_of,
    year_group,
)
from twofold.features.capture.captured_topic import is_relayed
from twofold.features.persons.keys.ciphertext import PATTERN
from twofold.features.persons.records.personal import Computed, Owner, owners_of, personal_columns, with_sealed_columns
from twofold.infra.errors import BadDeclaration
from twofold.quality.rules import matches, not_null
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.decoding_fingerprint import decoding


def a_topic(schema: dict[str, str], **changes: Any) -> Topic:
    given: dict[str, Any] = {"event_time": "at", "message_key": "customer", "dedup_keys": ["id"], **changes}
    columns = {"id": "string", "customer": "string", "at": "timestamp", **schema}
    return bound_as(Topic(schema=columns, **given), "logins", "bank")


def test_a_personal_column_is_text_that_may_be_null() -> None:
    topic = with_sealed_columns(
        a_topic({"mail": personal("customer"), "phone": personal("customer", path="contact.phone")})
    )
    assert {name: kind.text for name, kind in topic.types.items() if name in ("mail", "phone")} == {
        "mail": "string?",
        "phone": "string?",
    }
    assert topic.record_types["contact"].text == "struct<phone: string?>?"
    assert topic.checks == (matches("mail", PATTERN), matches("phone", PATTERN))
    assert list(personal_columns(pickle.loads(pickle.dumps(topic)))) == ["mail", "phone"]


def test_owners_are_named_by_kind_and_column() -> None:
    topic = a_topic(
        {
            "receiver": "string",
            "to_mail": personal(person("customer", of="receiver")),
            "text": personal("customer", person("customer", of="receiver")),
        }
    )
    assert owners_of(topic) == (Owner("customer", "receiver"), Owner("customer", "customer"))


def test_who_owns_a_column_is_part_of_the_decoding() -> None:
    plain, one, other = (
        with_sealed_columns(a_topic({"mail": kind}))
        for kind in ("string?", personal("customer"), personal(person("client", of="customer")))
    )
    assert len({decoding(plain), decoding(one), decoding(other)}) == 3


def test_a_webhook_has_personal_columns() -> None:
    topic = from_webhook(scheme="github", schema={"sender": "string?", "mail": personal("sender")})
    assert list(personal_columns(with_sealed_columns(bound_as(topic, "events", "hub")))) == ["mail"]


@pytest.mark.parametrize(
    ("schema", "changes", "message"),
    [
        ({"mail": personal("customer")}, {"message_key": "mail"}, "message_key names mail, which is personal"),
        ({"mail": personal("customer")}, {"dedup_keys": ["mail"]}, "dedup_keys names mail, which is personal"),
        ({"mail": personal("customer")}, {"event_time": "mail"}, "expected 'timestamp'"),
        ({"mail": personal("customer")}, {"report_time": "mail"}, "expected 'timestamp'"),
        (
            {"mail": personal("customer"), "sent": "timestamp"},
            {"event_time": "happened", "clock": DeviceClock(event="at", sent="mail")},
            "expected 'timestamp'",
        ),
        ({"mail": personal("customer")}, {"checks": [not_null("mail")]}, "reads mail, which is personal"),
        ({"mail": personal("customer")}, {"checks": [matches("mail", ".*@.*")]}, "reads mail, which is personal"),
        ({"mail": personal("client")}, {}, "names client, which the schema lacks"),
        ({"mail": personal()}, {}, "expected whose it is"),
        ({"mail": personal("customer"), "name": personal("mail")}, {}, "mail is personal itself"),
        ({"mail": personal("score"), "score": "double"}, {}, "expected an id, a string or a whole number"),
        ({"mail": personal("trace"), "trace": header("trace")}, {}, "trace is the record's header"),
        ({"mail": personal("where"), "where": key("string?")}, {}, "where is the record's key"),
        ({"mail": personal(person("A customer", of="customer"))}, {}, "cannot name a kind of person"),
        ({"mail": personal("customer")}, {"encoding": "pathlib:Path"}, "only columns of JSON records"),
    ],
)
def test_what_cannot_be_personal_is_refused(schema: dict[str, str], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        with_sealed_columns(a_topic(schema, **changes))


def test_a_captured_table_and_an_outbox_have_personal_columns() -> None:
    mail = {"customer": "string", "mail": personal("customer")}
    captured = changes_of("public.customers", columns=mail, primary_key=["customer"])
    outbox = outbox_of("public.outbox", schema={**mail, "at": "timestamp"}, event_time="at")
    for topic in (captured, outbox):
        sealed = with_sealed_columns(bound_as(topic, "customers", "bank"))
        assert sealed.checks == (matches("mail", PATTERN),)
        assert is_relayed(sealed)


def a_captured_topic(columns: dict[str, str]) -> Topic:
    captured = changes_of("public.customers", columns=columns, primary_key=["customer"])
    return with_sealed_columns(bound_as(captured, "customers", "bank"))


def test_what_a_row_of_a_table_cannot_have_is_refused() -> None:
    for columns, message in (
        ({"customer": "string", "mail": personal("customer", path="contact.mail")}, "expected no path"),
        ({"customer": personal("customer")}, "never null, in a key"),
        ({"customer": "string", "domain": domain_of("mail")}, "expected a personal column of the schema"),
    ):
        with pytest.raises(BadDeclaration, match=message):
            a_captured_topic(columns)


def test_columns_are_computed_of_personal_ones_alone() -> None:
    with pytest.raises(BadDeclaration, match=r"domain=domain_of\('customer'\): expected a personal column"):
        with_sealed_columns(a_topic({"domain": domain_of("customer")}))
    topic = with_sealed_columns(a_topic({"mail": personal("customer"), "domain": domain_of("mail")}))
    assert topic.types["domain"].text == "string?"
    assert repr(pickle.loads(pickle.dumps(topic)).schema["domain"]) == "domain_of('mail')"
    with pytest.raises(BadDeclaration, match=r"token=token_of\('customer'\): expected a personal column"):
        with_sealed_columns(a_topic({"token": token_of("customer")}))
    assert [rule.columns for rule in topic.checks] == [("mail",)]


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        (domain_of("x"), "Ann.B@Example.ORG ", "example.org"),
        (domain_of("x"), '"a@b"@c.de', "c.de"),
        (domain_of("x"), "no address", None),
        (domain_of("x"), "ann@", None),
        (domain_of("x"), ["a@b.c"], None),
        (start_of("x", 2), "75011", "75"),
        (start_of("x", 2), "7", "7"),
        (start_of("x", 2), 75011, None),
        (year_group("x", [1950, 1970]), "1949-12-31", "-1949"),
        (year_group("x", [1950, 1970]), "1950-01-01T00:00:00Z", "1950-1969"),
        (year_group("x", [1950, 1970]), 1970, "1970-"),
        (year_group("x", [1950, 1970]), "unknown", None),
        (year_group("x", [1950, 1970]), True, None),
        (year_group("x", [1950, 1970]), None, None),
    ],
)
def test_a_value_is_computed_or_is_null(given: Computed, value: object, expected: str | None) -> None:
    assert given.compute(value) == expected


def test_what_cannot_be_computed_is_refused() -> None:
    for declare in (lambda: start_of("x", 0), lambda: year_group("x", []), lambda: year_group("x", [1970, 1950])):
        with pytest.raises(BadDeclaration, match=r"expected (one letter|years in order)"):
            declare()


def test_a_file_with_a_wrong_owner_is_a_fault_of_its_own(tmp_path: Path) -> None:
    text = '''
        """Logins."""
        from twofold import Topic, personal
        TOPIC = Topic(
            schema={"customer": "string", "at": "timestamp", "mail": personal("%s")},
            event_time="at", message_key="customer", dedup_keys=["customer"],
        )
        '''
    found = load(written(tmp_path, {"bank/good.py": text % "customer", "bank/bad.py": text % "client"}))
    assert found.topics["bank.good"].checks == (matches("mail", PATTERN),)
    assert "names client" in found.faults["bank.bad"].message


def test_fields_by_path_and_personal_ones_are_distinct() -> None:
    topic = a_topic({"name": field("who.name", "string"), "mail": personal("customer", path="who.mail")})
    assert topic.record_types["who"].text == "struct<name: string, mail: string?>"
    assert repr(topic.schema["mail"]) == "personal('customer', path='who.mail')"

"""Columns of persons, as they are declared: what they become, and what is refused at load."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from infra.errors import BadDeclaration
from infra.keys.ciphertext import PATTERN
from quality.rules import matches, not_null
from tables import DeviceClock, Topic, changes_of, field, from_webhook, header, key, outbox_of, person, personal
from tables.declare.personal import Owner, owners_of, personal_columns, with_sealed_columns
from tables.declare.registry import load
from tables.refresh.events.decoding_fingerprint import decoding
from tests.tables.declared import bound_as, written


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


def test_a_captured_topic_cannot_have_personal_columns_yet() -> None:
    mail = {"customer": "string", "mail": personal("customer")}
    captured = changes_of("public.customers", columns=mail, primary_key=["customer"])
    outbox = outbox_of("public.outbox", schema={**mail, "at": "timestamp"}, event_time="at")
    for topic in (captured, outbox):
        with pytest.raises(BadDeclaration, match=r"cannot be personal yet: Debezium writes plain text"):
            with_sealed_columns(bound_as(topic, "customers", "bank"))


def test_a_file_with_a_wrong_owner_is_a_fault_of_its_own(tmp_path: Path) -> None:
    text = '''
        """Logins."""
        from tables import Topic, personal
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

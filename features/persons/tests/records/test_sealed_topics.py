"""No column is personal whose field was once in the clear, whatever the column is called."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from twofold import Topic, field, personal
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.records import sealed_topics
from twofold.features.persons.records.sealed_topics import require_sealed
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.settings import Settings

MAIL = personal("customer")


class Declared:
    """A topic that is declared again and again; it has records, and events, once `is_written`."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings, self.is_written = Settings(home=home), False
        make_keys(self.settings)
        bounds = {"plant.logins": {0: SimpleNamespace(latest=1)}}
        monkeypatch.setattr(sealed_topics, "offsets", lambda *_: bounds if self.is_written else {})
        monkeypatch.setattr(sealed_topics, "read_ingested_offsets", lambda *_: SimpleNamespace(ends={}))

    def as_(self, **schema: str) -> None:
        columns = {"id": "long", "customer": "string", "at": "timestamp", **schema}
        topic = Topic(
            schema=columns, event_time="at", message_key="customer", dedup_keys=["id"], name="logins", domain="plant"
        )
        require_sealed(self.settings, [topic])

    def with_records(self, **schema: str) -> None:
        self.as_(**schema)
        self.is_written = True
        events = pa.schema([(name, pa.string()) for name in ("id", "customer", "at", *schema)])
        write_deltalake(Lake(self.settings).uri("plant.logins"), events.empty_table(), mode="append")


@pytest.fixture
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Declared:
    return Declared(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ({"tel": "string"}, "tel"),
        ({"number": field("tel", "string")}, "tel"),
        ({"number": field("contact.tel", "string")}, "contact.tel"),
        ({"number": field("contact.tel", "string")}, "contact"),
        ({"contact": "string"}, "contact.tel"),
    ],
)
@pytest.mark.parametrize("is_from_before", [False, True])
def test_plain_text_does_not_become_personal_by_another_name(
    declared: Declared, plain: dict[str, str], path: str, is_from_before: bool
) -> None:
    declared.with_records(mail=MAIL, **plain)
    if is_from_before:  # of a store that did not note fields yet, the events have the columns' names
        with closing(KeyStore(declared.settings)) as store, store._writing():
            store._connection.execute("DELETE FROM field")
        declared.as_(mail=MAIL, **plain)
    declared.as_(mail=MAIL)
    with pytest.raises(BadDeclaration, match=rf"{path} cannot be personal"):
        declared.as_(mail=MAIL, phone=personal("customer", path=path))
    with pytest.raises(BadDeclaration, match=rf"{path} cannot be personal"):
        declared.as_(mail=personal("customer", path=path))


def test_what_was_always_personal_can_have_another_name(declared: Declared) -> None:
    declared.as_(mail=MAIL, tel="string")
    declared.with_records(mail=MAIL, tel=personal("customer"))
    declared.as_(post=personal("customer", path="mail"), phone=personal("customer", path="tel"))
    declared.as_(post=personal("customer", path="mail"), phone=personal("customer", path="tel.home"))
    declared.as_(other=personal("customer", path="never.declared"))


def test_a_field_that_was_in_the_clear_for_a_while_stays_so(declared: Declared) -> None:
    declared.with_records(mail=MAIL, tel=personal("customer"))
    declared.as_(mail=MAIL, tel="string")
    declared.as_(mail=MAIL)
    with pytest.raises(BadDeclaration, match="tel cannot be personal"):
        declared.as_(mail=MAIL, phone=personal("customer", path="tel"))

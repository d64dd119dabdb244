"""The topic that a page declares has values of persons that are encrypted, revealed and forgotten as the page says."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

from tests import ROOT
from tests.tables.declared import written
from twofold.features.persons.keys.ciphertext import is_sealed
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.keys.reader import Reader
from twofold.features.persons.records.record_sealer import RecordSealer
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

PAGE = ROOT / "docs" / "how-to" / "forget-a-person.md"


def declarations() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_what_the_page_computes_is_in_the_clear_and_nothing_else(tmp_path: Path) -> None:
    files = {"bank/mail_logins.py": declarations()[1], "bank/customers.py": declarations()[3]}
    topics = load(written(tmp_path / "tables", files)).require_sound().topics
    settings = Settings(home=tmp_path)
    make_keys(settings)
    login = {"customer": "4711", "mail": "Ann@B.org", "born": "1984-05-01", "postcode": "75011"}
    with closing(KeyStore(settings)) as store:
        found = json.loads(RecordSealer(topics["bank.mail_logins"], store).seal(json.dumps(login).encode()) or b"")
        change = {"op": "c", "after": login, "source": {}}
        row = json.loads(RecordSealer(topics["bank.customers"], store).seal(json.dumps(change).encode()) or b"")[
            "after"
        ]
    assert [found[name] for name in ("mail_domain", "age_group", "area")] == ["b.org", "1970-1989", "75"]
    assert all(is_sealed(found[name].encode()) for name in ("mail", "born", "postcode"))
    assert row["mail_domain"] == "b.org"
    assert all(is_sealed(row[name].encode()) for name in ("mail", "born", "postcode"))


def test_the_token_of_the_page_joins_payments_of_two_customers_by_one_card(tmp_path: Path) -> None:
    [topic] = load(written(tmp_path / "tables", {"bank/card_payments.py": declarations()[2]})).topics.values()
    settings = Settings(home=tmp_path)
    make_keys(settings)
    with closing(KeyStore(settings)) as store:
        payments = [{"customer": customer, "card": "4111-1111"} for customer in ("4711", "4712")]
        one, other = (json.loads(RecordSealer(topic, store).seal(json.dumps(p).encode()) or b"") for p in payments)
    assert one["card_token"] == other["card_token"] != "4111-1111"
    assert one["card"] != other["card"]


def test_the_topic_of_the_page_forgets_one_customer_and_keeps_the_other(tmp_path: Path) -> None:
    declared, *_, output = declarations()
    of_table = '"""Logins."""\nfrom twofold import table, to_postgres, to_webhook\n' + output.replace(
        "...", "return logins"
    )
    files = {"bank/logins.py": declared, "bank/recent_logins.py": of_table}
    registry = load(written(tmp_path / "tables", files)).require_sound()
    assert [one.reveal for _, one in registry.outputs()] == [["mail"], ["mail"]]
    topic = registry.find_topic("logins")
    settings = Settings(home=tmp_path)
    make_keys(settings)
    with closing(KeyStore(settings)) as store:
        sealer, reader = RecordSealer(topic, store), Reader(store, "test")
        logins = [{"customer": c, "mail": f"{c}@b.c", "contact": {"phone": c, "fax": c}} for c in ("4711", "4712")]
        records = [json.loads(sealer.seal(json.dumps(login).encode()) or b"") for login in logins]
        held = [[r["mail"], r["contact"]["phone"], r["contact"]["fax"]] for r in records]
        assert all(is_sealed(text.encode()) for texts in held for text in texts)
        assert [reader.values(texts)[0] for texts in held] == [
            ["4711@b.c", "4711", "4711"],
            ["4712@b.c", "4712", "4712"],
        ]
        store.forget(Person("customer", "4711"), 0)
        assert [reader.values(texts)[0] for texts in held] == [[None] * 3, ["4712@b.c", "4712", "4712"]]

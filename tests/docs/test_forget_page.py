"""The topic that a page declares has values of persons that are encrypted, revealed and forgotten as the page says."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

from infra.keys.ciphertext import is_sealed
from infra.keys.key_store import KeyStore, Person, make_keys
from infra.keys.reader import Reader
from infra.settings import ROOT, Settings
from tables.declare.registry import load
from tables.refresh.events.record_sealer import RecordSealer
from tests.tables.declared import written

PAGE = ROOT / "docs" / "how-to" / "forget-a-person.md"


def test_the_topic_of_the_page_forgets_one_customer_and_keeps_the_other(tmp_path: Path) -> None:
    declared, output = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    of_table = '"""Logins."""\nfrom tables import table, to_postgres, to_webhook\n' + output.replace(
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

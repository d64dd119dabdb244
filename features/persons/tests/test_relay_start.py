"""A relay is supervised only where a captured topic has columns of persons; it is started again with other ones."""

from __future__ import annotations

from pathlib import Path

from tests.tables.declared import written
from twofold.features.capture.captured_topic import captures
from twofold.features.persons.relay import SERVICE, relayed_topics
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load

FILE = '''\
"""Clients of a database."""
from twofold import changes_of, domain_of, personal

TOPIC = changes_of(
    "public.clients",
    columns={"client": "string", "mail": personal("client"), "domain": domain_of("mail")},
    primary_key=["client"],
)
'''
PLAIN = FILE.replace('personal("client"), "domain": domain_of("mail")', '"string"')


def declared(folder: Path, text: str = FILE) -> Registry:
    files = {"big_bank/clients.py": text, "big_bank/others.py": PLAIN, "shop/others.py": PLAIN}
    return load(written(folder, files)).require_sound()


def test_only_a_domain_with_captured_persons_has_a_relay(settings: Settings, tmp_path: Path) -> None:
    found = declared(tmp_path)
    [program] = SERVICE.programs(settings, found)
    assert program.name == "relay-big-bank"
    assert [topic.full_name for topic in relayed_topics(found, "big_bank")] == ["big_bank.clients"]
    assert list(SERVICE.programs(settings, declared(tmp_path / "plain", PLAIN))) == []
    assert list(SERVICE.programs(settings, found.restricted_to(["shop"]))) == []


def test_the_relay_changes_with_what_it_has_to_encrypt(settings: Settings, tmp_path: Path) -> None:
    texts = (FILE, FILE.replace("the", "a"), FILE.replace('domain_of("mail")', '"string"'))
    found, same, other = ([*SERVICE.programs(settings, declared(tmp_path / str(n), t))] for n, t in enumerate(texts))
    assert found == same
    assert found != other


def test_a_connector_writes_to_the_intake_and_knows_no_computed_column(tmp_path: Path) -> None:
    written_to = {
        capture.topic: (capture.written_topic, [*capture.columns]) for capture in captures(declared(tmp_path))
    }
    assert written_to == {
        "big_bank.clients": ("big_bank.clients.intake", ["client", "mail"]),
        "big_bank.others": ("big_bank.others", ["client", "mail"]),
        "shop.others": ("shop.others", ["client", "mail"]),
    }

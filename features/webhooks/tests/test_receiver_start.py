"""The receiver is supervised only where a topic is declared for it, and looked at by the doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables.declared import written
from twofold.features.webhooks.receiver import SERVICE
from twofold.features.webhooks.secret_check import require_webhook_secrets
from twofold.infra.errors import BadSetting
from twofold.infra.process.doctor import examine
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load

FILE = '''\
"""Refunds, as the bank reports them."""
from twofold import from_webhook

TOPIC = from_webhook(scheme="standard", schema={"cents": "int"})
'''


def declared(folder: Path, text: str = FILE) -> Registry:
    return load(written(folder, {"bank/refunds.py": text})).require_sound()


def test_without_a_topic_of_webhooks_nothing_is_started(settings: Settings) -> None:
    flights = load().restricted_to(["flights"])
    assert not SERVICE.needed(settings, flights)
    assert list(SERVICE.ready(settings, flights)) == list(SERVICE.addresses(settings, flights, True)) == []


def test_the_program_changes_with_what_it_has_to_know(settings: Settings, tmp_path: Path) -> None:
    [program] = SERVICE.programs(settings, declared(tmp_path / "one"))
    [same] = SERVICE.programs(settings, declared(tmp_path / "two", FILE.replace("the bank", "a bank")))
    [other] = SERVICE.programs(settings, declared(tmp_path / "three", FILE.replace("standard", "github")))
    assert program.name == "receiver"
    assert program == same
    assert program != other


def test_the_program_changes_with_what_it_has_to_encrypt(settings: Settings, tmp_path: Path) -> None:
    fields = ['"name": "string?"', '"name": personal("payer")', '"name": personal("payer", path="payer_name")']
    texts = [
        FILE.replace('{"cents": "int"}', f'{{"payer": "string", {field}}}').replace("import ", "import personal, ")
        for field in fields
    ]
    found = [list(SERVICE.programs(settings, declared(tmp_path / str(n), text))) for n, text in enumerate(texts)]
    assert found[0] != found[1] != found[2]


def test_the_port_of_the_receiver_is_known_and_looked_at(settings: Settings) -> None:
    [port] = SERVICE.ports
    assert (port.number(settings), port.setting, port.program) == (18084, "TWOFOLD_WEBHOOK_PORT", "receiver")
    assert settings.receiver_address == "http://127.0.0.1:18084"
    assert "Port 18084" in {finding.name for finding in examine(settings, [SERVICE])}
    assert "Port 18084" not in {finding.name for finding in examine(settings, [])}


def test_each_topic_gets_a_secret_in_a_file_that_others_cannot_read(settings: Settings, tmp_path: Path) -> None:
    registry = declared(tmp_path / "tables")
    SERVICE.programs(settings, registry)
    assert settings.webhook_secrets_file.read_text().startswith("bank.refunds = whsec_")
    settings.webhook_secrets_file.chmod(0o644)
    with pytest.raises(BadSetting, match="other users can read"):
        SERVICE.programs(settings, registry)


def test_a_topic_without_a_secret_is_refused_by_the_check(settings: Settings, tmp_path: Path) -> None:
    registry = declared(tmp_path / "tables")
    require_webhook_secrets(settings, registry)  # before `up` has made the file
    file = settings.webhook_secrets_file
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    with pytest.raises(BadSetting, match=r"bank\.refunds has no secret") as fault:
        require_webhook_secrets(settings, registry)
    assert str(file) in str(fault.value.hint)
    file.write_text("bank.refunds = whsec_YQ==\n")
    require_webhook_secrets(settings, registry)

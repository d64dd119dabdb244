"""The file of webhooks' secrets: private, several for one topic, made where one is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from twofold.infra.errors import BadSetting
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.signatures import secret_fault
from twofold.infra.webhooks.webhook_secrets import add_missing, read_secrets, require_secrets


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "secrets"
    file.write_text(text, "utf-8")
    file.chmod(mode)
    return file


def test_a_topic_has_the_secrets_of_all_its_lines(tmp_path: Path) -> None:
    file = written(tmp_path, "# of the bank\n\nshop.refunds = whsec_YQ==\nhub.pushes=a b\n shop.refunds =new\n")
    assert read_secrets(file) == {"shop.refunds": ["whsec_YQ==", "new"], "hub.pushes": ["a b"]}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(BadSetting, match=f"mode {mode:o}") as refused:
        read_secrets(written(tmp_path, "a.b = hush", mode))
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("line", ["a.b", "a.b =", "= hush", "a.b hush"])
def test_a_line_of_another_form_is_named_without_its_secret(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadSetting, match="line 2: expected `domain") as refused:
        read_secrets(written(tmp_path, f"# first\n{line}\n"))
    assert "hush" not in str(refused.value)


def test_missing_secrets_are_made_once_and_kept(settings: Settings) -> None:
    add_missing(settings, ["shop.refunds"])
    made = read_secrets(settings.webhook_secrets_file)
    assert (settings.webhook_secrets_file.stat().st_mode & 0o777) == 0o600
    assert secret_fault("standard", made["shop.refunds"][0]) == ""
    add_missing(settings, ["shop.refunds", "hub.pushes"])
    again = read_secrets(settings.webhook_secrets_file)
    assert again["shop.refunds"] == made["shop.refunds"]
    assert again["hub.pushes"] != again["shop.refunds"]


def test_nothing_is_written_to_a_file_of_yours(settings: Settings, tmp_path: Path) -> None:
    yours = replace(settings, webhook_secrets=str(written(tmp_path, "a.b = whsec_YQ==\n")))
    add_missing(yours, ["a.c"])
    assert yours.webhook_secrets_file.read_text() == "a.b = whsec_YQ==\n"
    require_secrets(yours, {"a.b": "standard"})
    yours.webhook_secrets_file.chmod(0o644)
    with pytest.raises(BadSetting, match="mode 644"):
        add_missing(yours, ["a.b"])
    yours.webhook_secrets_file.chmod(0o600)
    with pytest.raises(BadSetting, match=r"^a\.c has no secret\n.*Add"):
        require_secrets(yours, {"a.b": "standard", "a.c": "github"})


def test_a_fault_says_which_secret_cannot_be_used(settings: Settings, tmp_path: Path) -> None:
    require_secrets(settings, {"a.b": "standard"})  # the first `up` makes the file
    nowhere = replace(settings, webhook_secrets=str(tmp_path / "no"))
    require_secrets(nowhere, {})
    with pytest.raises(BadSetting, match="cannot be read"):
        require_secrets(nowhere, {"a.b": "github"})
    require_secrets(replace(settings, webhook_secrets=str(written(tmp_path, "a.b = hush-hush\n"))), {"a.b": "github"})
    file = written(tmp_path, "a.b = a\n")
    with pytest.raises(BadSetting, match=r"a secret of a\.b: expected base64, mostly with whsec_ before it"):
        require_secrets(replace(settings, webhook_secrets=str(file)), {"a.b": "standard"})

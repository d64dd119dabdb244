"""Secrets of webhooks: a private file with a line `topic = secret` for each."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from twofold.infra import COMMAND
from twofold.infra.errors import BadSetting
from twofold.infra.private_file import Faults, private_lines
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.signatures import Scheme, secret_fault

Secrets = Mapping[str, Sequence[str]]
"""Topic -> its secrets, all of them valid."""


def read_secrets(file: Path) -> Secrets:
    """Reads the secrets of each topic; empty lines and those that begin with # count for nothing.

    Raises:
        BadSetting: no such file, one that others can read, or a line of another form; no message holds a secret.
    """
    faults = Faults(
        unreadable=lambda error: BadSetting(
            f"The webhooks' secrets cannot be read: {error}.",
            hint="TWOFOLD_WEBHOOK_SECRETS names a file with a line `domain.topic = secret` for each topic.",
        ),
        shared=lambda mode: BadSetting(
            f"{file} has the mode {mode:o}: other users can read the webhooks' secrets.",
            hint=f"chmod 600 {file}; then replace the secrets, if other people use this machine.",
        ),
        malformed=lambda number: BadSetting(f"{file}, line {number}: expected `domain.topic = secret`."),
    )
    secrets: dict[str, list[str]] = {}
    for _, topic, secret in private_lines(file, faults):
        secrets.setdefault(topic, []).append(secret)
    return secrets


def add_missing(settings: Settings, topics: Sequence[str]) -> None:
    """Reads the secrets; adds a random one for each topic without one, unless the file is one of yours.

    Raises:
        BadSetting: as `read_secrets`.
    """
    file = settings.webhook_secrets_file
    is_yours = bool(settings.webhook_secrets)
    if not is_yours and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    known = read_secrets(file)
    if is_yours:
        return
    made = [
        f"{topic} = whsec_{b64encode(secrets.token_bytes(32)).decode()}\n" for topic in topics if topic not in known
    ]
    with file.open("a", encoding="utf-8") as lines:
        lines.writelines(made)


def require_secrets(settings: Settings, schemes: Mapping[str, Scheme]) -> None:
    """Refuses topics whose deliveries cannot be checked; none before `up` has made the file.

    Args:
        schemes: topic -> the scheme of its signatures.

    Raises:
        BadSetting: as `read_secrets`; or names the topics.
    """
    if not schemes or not (settings.webhook_secrets or settings.webhook_secrets_file.exists()):
        return
    known = read_secrets(settings.webhook_secrets_file)
    faults = [f"{topic} has no secret" for topic in schemes if topic not in known]
    for topic, scheme in schemes.items():
        unfit = [fault for secret in known.get(topic, ()) if (fault := secret_fault(scheme, secret))]
        faults += [f"a secret of {topic}: {unfit[0]}"] if unfit else []
    if faults:
        raise BadSetting(
            "; ".join(faults),
            hint=f"Add `domain.topic = secret` to {settings.webhook_secrets_file}, of mode 600; it is read at once. "
            f"`{COMMAND} up` adds random ones to the file in home.",
        )

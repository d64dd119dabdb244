"""The key of keys, without which the keys of persons cannot be read: in a private file, or in the environment."""

from __future__ import annotations

import binascii
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

from twofold.infra import COMMAND
from twofold.infra.atomic_write import settle
from twofold.infra.errors import BadSetting
from twofold.infra.private_file import Faults, private_lines
from twofold.infra.project.settings import Settings

SETTING = "TWOFOLD_KEY_OF_KEYS"
BYTES = 32
_ITSELF = "base64:"


class KeyOfKeys:
    """Encrypts keys (RFC 3394); a service that keeps the key of keys to itself can have these two methods, too."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def wrap(self, key: bytes) -> bytes:
        """Encrypts a key."""
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        return aes_key_wrap(self.key, key)

    def unwrap(self, wrapped: bytes) -> bytes | None:
        """Decrypts a key; None if another key of keys encrypted it."""
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        try:
            return aes_key_unwrap(self.key, wrapped)
        except InvalidUnwrap:
            return None


def read_keys_of_keys(settings: Settings) -> list[KeyOfKeys]:
    """Reads the key of keys; two while it is replaced.

    Raises:
        BadSetting: no such file, one that others can read, or no key of 32 bytes. No message shows a key.
    """
    if settings.key_of_keys.startswith(_ITSELF):
        return [_key(settings.key_of_keys.removeprefix(_ITSELF), f"{SETTING}={_ITSELF}...")]
    file = settings.key_of_keys_file
    malformed = BadSetting(f"{file}: expected the line `key = BASE64`, of {BYTES} bytes.")
    faults = Faults(
        unreadable=lambda error: BadSetting(
            f"The key of keys cannot be read: {error}.", hint=f"{SETTING} names its file, of mode 0600."
        ),
        shared=lambda mode: BadSetting(
            f"{file} has the mode {mode:o}: other users can read the key of keys.",
            hint=f"chmod 600 {file}; then `{COMMAND} keys rotate`, if other people use this machine.",
        ),
        malformed=lambda _: malformed,
    )
    keys = [_key(value, str(file)) for _, _, value in private_lines(file, faults)]
    if not keys:
        raise malformed
    return keys


def make_key_of_keys(settings: Settings) -> None:
    """Makes a random key of keys unless there is one."""
    if not settings.key_of_keys.startswith(_ITSELF) and not settings.key_of_keys_file.exists():
        write_keys_of_keys(settings, [secrets.token_bytes(BYTES)])


def write_keys_of_keys(settings: Settings, keys: Sequence[bytes]) -> None:
    """Replaces the file of the key of keys, whole or not at all, and overwrites what it had.

    Raises:
        BadSetting: the key of keys is not in a file.
    """
    if settings.key_of_keys.startswith(_ITSELF):
        raise BadSetting(
            f"{SETTING}={_ITSELF}...: the key of keys is in the environment, where it cannot be replaced.",
            hint=f"Write `key = BASE64` to a file of mode 0600, set {SETTING} to its path, then rotate.",
        )
    file = settings.key_of_keys_file
    draft = Path(f"{file}.draft")
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as lines:
        lines.writelines(f"key = {b64encode(key).decode()}\n" for key in keys)
    settle([draft])
    old = file.open("r+b") if file.exists() else None
    draft.replace(file)
    settle([file])
    if old is not None:
        with old:
            old.write(bytes(os.fstat(old.fileno()).st_size))
            old.flush()
            os.fsync(old.fileno())


def _key(text: str, place: str) -> KeyOfKeys:
    try:
        key = b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != BYTES:
        raise BadSetting(f"{place}: expected a key of {BYTES} bytes in base64.")
    return KeyOfKeys(key)

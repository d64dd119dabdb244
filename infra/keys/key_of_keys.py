"""The key of keys, without which the keys of persons cannot be read: in a private file, or in the environment."""

from __future__ import annotations

import binascii
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from infra.atomic_write import settle
from infra.errors import BadSetting
from infra.private_file import Faults, private_lines
from infra.settings import Settings

SETTING = "TWOFOLD_KEY_OF_KEYS"
_ITSELF = "base64:"
_BYTES = 32


class KeyOfKeys(Protocol):
    """Encrypts keys; a service that keeps the key of keys to itself can do so, too."""

    def wrap(self, key: bytes) -> bytes:
        """Encrypts a key."""

    def unwrap(self, wrapped: bytes) -> bytes | None:
        """Decrypts what `wrap` returned; None if another key of keys did."""


class AesKeyOfKeys:
    """A key of keys in this process (RFC 3394)."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def wrap(self, key: bytes) -> bytes:
        """Encrypts a key."""
        return aes_key_wrap(self._key, key)

    def unwrap(self, wrapped: bytes) -> bytes | None:
        """Decrypts a key; None if another key of keys encrypted it."""
        try:
            return aes_key_unwrap(self._key, wrapped)
        except InvalidUnwrap:
            return None


class KeyOfKeysPlace:
    """The place of the key of keys, by the setting `key_of_keys`.

    While it is replaced, the new one is in a file with the ending `.next`; it counts once the keys are encrypted by it.
    """

    def __init__(self, settings: Settings) -> None:
        self._text = settings.key_of_keys
        is_file = not self._text.startswith(_ITSELF)
        self._file = settings.key_of_keys_file if is_file else None

    def __str__(self) -> str:
        return str(self._file or f"{SETTING}={_ITSELF}...")

    @property
    def exists(self) -> bool:
        """Whether there is a key of keys."""
        return self._file is None or self._file.exists() or self._next.exists()

    def candidates(self) -> Iterator[tuple[KeyOfKeys, bool]]:
        """Reads the key of keys; before it the one that is about to replace it, if there is one, with True.

        Raises:
            BadSetting: no such file, one that others can read, or no key of 32 bytes. No message shows a key.
        """
        if self._file is None:
            yield AesKeyOfKeys(_key(self._text.removeprefix(_ITSELF), str(self))), False
            return
        try:
            following = _read(self._next) if self._next.exists() else None
        except BadSetting:
            if self._next.exists():
                raise
            following = None  # another process has put it in its place just now
        if following is not None:
            yield AesKeyOfKeys(following), True
        yield AesKeyOfKeys(_read(self._file)), False

    def make(self) -> None:
        """Makes a random key of keys unless there is one."""
        if not self.exists and self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(self._file)

    def make_next(self) -> KeyOfKeys:
        """Makes the key of keys that is to replace the present one.

        Raises:
            BadSetting: the present one is not in a file.
        """
        if self._file is None:
            raise BadSetting(
                f"{self}: the key of keys is in the environment, where it cannot be replaced.",
                hint=f"Write `key = BASE64` to a file of mode 0600, set {SETTING} to its path, then rotate.",
            )
        return AesKeyOfKeys(_write(self._next))

    def adopt_next(self) -> None:
        """Destroys the present key of keys, and puts the next one in its place; nothing if there is no next one."""
        if self._file is None or not self._next.exists():
            return
        if self._file.exists():
            with self._file.open("r+b") as old:
                old.write(bytes(self._file.stat().st_size))
            settle([self._file])
        self._next.replace(self._file)
        settle([self._file])

    @property
    def _next(self) -> Path:
        return Path(f"{self._file}.next")


def _write(file: Path) -> bytes:
    """Writes a random key to a file, whole or not at all."""
    key, draft = secrets.token_bytes(_BYTES), Path(f"{file}.draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as lines:
        lines.write(f"key = {b64encode(key).decode()}\n")
    settle([draft])
    draft.replace(file)
    settle([file])
    return key


def _read(file: Path) -> bytes:
    hint = f"{SETTING} names a file of mode 0600 with the line `key = BASE64`, of 32 bytes."
    malformed = f"{file}: expected one line, `key = BASE64`."
    faults = Faults(
        unreadable=lambda error: BadSetting(f"The key of keys cannot be read: {error}.", hint=hint),
        shared=lambda mode: BadSetting(
            f"{file} has the mode {mode:o}: other users can read the key of keys.",
            hint=f"chmod 600 {file}; then `./twofold keys rotate`, if other people use this machine.",
        ),
        malformed=lambda _: BadSetting(malformed, hint=hint),
    )
    lines = [value for _, name, value in private_lines(file, faults) if name == "key"]
    if len(lines) != 1:
        raise BadSetting(malformed, hint=hint)
    return _key(lines[0], str(file))


def _key(text: str, place: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _BYTES:
        raise BadSetting(f"{place}: expected a key of {_BYTES} bytes in base64.")
    return key

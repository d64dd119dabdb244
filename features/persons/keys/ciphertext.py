"""The text of an encrypted value: `enc:1:KEY:SIV`, by AES-SIV (RFC 5297), so that equal values of a key are equal."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence

PATTERN = r"enc:1:[A-Za-z0-9_-]{22}:[A-Za-z0-9_-]{43,}"
"""The text as a portable regular expression: 16 bytes of the key's id; 16 of a tag, then at least 16 of text."""
START = "enc:1:"
VALUE, ENVELOPE, RECORD = b"v", b"e", b"r"
"""What a text holds, its first byte: a value as JSON, another such text, a whole record."""
_BLOCK = 16
_PARTS = re.compile(r"enc:1:([A-Za-z0-9_-]{22}):([A-Za-z0-9_-]{43,})")


class Key:
    """A key with its id; a copy for another process has no more."""

    def __init__(self, id: bytes, secret: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self.id, self._secret = id, secret
        self._cipher, self._other_key = AESSIV(secret), InvalidTag
        self._start = f"{START}{_encoded(id)}:"

    def __reduce__(self) -> tuple[type[Key], tuple[bytes, bytes]]:
        return Key, (self.id, self._secret)

    def encrypt(self, content: bytes, kind: bytes) -> str:
        """Encrypts content of a kind."""
        padded = kind + content + b"\x80"
        return self._start + _encoded(self._cipher.encrypt(padded + bytes(-len(padded) % _BLOCK), None))

    def token(self, text: str) -> str:
        """Returns a hash of a text that only who has this key can make: 22 characters."""
        return _encoded(hmac.digest(self._secret, text.encode(), hashlib.sha256)[:_BLOCK])

    def decrypt(self, encrypted: str) -> tuple[bytes, bytes] | None:
        """Returns kind and content; None if it was not encrypted by this key."""
        try:
            padded = self._cipher.decrypt(_decoded(encrypted), None)
        except (self._other_key, ValueError):  # or it is no base64
            return None
        return padded[:1], padded[1:].rstrip(b"\0")[:-1]


def seal(content: bytes, keys: Sequence[Key], kind: bytes = VALUE) -> str:
    """Encrypts by each key, the first one innermost: the text can be opened with all of them only."""
    for key in keys:
        content, kind = key.encrypt(content, kind).encode(), ENVELOPE
    return content.decode()


def unseal(text: str, find: Callable[[bytes], Key | None], kind: bytes = VALUE) -> bytes | None:
    """Decrypts a text of `seal`; None without one of its keys, and for what is no such text, or one of another kind.

    A text within a value is a part of it, whatever it looks like: only what `seal` nested is opened further.

    Args:
        find: returns the key of an id.
    """
    while True:
        parts = _PARTS.fullmatch(text)
        key = find(_decoded(parts[1])) if parts else None
        found = key.decrypt(parts[2]) if parts and key else None
        if found is None:
            return None
        if found[0] != ENVELOPE:
            return found[1] if found[0] == kind else None
        text = found[1].decode()


def name_of(key_id: bytes) -> str:
    """Returns the id of a key as texts have it."""
    return _encoded(key_id)


def is_sealed(data: bytes) -> bool:
    """Whether the bytes are a text of `seal`, by its form."""
    return data.isascii() and _PARTS.fullmatch(data.decode()) is not None


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))

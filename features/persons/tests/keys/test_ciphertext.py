"""Encrypted values: what opens them, and what they say of their content."""

from __future__ import annotations

import os
import re

from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import given
from hypothesis import strategies as st

from twofold.features.persons.keys.ciphertext import ENVELOPE, PATTERN, RECORD, VALUE, Key, name_of, seal, unseal

ANN, BOB = (Key(bytes([n]) * 16, bytes(range(n, n + 64))) for n in (1, 2))
KEYS = {key.id: key for key in (ANN, BOB)}


@given(st.binary(), st.sampled_from([[ANN], [ANN, BOB], [BOB, ANN, BOB]]), st.sampled_from([VALUE, RECORD]))
def test_what_was_sealed_is_unsealed(content: bytes, keys: list[Key], kind: bytes) -> None:
    text = seal(content, keys, kind)
    assert unseal(text, KEYS.get, kind) == content
    assert re.fullmatch(PATTERN, text)
    assert unseal(text, KEYS.get, RECORD if kind == VALUE else VALUE) is None


@given(st.binary(), st.binary())
def test_equal_values_of_one_person_alone_are_equal(one: bytes, other: bytes) -> None:
    assert (seal(one, [ANN]) == seal(other, [ANN])) == (one == other)
    assert seal(one, [ANN]) != seal(one, [BOB])


def test_a_value_of_two_persons_needs_both_keys() -> None:
    text = seal(b"hello", [ANN, BOB])
    assert unseal(text, {ANN.id: ANN}.get) is None
    assert unseal(text, {BOB.id: BOB}.get) is None
    assert text.startswith(f"enc:1:{name_of(BOB.id)}:")


def test_a_text_within_a_value_is_not_opened() -> None:
    inner = seal(b"of bob", [BOB])
    assert unseal(seal(inner.encode(), [ANN]), KEYS.get) == inner.encode()


@given(st.text() | st.from_regex(PATTERN, fullmatch=True))
def test_a_text_that_was_not_sealed_is_not_opened(text: str) -> None:
    assert unseal(text, lambda _: ANN) is None


@given(st.binary(max_size=40), st.integers(0, 500))
def test_a_changed_text_is_not_opened(content: bytes, place: int) -> None:
    text = seal(content, [ANN])
    at = 6 + place % (len(text) - 7)  # the last sign may have bits that are of no byte
    changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    assert unseal(changed, KEYS.get) is None


def test_the_length_of_a_text_says_sixteen_bytes() -> None:
    assert {len(seal(b"x" * length, [ANN])) for length in range(15)} == {len(seal(b"", [ANN]))}


def test_the_bytes_are_those_of_rfc_5297() -> None:
    """The tag and the text of AES-SIV over the kind, the content, 0x80 and zeros, by the library itself."""
    secret = os.urandom(64)
    text = seal(b"abc", [Key(bytes(16), secret)])
    sent = AESSIV(secret).encrypt(b"vabc\x80" + bytes(11), None)
    import base64

    assert text == f"enc:1:{'A' * 22}:{base64.urlsafe_b64encode(sent).decode().rstrip('=')}"
    assert ENVELOPE != VALUE

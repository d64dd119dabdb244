"""Values that are kept as JSON come back as what they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import pytest

from twofold.infra.text.printable import document, plain, restored


@dataclass(frozen=True)
class Part:
    ends: Mapping[int, int]
    at: datetime | None = None


@dataclass(frozen=True)
class Whole:
    name: str
    parts: Sequence[Part]
    bound: datetime | date | None
    share: float | None = None
    named: Mapping[str, Part] = field(default_factory=dict)


AT = datetime(2013, 1, 5, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize("bound", [AT, AT.date(), None])
def test_what_is_encoded_comes_back_with_its_types(bound: date | None) -> None:
    whole = Whole("ü", [Part({0: 7, 12: 9}, AT), Part({})], bound, 0.5, {"a": Part({1: 2})})
    back = restored(Whole, plain(whole))
    assert back == whole
    assert type(back.bound) is type(bound)
    assert document(back) == document(whole)


def test_fields_of_another_version_are_left_out_or_have_their_default() -> None:
    assert restored(Whole, {"name": "x", "parts": [], "bound": None, "gone": 1}) == Whole("x", [], None)

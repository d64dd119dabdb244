"""Values as text and JSON, for people and for a terminal or a page, which show and never obey them."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Union, get_args, get_origin, get_type_hints

NOTHING = "–"
_ACTS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")  # part of words in Persian and Hindi, and of emoji


def harmless(text: str, *, keep: str = "\n\t") -> str:
    r"""Replaces every character that a terminal obeys, instead of showing it, by its escape, `\u001b`.

    These are control characters, those that change the direction of writing, and invisible ones; a producer of records
    could otherwise hide or replace output on the screen, or write to the clipboard. The escapes are those of JSON, so
    that a JSON document keeps its meaning.

    Args:
        keep: control characters that stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if _acts(c) and c not in keep else c for c in text)


def document(value: object, *, indent: int | None = None) -> str:
    """Encodes `value` as JSON: dataclasses as objects, times in ISO 8601, any other type as text."""
    return json.dumps(value, indent=indent, default=_plain, ensure_ascii=False)


def restored(kind: Any, value: Any) -> Any:
    """Converts a value that `document` encoded back to its type: a dataclass, a collection, a time, or a plain value.

    A field that is not in `value` has its default, and one that the type does not have any more is left out.
    """
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        made: Any = kind
        hints = _hints(made)
        return made(**{name: restored(hints[name], item) for name, item in value.items() if name in hints})
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in inner if kind is not type(None)]
        is_day = date in kinds and isinstance(value, str) and len(value) == len("2013-01-01")
        return restored(date if is_day else next(kind for kind in kinds if kind is not date or len(kinds) == 1), value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {restored(inner[0], key): restored(inner[1], item) for key, item in value.items()}
    if isinstance(value, list) and inner:
        return [restored(inner[0], item) for item in value]
    if kind in (datetime, date):
        return kind.fromisoformat(value)
    return int(value) if kind is int else value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def plain(value: object) -> Any:
    """Converts `value` to what JSON gives back of it."""
    return json.loads(document(value))


def shown(value: object) -> str:
    """Formats a value for people: `–` for None, thousands separators, times in UTC to the second."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


def shown_bytes(size: int | None) -> str:
    """Formats a size for people, in decimal units."""
    if size is None:
        return NOTHING
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1_000:
            break
        amount, unit = amount / 1_000, larger
    return f"{amount:,.1f} {unit}" if unit != "B" else f"{size} B"


def shown_duration(seconds: float | None) -> str:
    """Formats a duration: `0.4 s`, `3 min 20 s`, `2 h 05 min`, `4 days`."""
    if seconds is None:
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} days"


def shown_age(then: datetime, now: datetime) -> str:
    """Formats an age as a duration."""
    return shown_duration((now - then).total_seconds())


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTS and character not in _JOINERS


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)

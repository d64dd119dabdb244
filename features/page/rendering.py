"""Renders templates: every value is escaped, shown as the command line shows it, harmless, and cut where it is long."""

from __future__ import annotations

import functools
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from twofold.features.page.links import Address
from twofold.infra import COMMAND
from twofold.infra.instants import from_epoch_ms
from twofold.infra.text.printable import NOTHING, harmless, shown, shown_age, shown_bytes, shown_duration

LONGEST = 200
FOLDER = Path(__file__).parent
_AT = "%Y-%m-%d %H:%M"


def render(template: str, **values: Any) -> str:
    """Renders a file of `templates` with these values."""
    return _environment().get_template(template).render(**values)


def legible(value: object) -> str:
    """Formats a value for a page: numbers with separators, times in UTC, other text harmless and not too long."""
    if isinstance(value, Markup | Address):
        return value
    text = harmless(shown(value), keep="\n")
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def exact(value: object) -> str:
    """Formats a value of a row: numbers to six digits, instants without their offset, which is UTC's."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return value.removesuffix("+00:00") if isinstance(value, str) else shown(value)


def in_full(value: object) -> str:
    """Formats a text for a page without cutting it: a docstring, a command, a message of ours."""
    return Address(harmless(shown(value), keep="\n"))


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=legible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "in_full": in_full,
        "exact": exact,
        "duration": shown_duration,
        "bytes": shown_bytes,
        "minute": _minute,
        "since": _since,
        "instant": from_epoch_ms,
    }
    environment.globals |= {"NOTHING": NOTHING, "COMMAND": COMMAND}
    return environment


def _since(first: datetime, now: datetime) -> str:
    return f"{first:{_AT}}, {shown_age(first, now)}"


def _minute(value: Any) -> str:
    return NOTHING if value is None else value.strftime(_AT)

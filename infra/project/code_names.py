"""Names of values in the code, which are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

Name = str
"""`module:attribute`."""


def resolve(name: Name) -> Any:
    """Imports the value of a name."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)

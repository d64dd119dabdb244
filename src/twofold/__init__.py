"""Twofold: a table is declared once and computed twice. From here a declaration imports all that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.features.words import *  # noqa: F403
    from twofold.tables import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Loads the declarations' names when the first one is used: a command that declares nothing does without."""
    from importlib import import_module

    declarations = import_module("twofold.tables")
    if name not in declarations.__all__:
        raise AttributeError(f"module 'twofold' has no attribute {name!r}")
    return getattr(declarations, name)

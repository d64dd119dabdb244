"""The domains that a platform runs: a choice that `up` makes and its home keeps."""

from __future__ import annotations

from collections.abc import Sequence

from infra.atomic_write import write_atomically
from infra.settings import Settings


def chosen_domains(settings: Settings) -> list[str]:
    """Their names; none: all that are declared."""
    file = settings.home / "domains"
    return file.read_text("utf-8").split() if file.exists() else []


def choose_domains(settings: Settings, names: Sequence[str]) -> None:
    """Have the platform run these and no others, from its next start on."""
    settings.home.mkdir(parents=True, exist_ok=True)
    write_atomically(settings.home / "domains", "\n".join(dict.fromkeys(names)) + "\n")

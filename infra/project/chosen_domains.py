"""The domains that a platform runs: the choice that `up` makes and its home keeps, and the name of each driver."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from twofold.infra.atomic_write import write_atomically
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings


def chosen_domains(settings: Settings) -> list[str]:
    """Returns the names of the chosen domains; empty if the platform runs all declared domains."""
    file = settings.home / "domains"
    return file.read_text("utf-8").split() if file.exists() else []


def driver_name(domain: str) -> str:
    """Returns the supervisor's name of the process that streams a domain."""
    return f"stream-{domain.replace('_', '-')}"


def relay_name(domain: str) -> str:
    """Returns the supervisor's name of the process that encrypts what is captured for a domain."""
    return f"relay-{domain.replace('_', '-')}"


def declarations_digest(domains: Iterable[str]) -> str:
    """Computes a digest of the declaration files of these domains, which a process loads once."""
    declared = hashlib.sha256()
    for domain in domains:
        for path in sorted((project().tables / domain).glob("*.py")):
            declared.update(path.read_bytes())
    return declared.hexdigest()[:12]


def choose_domains(settings: Settings, names: Sequence[str]) -> None:
    """Saves the domains that the platform runs from its next start on."""
    settings.home.mkdir(parents=True, exist_ok=True)
    write_atomically(settings.home / "domains", "\n".join(dict.fromkeys(names)) + "\n")

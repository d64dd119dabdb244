"""The ports on which the platform's servers listen: named in settings, or chosen and kept by the home."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from twofold.infra.atomic_write import write_atomically
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.ports import marked, marked_free, require_free
from twofold.infra.process.service import ServerPort
from twofold.infra.process.supervisord import configuration_file
from twofold.infra.project.home_format import format_file
from twofold.infra.project.settings import Settings, kept_ports, named_settings, ports_file

_CHOOSING_S = 60.0


@contextmanager
def own_ports(settings: Settings, ports: Sequence[ServerPort]) -> Iterator[Settings]:
    """Chooses the ports that are open to choice, has the home keep them, and yields the settings with them.

    Until the block ends, no other platform of this machine that starts meanwhile chooses one of these ports.
    """
    with ExitStack() as marks:
        with exclusive(settings.home / "run" / "ports.lock", patience_s=_CHOOSING_S):
            named = named_settings(os.environ)
            kept = {name: int(str(port.value)) for name, port in kept_ports(settings.home).items()}
            chosen = {port.name: port.number(settings) for port in ports if port.name not in (*named, *kept)}
            for port in open_ports(settings, ports):
                chosen[port.name] = marks.enter_context(marked_free(port.number(settings))).getsockname()[1]
            if chosen:
                write_atomically(ports_file(settings.home), json.dumps({**kept, **chosen}, indent=2) + "\n")
        own = {name: number for name, number in {**kept, **chosen}.items() if name not in named}
        settings = replace(settings, **own)  # type: ignore[arg-type]
        for port in ports:
            if mark := marked(port.number(settings)):
                marks.enter_context(mark)
        yield settings


def open_ports(settings: Settings, ports: Sequence[ServerPort]) -> list[ServerPort]:
    """Lists the ports that `up` may choose: neither named in the environment or the project's file, nor kept."""
    if configuration_file(settings).exists() and not format_file(settings.home).exists():
        return []  # a home of before ports were chosen: it has the defaults
    settled = {*named_settings(os.environ), *kept_ports(settings.home)}
    return [port for port in ports if port.name not in settled]


def require_free_ports(settings: Settings, ports: Sequence[ServerPort]) -> None:
    """Refuses ports on which other processes listen.

    Raises:
        PortTaken: names the port, who holds it, and how another is chosen.
    """
    kept, file = kept_ports(settings.home), ports_file(settings.home)
    for port in ports:
        kept_in = file if port.name in kept else None
        require_free(port.number(settings), port.setting, port.server, kept_in=kept_in)

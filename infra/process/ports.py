"""Ports of this machine: free ports, and the processes that hold others."""

from __future__ import annotations

import contextlib
import itertools
import socket
from dataclasses import dataclass
from pathlib import Path

from twofold.infra.errors import PortTaken

HOST = "127.0.0.1"
_STEP = 100
"""From a taken port to the next candidate: below those that the system gives to clients, and easy to distinguish."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A process that listens on a port."""

    name: str
    pid: int

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a connection that is still closing does not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Returns a free port of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def marked(port: int) -> socket.socket | None:
    """Marks a port for a server that is about to listen, until the socket is closed; None if it has a mark.

    Platforms that start at the same time see each other's marks: UDP sockets of the same number, which no server meets.
    """
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        mark.bind((HOST, port))
    except OSError:
        mark.close()
        return None
    return mark


def marked_free(port: int) -> socket.socket:
    """Marks this port, if it is free and has no mark, else the next one that is; the socket has its number."""
    candidates = itertools.chain(range(port, 1 << 16, _STEP), iter(free_port, 0))
    return next(mark for candidate in candidates if is_free(candidate) and (mark := marked(candidate)))


def holder(port: int) -> Holder | None:
    """Returns the process that listens on this port; None if there is none or it is unknown."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return Holder(name=psutil.Process(connection.pid).name(), pid=connection.pid)
    return None


def require_free(port: int, setting: str, what: str, *, kept_in: Path | None = None) -> None:
    """Refuses a port on which another process listens.

    Args:
        setting: the environment variable that chooses the port, `TWOFOLD_KAFKA_PORT`.
        what: the server that needs it, as in `the Kafka broker`.
        kept_in: the file by which the home keeps the port, if it does.

    Raises:
        PortTaken: names the port, the setting and, if it is known, the process that holds it.
    """
    if is_free(port):
        return
    held_by = holder(port)
    raise PortTaken(
        f"Port {port} for {what} is taken{f' by {held_by}' if held_by else ''}.",
        hint=f"Stop that process, or choose another port: {setting}=<port>"
        + (f"; without {kept_in}, `up` chooses." if kept_in else "."),
        port=port,
        setting=setting,
    )

"""Ports of this machine: free ports, and the processes that hold others."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from twofold.infra.errors import PortTaken

HOST = "127.0.0.1"


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


def holder(port: int) -> Holder | None:
    """Returns the process that listens on this port; None if there is none or it is unknown."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return Holder(name=psutil.Process(connection.pid).name(), pid=connection.pid)
    return None


def require_free(port: int, setting: str, what: str) -> None:
    """Refuses a port on which another process listens.

    Args:
        setting: the environment variable that chooses the port, `TWOFOLD_KAFKA_PORT`.
        what: the server that needs it, as in `the Kafka broker`.

    Raises:
        PortTaken: names the port, the setting and, if it is known, the process that holds it.
    """
    if is_free(port):
        return
    held_by = holder(port)
    raise PortTaken(
        f"Port {port} for {what} is taken{f' by {held_by}' if held_by else ''}.",
        hint=f"Stop that process, or choose another port: {setting}=<port>.",
        port=port,
        setting=setting,
    )

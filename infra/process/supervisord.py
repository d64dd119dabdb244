"""Configuration of supervisord, and its XML-RPC socket."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import pwd
import shlex
import socket
import sys
import tempfile
import xmlrpc.client
from collections.abc import Iterator, Mapping, Sequence
from configparser import RawConfigParser
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from twofold.infra.atomic_write import write_atomically
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.process_reaper import ReaperCommand
from twofold.infra.project.home_format import version
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings

LONGEST_SOCKET_PATH = 100  # the kernel's limit is 108 on Linux and 104 on macOS, with what supervisord appends
FOREVER = 1_000_000_000
LOG_BYTES, LOG_BACKUPS = 10_000_000, 3
_VERSION = "PROGRAM_VERSION"
"""The environment variable by which the definition of a program changes with the version of the platform."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A process to keep alive: restarted whenever it ends, for ever, a little later after each failure to start.

    Args:
        name: lower-case letters, digits and dashes; its log is `<logs>/<name>.log`.
        environment: set on top of what the caller of `start` has.
        runs_our_code: it loads modules of the platform, so that `up` of another version restarts it.
        stage: programs of a lower stage start earlier and stop later.
        start_s: it counts as running once it lived this long.
        stop_wait_s: after `stop_signal` it has this long to end by itself.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    autostart: bool = True
    runs_our_code: bool = True
    stage: int = 0
    start_s: int = 1
    stop_wait_s: int = 10
    stop_signal: Literal["TERM", "INT", "QUIT"] = "TERM"
    directory: Path = field(default_factory=lambda: project().folder)


def write_configuration(settings: Settings, programs: Sequence[Program], *, keeps_others: bool = False) -> None:
    """Writes supervisord's configuration for these programs, and the commands that their reapers run.

    Args:
        keeps_others: the other programs of the last written configuration stay as they are.
    """
    for needed in (directory(settings) / "commands", directory(settings) / "run", settings.logs):
        needed.mkdir(parents=True, exist_ok=True)
    directory(settings).chmod(0o700)
    sections = {"supervisord": _supervisord_section(settings), **_server_sections(settings)}
    sections.update(_written_programs(settings) if keeps_others else {})
    saved = {program.name: _save_command(settings, program) for program in programs}
    for program in programs:
        sections[f"program:{program.name}"] = _program_section(settings, program, saved[program.name])
    lines = [
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in section.items())
        for name, section in sections.items()
    ]
    write_atomically(configuration_file(settings), "\n".join(lines))
    for file in (directory(settings) / "commands").glob("*.json"):
        if file not in saved.values() and (not keeps_others or file.stem.rpartition("-")[0] in saved):
            file.unlink()


def stages(settings: Settings) -> dict[int, list[str]]:
    """Maps each stage to the programs of the last written configuration."""
    by_stage: dict[int, list[str]] = {}
    for name, section in _written_programs(settings).items():
        by_stage.setdefault(int(section["priority"]), []).append(name.removeprefix("program:"))
    return by_stage


def _written_programs(settings: Settings) -> dict[str, dict[str, Any]]:
    """Reads the sections of programs of the last written configuration."""
    parser = RawConfigParser()
    parser.read(configuration_file(settings))
    return {name: dict(parser[name]) for name in parser.sections() if name.startswith("program:")}


def reaper_commands(settings: Settings) -> Iterator[ReaperCommand]:
    """Returns the commands that the reapers of this home run, as far as they can be read."""
    for path in (directory(settings) / "commands").glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            yield ReaperCommand.load(path)


def earlier_versions(settings: Settings) -> dict[str, str]:
    """Maps the programs whose last definition is of another version of Twofold, for its code, to that version."""
    versions = {
        command.tag.partition("#")[2]: command.environment.get(_VERSION) for command in reaper_commands(settings)
    }
    return {name: ran for name, ran in versions.items() if ran not in (None, version())}


@contextmanager
def rpc(settings: Settings, timeout_s: float = 10) -> Iterator[Any]:
    """Opens the supervisor's XML-RPC interface and yields its methods."""
    transport = _SocketTransport(socket_path(settings), timeout_s)
    with xmlrpc.client.ServerProxy("http://supervisor", transport=transport, allow_none=True) as server:
        yield server.supervisor


def process_tag(settings: Settings) -> str:
    """Returns the tag that every process of this home, and of no other, has in its environment."""
    return f"twofold-{hashlib.sha256(str(settings.home).encode()).hexdigest()[:16]}"


def directory(settings: Settings) -> Path:
    """Returns the supervisor's directory in this home; it is private, since it holds secrets of programs."""
    return settings.home / "supervisor"


def configuration_file(settings: Settings) -> Path:
    """Returns the file that `supervisord -c` reads."""
    return directory(settings) / "supervisord.conf"


def pid_file(settings: Settings, name: str) -> Path:
    """Returns the file in which the reaper of a program notes which process runs now."""
    return directory(settings) / "run" / f"{name}.json"


def socket_path(settings: Settings) -> Path:
    """Returns the path of the supervisor's socket: in home, or in a private directory if that path is too long."""
    path = directory(settings) / "supervisor.sock"
    if len(str(path)) <= LONGEST_SOCKET_PATH:
        return path
    short = Path(tempfile.gettempdir()) / f"{process_tag(settings)}-{os.getuid()}"
    if short.is_symlink() or (short.exists() and short.stat().st_uid != os.getuid()):
        raise ProcessFailed(f"{short} belongs to another user.", hint="Choose a TWOFOLD_HOME with a shorter path.")
    return short / "supervisor.sock"


def make_socket_directory(settings: Settings) -> None:
    """Creates the directory of the socket, private if it is not in home; removes a socket left by a crash."""
    path = socket_path(settings)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)


def remove_socket(settings: Settings) -> None:
    """Removes the socket, and its directory if that is not in home."""
    path = socket_path(settings)
    path.unlink(missing_ok=True)
    if path.parent != directory(settings) and path.parent.exists():
        path.parent.rmdir()


def _supervisord_section(settings: Settings) -> dict[str, object]:
    section: dict[str, object] = {
        "identifier": _escaped(process_tag(settings)),
        "logfile": _escaped(settings.logs / "supervisord.log"),
        "logfile_maxbytes": LOG_BYTES,
        "logfile_backups": LOG_BACKUPS,
        "pidfile": _escaped(directory(settings) / "supervisord.pid"),
        "nocleanup": "true",
        "silent": "true",
    }
    # Only root has to say whom it means to be.
    return section if os.getuid() else {**section, "user": pwd.getpwuid(0).pw_name}


def _server_sections(settings: Settings) -> dict[str, dict[str, object]]:
    factory = "supervisor.rpcinterface:make_main_rpcinterface"
    return {
        "unix_http_server": {"file": _escaped(socket_path(settings)), "chmod": "0600"},
        "rpcinterface:supervisor": {"supervisor.rpcinterface_factory": factory},
    }


def _program_section(settings: Settings, program: Program, command_file: Path) -> dict[str, object]:
    command = [sys.executable, "-P", "-m", "twofold.infra.process.process_reaper", "--command", str(command_file)]
    return {
        "command": _escaped(shlex.join(command)),
        "directory": _escaped(project().folder),
        "autostart": str(program.autostart).lower(),
        "autorestart": "true",
        "priority": program.stage,
        "startsecs": program.start_s,
        "startretries": FOREVER,
        # The reaper kills what does not end in time; supervisord only waits for it.
        "stopwaitsecs": program.stop_wait_s + 10,
        "redirect_stderr": "true",
        "stdout_logfile": _escaped(settings.logs / f"{program.name}.log"),
        "stdout_logfile_maxbytes": LOG_BYTES,
        "stdout_logfile_backups": LOG_BACKUPS,
    }


def _save_command(settings: Settings, program: Program) -> Path:
    """Writes the command of a reaper to a file whose name changes with it: supervisord compares command lines."""
    command = ReaperCommand(
        argv=list(program.command),
        tag=f"{process_tag(settings)}#{program.name}",
        environment={**program.environment, **({_VERSION: version()} if program.runs_our_code else {})},
        directory=str(program.directory),
        pid_file=str(pid_file(settings, program.name)),
        stop_signal=program.stop_signal,
        stop_wait_s=program.stop_wait_s,
    )
    digest = hashlib.sha256(repr(command).encode()).hexdigest()[:12]
    path = directory(settings) / "commands" / f"{program.name}-{digest}.json"
    command.save(path)
    return path


def _escaped(value: object) -> str:
    """Escapes a value for supervisord's configuration, which expands `%(...)s`."""
    return str(value).replace("%", "%%")


class _SocketTransport(xmlrpc.client.Transport):
    """XML-RPC over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__()
        self.path = path
        self.timeout_s = timeout_s

    def make_connection(self, host: object) -> http.client.HTTPConnection:
        return _SocketConnection(self.path, self.timeout_s)


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("supervisor", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(cast("float", self.timeout))
        self.sock.connect(str(self.path))

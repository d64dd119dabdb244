"""A server as a value: what `up`, the doctor and a restart with new code know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from twofold.infra.errors import TwofoldError
from twofold.infra.process.supervisord import Program
from twofold.infra.project.jars import Configuration
from twofold.infra.project.settings import PREFIX, Settings

Declared = TypeVar("Declared", contravariant=True)


class ServerPort(NamedTuple):
    """The name of a port among the settings, who listens there, and what the supervisor calls that."""

    name: str
    server: str
    program: str

    @property
    def setting(self) -> str:
        """The environment variable that chooses it."""
        return PREFIX + self.name.upper()

    def number(self, settings: Settings) -> int:
        """Returns its number by these settings."""
        return int(getattr(settings, self.name))


class Wait(NamedTuple):
    """A step of `up` that waits until something is ready.

    Attributes:
        run: waits, and makes what must be there then; it returns the faults that stop nothing else.
        early: it does work of its own, in another thread from the start of the programs on.
    """

    title: str
    run: Callable[[], Iterable[TwofoldError] | None]
    early: bool = False


@dataclass(frozen=True, kw_only=True)
class Service(Generic[Declared]):
    """A server that `up` keeps running, or several of one kind, given the settings and the declarations that run.

    Attributes:
        name: of its program; the names of several begin with it and a dash.
        stage: `log`: `up` makes topics once it is ready; `servers` start with it; `workers` once there are topics.
        needed: whether these settings and declarations need a server of ours.
        prepare: makes what its programs need; only called if it is needed, as is `programs`.
        prepares: what it makes, if that takes so long that the services before it are started meanwhile.
        ready: what `up` waits for, also if the server is one of yours.
        ports: those on which its programs listen.
        jars: what its programs need of `jars.lock`.
        loads_code: its programs read declarations once, and are replaced when these change.
        addresses: lines of a name and a text that `up` prints at its end; with the passwords, if that is true.
        last: what `up` does once all is said: at a terminal it may wait for the user.
    """

    name: str
    stage: Literal["log", "servers", "workers"]
    needed: Callable[[Settings, Declared], bool] = lambda *_: True
    prepare: Callable[[Settings], None] = lambda _: None
    prepares: str = ""
    programs: Callable[[Settings, Declared], Iterable[Program]]
    ready: Callable[[Settings, Declared], Iterable[Wait]] = lambda *_: ()
    ports: Sequence[ServerPort] = ()
    jars: Sequence[Configuration] = ()
    loads_code: bool = False
    addresses: Callable[[Settings, Declared, bool], Iterable[tuple[str, str]]] = lambda *_: ()
    last: Callable[[Settings, Declared], None] = lambda *_: None


def worker(
    settings: Settings, name: str, command: Sequence[str], declared: str, *, start_s: int = 1, stop_wait_s: int
) -> Program:
    """Returns a program that changes with what it has to know of the declarations, so that `up` then restarts it."""
    environment = {**settings.environment(), "DECLARATIONS": declared}
    return Program(
        name=name, command=command, environment=environment, stage=1, start_s=start_s, stop_wait_s=stop_wait_s
    )


def jars_of(services: Iterable[Service[Any]]) -> list[Configuration]:
    """Lists what these services need of `jars.lock`, each once."""
    return list(dict.fromkeys(name for service in services for name in service.jars))


def ports_of(services: Iterable[Service[Any]]) -> list[ServerPort]:
    """Lists the ports of these services."""
    return [port for service in services for port in service.ports]

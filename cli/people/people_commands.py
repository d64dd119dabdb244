"""Commands to forget a person, to take that back, and to hand out what is held."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Annotated

import typer

from cli.console import out, print_json
from infra.errors import BadArgument
from infra.instants import from_epoch_ms
from infra.settings import Settings
from infra.text.printable import harmless

Kind = Annotated[str, typer.Argument(metavar="KIND", help="The kind of person, as topics declare it: personal(...).")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The person's id, as records have it.")]
DAY_MS = 86_400_000


def forget(
    kind: Kind,
    id: Id,
    now: Annotated[bool, typer.Option("--now", help="Without the days in which it can be taken back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --now: do not ask.")] = False,
) -> None:
    """Forget a person: after some days the key is destroyed, and all personal values are unreadable at once.

    They are null from then on in whatever reads them: `reveal`, replays, rebuilds, records that arrive late. Until then
    `remember` takes it back. The id itself, times and counts stay.
    """
    from batch.people.export import require_person
    from infra.keys.key_store import KeyStore
    from tables.declare.registry import load

    settings = Settings.from_environment()
    person = require_person(load(), kind, id)
    with closing(KeyStore(settings)) as store:
        if now and not yes:
            if not sys.stdin.isatty():
                raise BadArgument("--now cannot be taken back, and nobody can be asked.", hint="Add --yes.")
            typer.confirm(harmless(f"Destroy the key of the {kind} {id}? It cannot be taken back."), abort=True)
        is_new = store.state_of(person) is None
        days = 0 if now else settings.forget_after_days
        store.forget(person, time.time_ns() // 1_000_000 + days * DAY_MS)
        state = store.state_of(person)
    seen = " No record of this person was encrypted before." if is_new else ""
    if state is None or state.is_forgotten or state.forget_at_ms is None:
        out.print(f"The {kind} {id} is forgotten: the key is destroyed.{seen}", markup=False)
        return
    at = from_epoch_ms(state.forget_at_ms)
    until = f"on {at:%Y-%m-%d %H:%M} UTC; `remember {kind} {id}` takes it back."
    out.print(f"The {kind} {id} is forgotten {until}{seen}", markup=False, soft_wrap=True)


def remember(kind: Kind, id: Id) -> None:
    """Take `forget` back, as long as the key is not destroyed."""
    from batch.people.export import require_person
    from infra.keys.key_store import KeyStore
    from tables.declare.registry import load

    person = require_person(load(), kind, id)
    with closing(KeyStore(Settings.from_environment())) as store:
        store.remember(person)
    out.print(f"The {kind} {id} is not forgotten: the key stays.", markup=False)


def export(kind: Kind, id: Id) -> None:
    """Print all that is held of a person as JSON: rows of events and tables, with the person's values decrypted."""
    from batch.people.export import export as collect
    from batch.people.export import require_person
    from infra.delta.lake import Lake
    from infra.keys.key_store import KeyStore
    from infra.keys.reader import Reader
    from tables.declare.registry import load

    settings, registry = Settings.from_environment(), load()
    person = require_person(registry, kind, id)
    with closing(KeyStore(settings)) as store:
        Reader(store, "export").note_access(1)
        print_json({"kind": kind, "id": id, "rows": collect(Lake(settings), registry, store, person)})

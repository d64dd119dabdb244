"""Commands to forget a person, to take that back, and to hand out what is held."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from twofold.cli.console import Json, out, print_json
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.instants import from_epoch_ms
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import harmless

if TYPE_CHECKING:
    from twofold.features.persons.keys.key_store import KeyStore

Kind = Annotated[str, typer.Argument(metavar="KIND", help="The kind of person, as topics declare it: personal(...).")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The person's id, as records have it.")]
DAY_MS = 86_400_000
REF_DIGITS = 64
COPIES_S = 30.0
"""How long a certificate waits until outputs have followed."""


def forget(
    kind: Annotated[str, typer.Argument(metavar="[KIND", help="The kind of person, as topics declare it.")] = "",
    id: Annotated[str, typer.Argument(metavar="ID]", help="The person's id, as records have it.")] = "",
    ref: Annotated[str, typer.Option(metavar="REF", help="Instead of KIND and ID: what --ask has printed.")] = "",
    now: Annotated[bool, typer.Option("--now", help="Without the days in which it can be taken back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --now: do not ask.")] = False,
    ask: Annotated[
        bool, typer.Option("--ask", help="Change nothing: print the ref with which the DAG DOMAIN.forget is started.")
    ] = False,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Change nothing: show what is held where, and what can be read of it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Forget a person: after some days the key is destroyed, and all personal values are unreadable at once.

    They are null from then on in whatever reads them: `reveal`, outputs, replays, rebuilds, records that arrive late.
    Until then `remember` takes it back. The id itself, times and counts stay. With --now it prints the certificate.
    """
    from twofold.features.persons.keys.key_store import KeyStore

    settings = Settings.from_environment()
    with closing(KeyStore(settings)) as store:
        chosen = _chosen(store, kind, id, ref, is_added=not certificate)
        if certificate:
            _certify(settings, store, chosen, as_json=as_json)
            return
        if ask:
            _print_ref(chosen, as_json=as_json)
            return
        if now and not yes:
            if as_json or not sys.stdin.isatty():
                raise BadArgument("--now cannot be taken back, and was not confirmed.", hint="Add --yes.")
            typer.confirm(harmless(f"Destroy the key of the {chosen.name}? It cannot be taken back."), abort=True)
        days = 0 if now else settings.forget_after_days
        store.forget_ref(chosen.ref, time.time_ns() // 1_000_000 + days * DAY_MS)
        _print_end(store, chosen, is_shown=not as_json)
        if now or as_json:
            _certify(settings, store, chosen, as_json=as_json, patience_s=COPIES_S)


def remember(kind: Kind, id: Id) -> None:
    """Take `forget` back, as long as the key is not destroyed."""
    from twofold.features.persons.export import require_person
    from twofold.features.persons.keys.key_store import KeyStore
    from twofold.tables.declare.registry import load

    person = require_person(load(), kind, id)
    with closing(KeyStore(Settings.from_environment())) as store:
        store.remember(person)
    out.print(f"The {kind} {id} is not forgotten: the key stays.", markup=False)


def export(kind: Kind, id: Id) -> None:
    """Print all that is held of a person as JSON: rows of events and tables, with the person's values decrypted."""
    from twofold.features.persons.export import export as collect
    from twofold.features.persons.export import require_person
    from twofold.features.persons.keys.key_store import KeyStore
    from twofold.features.persons.keys.reader import Reader
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    settings, registry = Settings.from_environment(), load()
    person = require_person(registry, kind, id)
    with closing(KeyStore(settings)) as store:
        Reader(store, "export").note_access(1)
        print_json({"kind": kind, "id": id, "rows": collect(Lake(settings), registry, store, person)})


class _Person(NamedTuple):
    """A person who was named.

    Attributes:
        ref: as ledgers name one.
        kind: of the person.
        name: as it was typed.
        is_new: no record of the person was encrypted before.
    """

    ref: str
    kind: str
    name: str
    is_new: bool


def _chosen(store: KeyStore, kind: str, id: str, ref: str, *, is_added: bool) -> _Person:
    """Finds a person by kind and id, or by the ref.

    Args:
        is_added: a person whom the store does not know gets a key, which can end then.

    Raises:
        BadArgument: there is no such kind or person.
    """
    from twofold.features.persons.export import require_person
    from twofold.tables.declare.registry import load

    if ref:
        is_known = not kind and set(ref) <= set("0123456789abcdef") and len(ref) == REF_DIGITS
        state = store.state(ref) if is_known else None
        if state is None:
            raise BadArgument(f"--ref {ref}: no person has it.", hint="`forget KIND ID --ask` prints the ref.")
        return _Person(ref, state.kind, f"{state.kind} {ref[:12]}", is_new=False)
    person = require_person(load(), kind, id)
    is_new = store.state_of(person) is None
    if is_new and not is_added:
        raise BadArgument(f"No record of the {kind} {id} was encrypted.", hint=f"`{COMMAND} keys` counts persons.")
    store.keys_of([person])
    return _Person(store.ref(person), kind, f"{kind} {id}", is_new)


def _print_end(store: KeyStore, chosen: _Person, *, is_shown: bool) -> None:
    """Prints when the key of a person ends, or that it has ended."""
    state = store.state(chosen.ref)
    if state is None or not is_shown:
        return
    seen = " No record of this person was encrypted before." if chosen.is_new else ""
    if state.is_forgotten or state.forget_at_ms is None:
        out.print(f"The {chosen.name} is forgotten: the key is destroyed.{seen}", markup=False)
        return
    at = from_epoch_ms(state.forget_at_ms)
    until = f"on {at:%Y-%m-%d %H:%M} UTC; `remember {chosen.name}` takes it back."
    out.print(f"The {chosen.name} is forgotten {until}{seen}", markup=False, soft_wrap=True)


def _print_ref(chosen: _Person, *, as_json: bool) -> None:
    """Prints the ref of a person, and the DAGs that take it."""
    from twofold.features.persons.records.personal import owners_of
    from twofold.tables.declare.registry import load

    topics = load().topics.values()
    domains = sorted({t.domain for t in topics if any(owner.kind == chosen.kind for owner in owners_of(t))})
    dags = [f"{domain}.forget" for domain in domains]
    if as_json:
        print_json({"ref": chosen.ref, "kind": chosen.kind, "dags": dags})
        return
    out.print(f"The {chosen.name} has the ref", markup=False)
    out.print(chosen.ref, markup=False)
    out.print(f"With it the DAG {' or '.join(dags)} asks another person, then destroys the key.", soft_wrap=True)


def _certify(settings: Settings, store: KeyStore, chosen: _Person, *, as_json: bool, patience_s: float = 0.0) -> None:
    """Prints what is held of a person, once copies are without it or the time is over."""
    from twofold.features.persons.certificate import certify, wait_for_copies
    from twofold.features.persons.certificate_view import as_markdown, print_certificate
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    lake, registry, state = Lake(settings), load(), store.state(chosen.ref)
    if state is None:
        raise BadArgument(f"The {chosen.name} has no key any more.", hint="Another store is at its place.")
    if state.forgotten_no is not None:
        wait_for_copies(lake, registry, state.forgotten_no, patience_s)
    certificate = certify(lake, registry, store, chosen.ref, state)
    if as_json:
        print_json({**vars(certificate), "is_complete": certificate.is_complete, "markdown": as_markdown(certificate)})
    else:
        print_certificate(certificate)

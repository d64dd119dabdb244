"""Commands about the keys of persons: show, rotate, back up."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.console import Json, make_table, out, print_json
from twofold.infra.instants import from_epoch_ms
from twofold.infra.project.settings import Settings

app = typer.Typer(name="keys", invoke_without_command=True, no_args_is_help=False)
ACCESSES = 20


@app.callback()
def keys(context: typer.Context, as_json: Json = False) -> None:
    """Show how many persons have a key, are about to be forgotten, or are forgotten, and who read what they hold."""
    if context.invoked_subcommand is not None:
        return
    from twofold.features.persons.keys.key_store import KeyStore

    settings = Settings.from_environment()
    with closing(KeyStore(settings)) as store:
        counts = {kind: count for kind, count in store.counts().items() if not kind.startswith("_")}
        accesses = [(from_epoch_ms(at), *line) for at, *line in store.accesses(ACCESSES)]
    if as_json:
        read = [dict(zip(("at", "who", "purpose", "persons"), line, strict=True)) for line in accesses]
        print_json({"persons": {kind: count._asdict() for kind, count in counts.items()}, "accesses": read})
        return
    numbers = ["with a key", "to be forgotten", "forgotten"]
    out.print(make_table("Persons", ["kind", *numbers], [(k, *c) for k, c in counts.items()], right=numbers))
    if accesses:
        out.print(make_table("Accesses", ["at", "who", "purpose", "persons"], accesses, right=["persons"]))
    out.print(f"Keys: {settings.keys_file}", soft_wrap=True)


@app.command()
def rotate() -> None:
    """Replace the key of keys and destroy the old one: only this makes older backups of the keys unreadable."""
    from twofold.features.persons.keys.key_store import KeyStore

    settings = Settings.from_environment()
    with closing(KeyStore(settings)) as store:
        number = store.rotate()
    out.print(f"All keys are encrypted by key of keys {number}: back up {settings.key_of_keys_file}.", soft_wrap=True)


@app.command()
def backup(file: Annotated[Path, typer.Argument(help="A new file; only you can read it.")]) -> None:
    """Copy the keys to FILE; who restores it needs the same key of keys, which is to be kept elsewhere."""
    from twofold.features.persons.keys.key_store import KeyStore

    with closing(KeyStore(Settings.from_environment())) as store:
        store.backup(file)
    out.print(f"The keys are in {file}; the key of keys is not.", soft_wrap=True)

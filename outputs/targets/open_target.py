"""Finds what holds the copy of an output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from twofold.features.search.search_index import SearchIndex
from twofold.features.search.search_output import SearchOutput
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting
from twofold.infra.keys.ended_keys import EndedKeys
from twofold.infra.private_file import destination
from twofold.infra.webhooks.public_address import allowed_networks
from twofold.infra.webhooks.signatures import secret_fault
from twofold.outputs.output_target import ChangeTarget, Target
from twofold.outputs.position import Position
from twofold.outputs.refused_rows import Refused, record_refused
from twofold.outputs.revealed import Revealed
from twofold.outputs.revealed_places import Place
from twofold.outputs.targets.topic_copy import TopicCopy
from twofold.outputs.targets.webhook_queue import WebhookQueue
from twofold.tables.declare.outputs.output import Output
from twofold.tables.declare.outputs.postgres_output import COPIES, PostgresOutput
from twofold.tables.declare.outputs.topic_output import TopicOutput
from twofold.tables.declare.outputs.webhook_output import WebhookOutput

if TYPE_CHECKING:
    from twofold.outputs.targets.webhook_sender import WebhookSender
    from twofold.tables.declare.table import Table


def open_target(lake: Lake, table: Table | Place, output: Output) -> Target:
    """Returns what holds the copy of an output; nothing is connected yet.

    Raises:
        BadSetting: its destination has no address, or one of another kind.
    """
    if not output.is_read:
        return open_change_target(lake, table, output)
    if isinstance(output, TopicOutput):
        return _open_topic(lake, table, output)
    name, note = output.name_for(table.name), _note_refused(lake, table, output)
    if isinstance(output, SearchOutput):
        return SearchIndex(
            folder=lake.settings.home / "search" / f"{table.full_name}.{name}",
            text=output.text,
            language=output.language,
            note_refused=note,
            reveal=output.reveal,
            forgotten=partial(_ends, lake, output),
            ended=EndedKeys(lake.settings).last,
        )
    from twofold.infra.postgres.database_connection import parsed_address, supervised_address
    from twofold.outputs.targets.postgres_copy import PostgresCopy

    at = supervised_address(lake.settings, COPIES)
    if output.destination:
        at = parsed_address("postgresql://" + _address(lake, table, output, "postgresql://"))
    return PostgresCopy(at=at, schema=table.domain, name=name, owner=f"{table.full_name}: {name}", note_refused=note)


def open_place(lake: Lake, place: Place) -> Target:
    """Returns what holds the copy of an output that is not declared any more; nothing is connected yet.

    Raises:
        BadSetting: see `open_target`.
    """
    shared: dict[str, Any] = {"name": place.output, "destination": place.destination}
    if place.kind == WebhookOutput.kind:
        return open_queue(lake, place, WebhookOutput(**shared))
    if place.kind == SearchOutput.kind:
        return open_target(lake, place, SearchOutput(name=place.output, text=["erased"]))
    kind = TopicOutput if place.kind == TopicOutput.kind else PostgresOutput
    return open_target(lake, place, kind(**shared))


def open_change_target(lake: Lake, table: Table | Place, output: Output) -> ChangeTarget:
    """Returns what gets the changes of an output that cannot be read; nothing is connected yet.

    Raises:
        BadSetting: see `open_target`.
    """
    if isinstance(output, TopicOutput):
        return _open_topic(lake, table, output)
    assert isinstance(output, WebhookOutput)
    _receiver(lake, table, output)
    return open_queue(lake, table, output)


def _note_refused(lake: Lake, table: Table | Place, output: Output) -> Callable[[Sequence[Refused], Position], None]:
    def note(refused: Sequence[Refused], after: Position) -> None:
        version = (after.heading or after).version
        record_refused(lake, table.full_name, output.name_for(table.name), version, refused)

    return note


def _open_topic(lake: Lake, table: Table | Place, output: TopicOutput) -> TopicCopy:
    settings = lake.settings
    if output.destination:
        settings = replace(settings, bootstrap=_address(lake, table, output, "kafka://"))
    return TopicCopy(
        settings=settings,
        table=table.full_name,
        name=output.name_for(table.name),
        compacted=output.compacted,
        note_refused=_note_refused(lake, table, output),
        reveals=bool(output.reveal),
    )


_FORMS = {"postgresql://": "user:password@host:port/database", "kafka://": "host:port"}


def _address(lake: Lake, table: Table | Place, output: Output, scheme: str) -> str:
    """Returns the address of an output's destination, without its scheme."""
    address = destination(lake.settings.destinations, output.destination)
    if not address.startswith(scheme):
        raise BadSetting(
            f"The destination {output.destination!r} of {table.full_name}: expected {scheme}...",
            hint=f"Write it as {scheme}{_FORMS[scheme]}.",
        )
    return address.removeprefix(scheme)


def open_queue(lake: Lake, table: Table | Place, output: Output) -> WebhookQueue:
    """Returns the queue of a webhook."""
    name = output.name_for(table.name)

    def note(refused: Sequence[Refused], version: int) -> None:
        record_refused(lake, table.full_name, name, version, refused)

    file = lake.settings.home / "outputs" / f"{table.full_name}.{name}.sqlite"
    return WebhookQueue(file=file, table=table.full_name, note_refused=note)


def open_sender(lake: Lake, table: Table | Place, output: WebhookOutput) -> WebhookSender:
    """Returns what sends the changes of a webhook's queue; the address is read whenever some are sent.

    Raises:
        BadSetting: what is allowed is no network.
    """
    from twofold.outputs.targets.revealed_bodies import revealed_bodies
    from twofold.outputs.targets.webhook_sender import WebhookSender

    receiver, reveal = partial(_receiver, lake, table, output), None
    if output.reveal:
        purpose = f"webhook {table.full_name}: {output.name_for(table.name)}"
        reveal = partial(revealed_bodies, lake.settings, purpose, output.reveal)
    allowed = allowed_networks(lake.settings.webhook_networks)
    return WebhookSender(open_queue(lake, table, output), receiver, allowed, reveal)


def _ends(lake: Lake, output: Output) -> int:
    """Returns the number of the last end of a key, of an output that reveals values of persons; else 0."""
    with closing(Revealed(lake.settings, "")) as revealed:
        return revealed.forgotten(output)


def _receiver(lake: Lake, table: Table | Place, output: WebhookOutput) -> tuple[str, Sequence[str]]:
    """Returns the URL of a receiver and its secrets, which no error shows."""
    url, *secrets = destination(lake.settings.destinations, output.destination).split()
    faults = [f"its secret cannot be used: {fault}" for one in secrets if (fault := secret_fault("standard", one))]
    if not secrets:
        faults.append("its secret is missing")
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("https", "http") and parts.hostname and parts.port != 0 and not faults:
            return url, secrets
    raise BadSetting(
        f"The destination {output.destination!r} of {table.full_name}: "
        f"{(faults or ['expected a URL that begins with https://'])[0]}.",
        hint=f"Write it as `{output.destination} = https://host/path whsec_...`.",
    )

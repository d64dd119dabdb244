"""Finds what holds the copy of an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.delta.lake import Lake
from infra.errors import BadSetting
from infra.postgres.database_connection import parsed_address, supervised_address
from infra.private_file import destination
from outputs.output_target import Target
from outputs.position import Position
from outputs.refused_rows import Refused, record_refused
from outputs.targets.compacted_copy import CompactedCopy
from outputs.targets.postgres_copy import PostgresCopy
from outputs.targets.search_index import SearchIndex
from tables.declare.outputs.output import Output
from tables.declare.outputs.search_output import SearchOutput
from tables.declare.outputs.topic_output import TopicOutput
from tables.declare.table import Table

DATABASE = "outputs"
"""The database of the supervised server that has copies without a destination."""


def open_target(lake: Lake, table: Table, output: Output) -> Target:
    """Returns what holds the copy of an output; nothing is connected yet.

    Raises:
        BadSetting: its destination has no address, or one of another kind.
    """
    name = output.name_for(table.name)

    def note(refused: Sequence[Refused], after: Position) -> None:
        version = (after.heading or after).version
        record_refused(lake, table.full_name, name, version, refused)

    if isinstance(output, SearchOutput):
        folder = lake.settings.home / "search" / f"{table.full_name}.{name}"
        return SearchIndex(folder=folder, text=output.text, language=output.language, note_refused=note)
    owner = f"{table.full_name}: {name}"
    if isinstance(output, TopicOutput):
        settings = lake.settings
        if output.destination:
            settings = replace(settings, bootstrap=_address(lake, table, output, "kafka://"))
        return CompactedCopy(settings=settings, topic=f"{table.domain}.{name}", owner=owner, note_refused=note)
    at = supervised_address(lake.settings, DATABASE)
    if output.destination:
        at = parsed_address("postgresql://" + _address(lake, table, output, "postgresql://"))
    return PostgresCopy(at=at, schema=table.domain, name=name, owner=owner, note_refused=note)


_FORMS = {"postgresql://": "user:password@host:port/database", "kafka://": "host:port"}


def _address(lake: Lake, table: Table, output: Output, scheme: str) -> str:
    """Returns the address of an output's destination, without its scheme."""
    address = destination(lake.settings, output.destination)
    if not address.startswith(scheme):
        raise BadSetting(
            f"The destination {output.destination!r} of {table.full_name}: expected {scheme}...",
            hint=f"Write it as {scheme}{_FORMS[scheme]}.",
        )
    return address.removeprefix(scheme)

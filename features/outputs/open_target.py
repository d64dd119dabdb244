"""Opens what holds the copy of an output, by the name that its kind has for that."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from twofold.features.outputs.output_target import Target
from twofold.features.outputs.revealed_places import Place
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.output import Output, kinds

if TYPE_CHECKING:
    from twofold.tables.declare.table import Table


def open_target(lake: Lake, table: Table, output: Output) -> Target:
    """Returns what holds the copy of an output; nothing is connected yet.

    Raises:
        BadSetting: its destination has no address, or one of another kind.
    """
    target: Target = resolve_name(output.opens)(lake, Place.declared(table, output), output)
    return target


def open_place(lake: Lake, place: Place) -> Target:
    """Returns what holds the copy of an output that is not declared any more; see `open_target`."""
    output = kinds()[place.kind](name=place.output, destination=place.destination)
    target: Target = resolve_name(output.opens)(lake, place, output)
    return target

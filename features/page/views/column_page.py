"""The page of a column: what its value is made of, what is made of it, and what else decides about its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from twofold.features.page.charts import Box, graph
from twofold.features.page.links import Links
from twofold.features.page.map_layout import layout
from twofold.features.page.platform_status import PlatformStatus
from twofold.features.page.views.map_page import MOST_DRAWN
from twofold.status.catalog import Entry
from twofold.status.parts.column_lineage import ColumnLineage, Place


@dataclass(frozen=True, kw_only=True)
class ColumnPage:
    """The content of the page of a column.

    Attributes:
        untraced: why it may be made of other columns, too; empty if it is not.
        decided_by: which rows of its table count, and which row they go to -> the columns that decide it.
        decides: the same of other tables -> those for which it decides that.
        drawing: None if it is made of no column and none is made of it, or they are too many.
    """

    entry: Entry
    column: Mapping[str, str]
    sources: Sequence[Place]
    readers: Sequence[Place]
    untraced: str
    decided_by: Mapping[str, Sequence[Place]]
    decides: Mapping[str, Sequence[str]]
    drawing: Markup | None


def column_page(platform: PlatformStatus, links: Links, table: str, name: str) -> ColumnPage | None:
    """Returns the facts of a column, None if nothing of this name is declared."""
    entry = platform.catalog.get(table)
    column = next((column for column in entry.columns if column["name"] == name), None) if entry else None
    if entry is None or column is None:
        return None
    place, lineage = Place(table, name), ColumnLineage(platform.catalog)
    around = lineage.family(place)
    return ColumnPage(
        entry=entry,
        column=column,
        sources=lineage.sources(place),
        readers=lineage.readers(place),
        untraced=entry.untraced.get(name, ""),
        decided_by={what: [Place.parse(source) for source in of] for what, of in entry.influences.items()},
        decides=lineage.decides.get(place, {}),
        drawing=_drawing(platform, links, place, around) if 1 < len(around) <= MOST_DRAWN else None,
    )


def _drawing(platform: PlatformStatus, links: Links, place: Place, around: Mapping[Place, Sequence[Place]]) -> Markup:
    ids = {one: f"{one.table}.{one.column}" for one in around}
    places, edges = layout({ids[one]: [ids[source] for source in of] for one, of in around.items()})
    boxes = [
        Box(
            places[ids[one]],
            one.column,
            f"{platform.healths[one.table].word}{' here' if one == place else ''}",
            one.table,
            "this column" if one == place else "",
            links.to("columns", one.table, one.column),
        )
        for one in around
    ]
    return graph(sorted(boxes), edges)

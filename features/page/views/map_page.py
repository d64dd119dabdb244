"""The map: what hangs on what, and where it is late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from twofold.features.page.charts import Box, graph
from twofold.features.page.links import Links
from twofold.features.page.map_layout import layout
from twofold.features.page.platform_status import PlatformStatus
from twofold.infra.text.printable import shown_duration
from twofold.status.catalog import Entry
from twofold.status.table_health import Health

MOST_DRAWN = 150


@dataclass(frozen=True, kw_only=True)
class MapPage:
    """The content of the map.

    Attributes:
        nodes: the ones that lag most first.
        drawing: None if they are too many to draw.
    """

    nodes: Sequence[Health]
    drawing: Markup | None
    start: str
    word: str
    domains: Sequence[str]


def map_page(platform: PlatformStatus, links: Links, start: str, word: str) -> MapPage:
    """Returns the map of all, or of a topic or table with all that it depends on and all that depends on it.

    Args:
        word: restricts it to names that it is part of.
    """
    names = _around(platform.catalog, start) if start in platform.catalog else list(platform.catalog)
    names = [name for name in names if word.lower() in name.lower()]
    nodes = {name: platform.healths[name] for name in names}
    drawing = None
    if 0 < len(nodes) <= MOST_DRAWN:
        places, edges = layout(
            {name: [source for source in node.entry.inputs if source in nodes] for name, node in nodes.items()}
        )
        drawing = graph(sorted(_box(places[name], node, links) for name, node in nodes.items()), edges)
    return MapPage(
        nodes=sorted(nodes.values(), key=lambda node: (-node.lag.total_s, node.entry.name)),
        drawing=drawing,
        start=start if start in platform.catalog else "",
        word=word,
        domains=sorted({name.partition(".")[0] for name in platform.catalog}),
    )


def _box(place: tuple[int, float], node: Health, links: Links) -> Box:
    behind = f"{shown_duration(node.lag.total_s)} behind" if node.lag.total_s else ""
    because = f"because {node.lag.slowest}" if node.lag.slowest else ""
    name, state = node.entry.name, ", ".join(filter(None, (node.word, behind)))
    return Box(place, name, node.word, state, because, links.about(name))


def _around(catalog: Mapping[str, Entry], start: str) -> list[str]:
    """Returns a name with all above and all below it, in the order of the catalog."""
    reached = {start}
    for is_up in (True, False):
        ahead = [start]
        while ahead:
            entry = catalog[ahead.pop()]
            near = entry.inputs if is_up else entry.readers
            new = [name for name in near if name in catalog and name not in reached]
            reached |= set(new)
            ahead += new
    return [name for name in catalog if name in reached]

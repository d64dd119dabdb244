"""Places the nodes of a graph in layers from left to right, so that few edges cross."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

SWEEPS = 8


def layout(above: Mapping[str, Sequence[str]]) -> tuple[dict[str, tuple[int, float]], list[list[tuple[int, float]]]]:
    """Returns the layer and the height of each node, and of each edge the points that it passes.

    A node stands one layer right of the last one that it depends on. Equal input gives equal output: names break ties.

    Args:
        above: node -> the nodes that it depends on, each of which is a key, too; without a cycle.
    """
    layer = _layers(above)
    chains = [_chain(source, node, layer) for node in sorted(above) for source in sorted(set(above[node]))]
    columns = defaultdict[int, list[str]](list)
    for name in sorted({*layer, *(point for chain in chains for point in chain)}):
        columns[_layer_of(name, layer)].append(name)
    near = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for chain in chains:
        for left, right in pairwise(chain):
            near[0][right].append(left)
            near[1][left].append(right)
    best = _untangled(columns, near)
    heights = _heights(best, near)
    places = {name: (layer[name], heights[name]) for name in layer}
    return places, [[(_layer_of(name, layer), heights[name]) for name in chain] for chain in chains]


def _layers(above: Mapping[str, Sequence[str]]) -> dict[str, int]:
    layer: dict[str, int] = {}

    def layer_of(name: str) -> int:
        if name not in layer:
            layer[name] = max((layer_of(source) + 1 for source in above[name]), default=0)
        return layer[name]

    for name in above:
        layer_of(name)
    return layer


def _chain(source: str, node: str, layer: Mapping[str, int]) -> list[str]:
    """Returns the edge as a chain of places, one in each layer that it crosses."""
    between = range(layer[source] + 1, layer[node])
    return [source, *(f"{source}\n{node}\n{number}" for number in between), node]


def _layer_of(name: str, layer: Mapping[str, int]) -> int:
    return layer[name] if name in layer else int(name.rpartition("\n")[2])


def _untangled(columns: Mapping[int, list[str]], near: Sequence[Mapping[str, list[str]]]) -> dict[int, list[str]]:
    """Orders each layer by the mean place of its neighbours, from both sides in turn, and keeps the best."""
    order = {number: list(names) for number, names in columns.items()}
    best, fewest = order, _crossings(order, near[1])
    for sweep in range(SWEEPS):
        side = near[sweep % 2]
        order = {number: list(names) for number, names in order.items()}
        for number in sorted(order, reverse=bool(sweep % 2)):
            place = {name: n for names in order.values() for n, name in enumerate(names)}
            order[number].sort(key=lambda name: (_mean([place[end] for end in side[name]], place[name]), name))
        if (crossings := _crossings(order, near[1])) < fewest:
            best, fewest = order, crossings
    return best


def _crossings(order: Mapping[int, list[str]], right: Mapping[str, list[str]]) -> int:
    place = {name: n for names in order.values() for n, name in enumerate(names)}
    count = 0
    for names in order.values():
        ends = [place[end] for name in names for end in sorted(right[name], key=place.__getitem__)]
        starts = [n for n, name in enumerate(names) for _ in right[name]]
        count += sum(
            starts[i] < starts[j] and ends[i] > ends[j] for i in range(len(ends)) for j in range(i + 1, len(ends))
        )
    return count


def _heights(order: Mapping[int, list[str]], near: Sequence[Mapping[str, list[str]]]) -> dict[str, float]:
    """Returns a height for each name: near the mean of its neighbours, at least 1 from the one before."""
    heights = {name: float(n) for names in order.values() for n, name in enumerate(names)}
    for sweep in range(SWEEPS):
        for number in sorted(order, reverse=bool(sweep % 2)):
            last = -1.0
            for name in order[number]:
                wanted = _mean([heights[end] for end in near[sweep % 2][name]], heights[name])
                heights[name] = last = max(wanted, last + 1.0)
    lowest = min(heights.values(), default=0.0)
    return {name: height - lowest for name, height in heights.items()}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise

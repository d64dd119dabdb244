"""The places of nodes on the map: left of what depends on them, apart from each other, the same each time."""

from __future__ import annotations

import random
import time
from itertools import pairwise

from twofold.features.page.map_layout import layout

DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["a", "d"]}


def test_a_node_is_right_of_all_its_inputs() -> None:
    places, _ = layout(DIAMOND)
    assert {name: layer for name, (layer, _) in places.items()} == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 3}


def test_an_edge_passes_each_layer_that_it_crosses() -> None:
    places, edges = layout(DIAMOND)
    ends = {(edge[0], edge[-1]): [layer for layer, _ in edge] for edge in edges}
    assert ends[places["a"], places["e"]] == [0, 1, 2, 3]
    assert len(edges) == 6


def test_nodes_of_a_layer_do_not_overlap_each_other_nor_edges() -> None:
    places, edges = layout(DIAMOND)
    inner = {point for edge in edges for point in edge[1:-1]}
    for layer in range(4):
        heights = sorted(y for at, y in [*places.values(), *inner] if at == layer)
        assert all(high - low >= 1 for low, high in pairwise(heights)), heights
        assert min(heights) >= 0


def test_two_chains_do_not_cross() -> None:
    _, edges = layout({"a": [], "z": [], "b": ["z"], "y": ["a"]})
    (first, second) = sorted(edges)
    assert (first[0][1] - second[0][1]) * (first[1][1] - second[1][1]) > 0


def test_the_order_of_the_input_does_not_matter() -> None:
    names = list(DIAMOND)
    random.Random(1).shuffle(names)
    assert layout({name: DIAMOND[name][::-1] for name in names}) == layout(DIAMOND)


def test_a_hundred_tables_take_no_time() -> None:
    chance = random.Random(2)
    above = {f"t{n:03}": chance.sample([f"t{m:03}" for m in range(n)], min(n, 2)) for n in range(100)}
    began = time.process_time()
    layout(above)
    assert time.process_time() - began < 0.5


def test_nothing_has_no_places() -> None:
    assert layout({}) == ({}, [])

"""Chores of outputs: what those have left that no table declares any more, and rows that were refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from twofold.batch.chores.doomed import MONTH, Doomed, together
from twofold.batch.chores.table_chores import old_rows
from twofold.features.outputs.refused_rows import REFUSED
from twofold.features.outputs.revealed_places import Place, revealed_places
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import Registry

_REFUSED = timedelta(days=400)


def undeclared(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds queues and states of outputs that no table declares and nothing moves on."""
    yield from left_by_undeclared(lake, registry, now, lake.settings.home / "outputs")


def left_by_undeclared(lake: Lake, registry: Registry, now: datetime, folder: Path) -> Iterator[Doomed]:
    """Finds what outputs have left below a folder, by names that begin with those of table and output.

    Copies that may have values of persons are left to `outputs erase`, since certificates count them until then.
    """
    if registry.faults:
        return
    declared = {Place.declared(*pair)[:2] for pair in registry.outputs()}
    kept = {".".join(place) for place in declared.union(place[:2] for place in revealed_places(lake))}
    groups: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.*.*")):
        domain, table, rest = path.name.split(".", 2)
        if not any(f"{path.name}.".startswith(f"{name}.") for name in kept):
            groups[f"{domain}.{table}", rest.partition(".")[0]].append(path)
    for (name, output), paths in groups.items():
        # What moves it, of a process that has not loaded the declarations of today, renews its hold all the time.
        hold = lake.history(name).holds().get(f"output {output}")
        if hold is None or hold.at_ms < (now - MONTH).timestamp() * 1_000:
            yield from together(paths, now - MONTH, "no table declares it", f"{folder.name}/{name}.{output}")


def refused_rows(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds rows of more than a year ago that copies could not have."""
    yield from old_rows(lake, [REFUSED], now - _REFUSED)

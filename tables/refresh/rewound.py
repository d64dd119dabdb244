"""Moves readers of inputs back to the versions that others had read when they wrote the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import STREAM
from twofold.tables.refresh.streaming_checkpoint import Checkpoint


def read_by_others(lake: Lake, name: str, after: int, is_own: Callable[[LoggedCommit], bool]) -> Mapping[str, int]:
    """Returns by input the least version that others had read in commits after a version.

    Later changes of an input may be missing in these rows.

    Raises:
        FileNotFoundError: a commit file is gone.
    """
    least: dict[str, int] = {}
    for commit in lake.commits(name, after, lake.version(name)):
        if commit.changes and not is_own(commit):
            for source, version in commit.info.get("inputs", {}).items():
                least[source] = min(version, least.get(source, version))
    return least


def next_versions(lake: Lake, registry: Registry, table: Table, checkpoint: Checkpoint) -> list[int]:
    """Returns the next version of each input for the table's stream; empty if it reads all again.

    The stream of a table that follows changes looks again at what came since others have read the inputs.
    """
    position = checkpoint.position
    if position is None or position.own is None:
        return checkpoint.next_versions()
    stream = checkpoint.stream
    try:
        least = read_by_others(lake, table.full_name, position.own, lambda c: c.info.get(STREAM) == stream)
    except FileNotFoundError:
        return []
    names = [source.full_name for source in registry.upstream(table)]
    return [min(v, least.get(name, v) + 1) for name, v in zip(names, position.versions, strict=True)]

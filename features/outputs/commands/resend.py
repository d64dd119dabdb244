"""Sends rows of a table to the copy of an output again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.features.outputs.next_step import MOST_ROWS, closed_by_now, no_changes, open_at
from twofold.features.outputs.position import Position
from twofold.features.outputs.revealed import Revealed
from twofold.infra import COMMAND
from twofold.infra.delta.change_feed import sides_of
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, TryAgain
from twofold.tables.output_view import KEY, View
from twofold.tables.refresh.row_diff import difference, matching

if TYPE_CHECKING:
    from twofold.features.outputs.output_target import Target
    from twofold.tables.declare.output import Output
    from twofold.tables.declare.table import Table


def resend_all(target: Target, lake: Lake, table: Table) -> None:
    """Makes the output compare its copy with the table, and send what differs.

    Raises:
        BadArgument: nothing was sent yet.
    """
    position = _position(target, table)
    target.send(no_changes(View.parsed(position.definition), lake.open(table.full_name)), position, position.unknown())


def resend_from(target: Target, lake: Lake, table: Table, version: int) -> int:
    """Sends each row that changed since a version once more, as the copy should have it; returns their number.

    Raises:
        BadArgument: nothing was sent yet, or these changes cannot be read.
        TryAgain: the copy is on its way to a version.
    """
    name, position = table.full_name, _position(target, table)
    if position.heading is not None:
        raise TryAgain(f"{name}: its copy is on its way to version {position.heading.version}.", hint="Wait for it.")
    otherwise = "`--from now` compares the whole copy with the table."
    if not 0 <= version < position.version:
        raise BadArgument(
            f"--from {version}: expected a version from 0 to {position.version - 1}; the copy of {name} shows "
            f"{position.version}.",
            hint=otherwise,
        )
    try:
        commits = [commit for commit in lake.commits(name, version, position.version) if commit.changes]
        is_known = lake.commit_digest(name, position.version) == position.commit
        if not is_known or sum(commit.rows_changed for commit in commits) > MOST_ROWS:
            raise BadArgument(
                f"--from {version}: {'too many rows of' if is_known else 'the log is not the one of'} {name} that "
                "the copy shows.",
                hint=otherwise,
            )
        view = View.parsed(position.definition)
        versions = [commit.version for commit in commits]
        old, new = sides_of(lake, name, versions, view.key) if versions else (None, None)
    except FileNotFoundError as error:
        raise BadArgument(f"--from {version}: {error}", hint=otherwise) from error
    if old is None or new is None:
        return 0
    with closing(Revealed(lake.settings, f"resend {name}")) as revealed:
        before, after = (view.rows(side, position.closed_ms, revealed.now) for side in (old, new))
    gone, none = matching(before, after, [KEY], "ANTI"), after.slice(0, 0)
    changes = pa.concat_tables([difference(after, none, [KEY]), difference(none, gone, [KEY])])
    target.send(changes, position, position)
    return len(changes)


def resume(target: Target, lake: Lake, table: Table, output: Output, version: int | None) -> int:
    """Has the changes sent next that come after a version of the table, whatever was sent; returns the version.

    Args:
        version: None: the newest.

    Raises:
        BadArgument: the table has no such version yet.
        ChangesGone: it cannot be read any more.
    """
    name, before, view = table.full_name, target.position(), View.declared(table, output)
    closed_ms = closed_by_now(lake, table, view, before)
    newest = lake.version(name)
    at = newest if version is None else version
    if at > newest:
        raise BadArgument(f"--from {at}: expected now, or a version up to {newest}, the newest of {name}.")
    opened = open_at(lake, name, at)
    id, commit = str(opened.metadata().id), lake.commit_digest(name, at)
    if version is not None:
        closed_ms = target.closed_ms_at(id, at)
    after = Position(
        definition=view.definition,
        table_id=id,
        version=at,
        commit=commit,
        forgotten=before.forgotten if before else 0,
        closed_ms=closed_ms,
    )
    target.send(no_changes(view, opened), before, after)
    return at


def _position(target: Target, table: Table) -> Position:
    position = target.position()
    if position is None:
        raise BadArgument(
            f"Nothing of {table.full_name} was sent yet.", hint=f"`{COMMAND} up` runs its outputs, which send all rows."
        )
    return position

"""The next step of an output: which rows of its copy change, and which position it has then.

The changes are the difference of the view of the table at two positions, read by the first of three ways that can be
gone: from the change feed; from two snapshots, by pages of the keys; from the newest snapshot and the copy itself.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.features.outputs.position import NOTHING, Position
from twofold.features.outputs.revealed import Revealed
from twofold.features.outputs.revealed_places import Place, note_revealed
from twofold.infra import COMMAND
from twofold.infra.delta.change_feed import naming_what_is_gone, sides_of
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, ChangesGone, ChangesUnread
from twofold.tables.output_view import KEY, Show, View
from twofold.tables.refresh.row_diff import difference, matching
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold_algebra.sql.names import DATAFUSION

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from twofold.features.outputs.output_target import Target
    from twofold.tables.declare.output import Output
    from twofold.tables.declare.table import Table

MOST_ROWS = 200_000
"""Changed rows of a step that are read from the change feed, and rows of a page."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The changes of a copy from one position to the next.

    Attributes:
        changes: as `Target.send` gets them.
    """

    changes: pa.Table
    before: Position | None
    after: Position


def next_step(lake: Lake, table: Table, output: Output, position: Position | None, target: Target) -> Step | None:
    """Returns the next step of an output; None if its copy shows the table as it is.

    Args:
        position: of the copy.
        target: read only if the rows that the copy has can be known from no version of the table.

    Raises:
        SchemaMismatch: the table lacks columns that the output reads.
        BadSetting: the output reveals values of persons, and their keys cannot be read.
    """
    if not lake.exists(table.full_name):
        return None
    purpose = f"output {table.full_name}: {output.name_for(table.name)}"
    # What cannot be read waits for its receiver, encrypted: the key can end meanwhile.
    with closing(Revealed(lake.settings, purpose, decrypts=output.is_read)) as revealed:
        return _step(lake, table, output, position, target, revealed)


def _step(
    lake: Lake, table: Table, output: Output, position: Position | None, target: Target, revealed: Revealed
) -> Step | None:
    """Returns the next step; see `next_step`."""
    view = View.declared(table, output)
    if view.reveal and not (position and View.parsed(position.definition).reveal):
        note_revealed(lake, Place.declared(table, output))
    # Before any key is used: a copy may have values of the keys that end from here on.
    forgotten = revealed.forgotten(view)
    # Before the version: what has closed by then is final in that version.
    closed_ms = closed_by_now(lake, table, view, position)
    version = lake.version(table.full_name)
    commit = lake.commit_digest(table.full_name, version)
    now = Position(
        definition=view.definition,
        table_id="",
        version=version,
        commit=commit,
        forgotten=forgotten,
        closed_ms=closed_ms,
    )
    if position is not None and now == replace(position, table_id="") and position.table_id:
        return None
    opened = lake.open(table.full_name, version)
    now = replace(now, table_id=str(opened.metadata().id))
    reader = _Reader(lake, table.full_name, position, now, opened, revealed, by_commit=not output.is_read)
    if position is None and output.begin == "now":
        return Step(changes=no_changes(view, opened), before=None, after=now)
    if position is None:
        nothing = replace(now, version=NOTHING, commit="", closed_ms=None)
        return Step(changes=no_changes(view, opened), before=None, after=reader.heading_from(nothing))
    if position.heading is not None:
        return reader.next_page(position.heading, target)
    if not reader.is_of_this_log(position):
        position = position.unknown()
    elif position.definition == now.definition and position.forgotten != forgotten:
        # The same rows without what was forgotten; from there on by commits.
        heading = reader.heading_from(position, replace(position, forgotten=forgotten))
        return Step(changes=no_changes(view, opened), before=position, after=heading)
    elif step := reader.step_by_feed():
        return step
    return Step(changes=no_changes(view, opened), before=reader.position, after=reader.heading_from(position))


def closed_by_now(lake: Lake, table: Table, view: View, position: Position | None) -> int | None:
    """Returns the time by which rows have closed, which never goes back; None: no row has, or all are shown."""
    watermark_ms = Checkpoint.of_table(lake.settings, table).watermark_ms() if view.closes_at else None
    earlier_ms = position.closed_ms if position is not None else None
    return max((ms for ms in (watermark_ms, earlier_ms) if ms is not None), default=None)


@dataclass(frozen=True)
class _Reader:
    """Reads differences between positions of one table.

    Attributes:
        position: of the copy.
        now: that of the newest version.
        opened: the table at that version.
        revealed: decrypts values of persons.
        by_commit: a step by the change feed has the rows of one commit.
    """

    lake: Lake
    name: str
    position: Position | None
    now: Position
    opened: DeltaTable
    revealed: Revealed
    by_commit: bool

    def heading_from(self, position: Position, heading: Position | None = None) -> Position:
        """Returns a position before the first page of a way to a heading; without one to the newest version."""
        rows = [int(self.opened.count())]
        if position.table_id == self.now.table_id and position.version != NOTHING:
            try:
                rows.append(int(open_at(self.lake, self.name, position.version).count()))
            except ChangesGone:
                position, heading = position.unknown(), None
        return position.towards(heading or self.now, max(1, ceil(max(rows) / MOST_ROWS)))

    def is_of_this_log(self, position: Position) -> bool:
        """Whether the position is one of the table's log as it is now."""
        is_same = position.table_id == self.now.table_id and position.version <= self.now.version
        return is_same and self.lake.commit_digest(self.name, position.version) == position.commit != ""

    def step_by_feed(self) -> Step | None:
        """Returns the changes of the next commits; None if the change feed does not have them, or too many."""
        before, now = self.position, self.now
        if before is None or before.definition != now.definition:
            return None
        view = View.parsed(now.definition)
        try:
            known = open_at(self.lake, self.name, before.version)
            if pa.schema(known.schema()) != pa.schema(self.opened.schema()):
                return None
            through, versions = self._commits(before.version)
            if through < now.version:
                if through == before.version:
                    return None
                # What has closed by the watermark is final in the newest version only.
                commit = self.lake.commit_digest(self.name, through)
                now = replace(now, version=through, commit=commit, closed_ms=before.closed_ms)
            sides = self._sides(view, before, now, versions)
        except (FileNotFoundError, ChangesUnread):
            return None
        if sum(map(len, sides)) > 3 * MOST_ROWS:
            return None
        old = view.rows(sides[0], before.closed_ms, self.revealed.at(before))
        new = view.rows(sides[1], now.closed_ms, self.revealed.now)
        changes = difference(new, old, [KEY])
        return Step(changes=changes, before=before, after=now)

    def _commits(self, after: int) -> tuple[int, list[int]]:
        """Returns the last version of the next commits of a step, and the ones that change rows."""
        through, versions, changed = after, [], 0
        for commit in self.lake.commits(self.name, after, self.now.version):
            if commit.changes:
                changed += commit.rows_changed
                if changed > MOST_ROWS:
                    break
                versions.append(commit.version)
            through = commit.version
            if versions and self.by_commit:
                break
        return through, versions

    def _sides(self, view: View, before: Position, now: Position, versions: list[int]) -> tuple[pa.Table, pa.Table]:
        """Returns the rows of the table that can differ between two views: old ones and new ones."""
        schema = pa.schema(self.opened.schema())
        old, new = schema.empty_table(), schema.empty_table()
        if versions:
            old, new = sides_of(self.lake, self.name, versions, view.key)
        if view.closes_at and now.closed_ms != before.closed_ms and now.closed_ms is not None:
            kind, column = schema.field(view.closes_at).type, DATAFUSION.name(view.closes_at)
            condition = f"{column} <= {DATAFUSION.moment(kind, now.closed_ms)}"
            if before.closed_ms is not None:
                # The bounds of files are cut to the millisecond; both views get what closed within it.
                condition += f" AND {column} >= {DATAFUSION.moment(kind, before.closed_ms)}"
            closing = select(open_at(self.lake, self.name, now.version), schema.names, condition)
            for side in (old, new):
                closing = matching(closing, side, view.key, "ANTI")
            old, new = pa.concat_tables([old, closing]), pa.concat_tables([new, closing])
        return old, new

    def next_page(self, heading: Position, target: Target) -> Step:
        """Returns the changes of the next page on the way to a heading, or a way to a newer one if that is gone."""
        position = self.position
        assert position is not None
        none = no_changes(View.parsed(self.now.definition), self.opened)
        if position.is_whole:
            return Step(changes=none, before=position, after=position.with_next_page())
        try:
            if not self.is_of_this_log(heading):
                raise ChangesGone(f"{self.name}: version {heading.version} is gone.", table=self.name)
            should = page_of(self.lake, self.name, heading, position.page, position.pages, self.revealed.now)
        except ChangesGone:
            return Step(changes=none, before=position, after=self.heading_from(position.unknown()))
        try:
            if position.table_id != heading.table_id:
                raise ChangesGone(f"{self.name}: version {position.version} is gone.", table=self.name)
            if position.version == NOTHING:
                shows = should.schema.empty_table()
            else:
                show = self.revealed.at(position)
                there = page_of(self.lake, self.name, position, position.page, position.pages, show)
                shows = _with_columns(there, should.schema)
        except ChangesGone:
            if self.by_commit:
                raise ChangesGone(
                    f"{self.name}: what changed after the last version that was sent cannot be known: that version is "
                    "gone, or the table was made again.",
                    hint=f"{COMMAND} outputs resend {self.name} --from N sends what changed after version N, --from "
                    "now only what changes from now on.",
                    table=self.name,
                ) from None
            shows = target.sent(should.schema, position.page, position.pages)
        return Step(changes=difference(should, shows, [KEY]), before=position, after=position.with_next_page())


def page_of(lake: Lake, name: str, at: Position, page: int, pages: int, show: Show | None = None) -> pa.Table:
    """Returns the rows of a page of the view at a position.

    Args:
        show: see `View.rows`.

    Raises:
        ChangesGone: that version of the table cannot be read any more.
    """
    view, opened = View.parsed(at.definition), open_at(lake, name, at.version)
    schema = pa.schema(opened.schema())
    columns = view.reads(schema)
    with naming_what_is_gone(name, at.version, at.version):
        rows = pa.RecordBatchReader.from_stream(opened.scan(columns=columns))
        found = view.page(rows, page, pages)
    return view.rows(found.cast(pa.schema([schema.field(column) for column in columns])), at.closed_ms, show)


def open_at(lake: Lake, name: str, version: int) -> DeltaTable:
    """Opens a version of a table.

    Raises:
        ChangesGone: its log does not have that version any more.
    """
    with naming_what_is_gone(name, version, version):
        try:
            return lake.open(name, version)
        except BadArgument as error:
            raise FileNotFoundError(str(error)) from error


def no_changes(view: View, table: DeltaTable) -> pa.Table:
    """Returns no changes, with the columns of a view of a table."""
    none = view.schema(pa.schema(table.schema())).empty_table()
    return difference(none, none, [KEY])


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows with the columns of a schema; a column that they lack, or have with another type, is null."""
    kinds = {field.name: field.type for field in rows.schema}
    columns = [
        rows[field.name] if kinds.get(field.name) == field.type else pa.nulls(len(rows), field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)

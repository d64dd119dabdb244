"""Removes what the history of a table no longer has to have: replaced files, old change feeds, old commits.

VACUUM takes whole hours and removes feeds by their age alone; the clean-up of a log goes by the times of files, which a
copied lake has lost. The table's own log therefore names the files, and the holds of its readers say how far to go.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from twofold.infra.delta.history import REPLACED_IN_CHECKPOINTS, Floor, Hold
from twofold.infra.delta.logged_commit import info_of, logged_version

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from twofold.infra.delta.lake import Lake

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_SHARE = 20  # of the time between two trims that one may take
_log = logging.getLogger("twofold.trim")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much history a table keeps: what is younger than all of these, or held, and not much more.

    Attributes:
        history_ms, commits: of commits, and what they changed.
        held_ms, held_commits: of commits that a hold needs.
        versions_ms: of the table as it was.
        bytes: of files that were replaced; a larger table may have twice its size.
        least_ms: what is younger is kept in any case, for readers that have just begun.
    """

    history_ms: int = 30 * 24 * _HOUR_MS
    commits: int = 5_000
    held_ms: int = 3 * 24 * _HOUR_MS
    held_commits: int = 20_000
    versions_ms: int = _HOUR_MS
    bytes: int = 1 << 30
    least_ms: int = 10 * _MINUTE_MS


LEDGER = Limits(history_ms=48 * _HOUR_MS, commits=500)
"""Of a table whose newest version alone is read."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A commit, as far as the trim needs it; paths are relative to the table.

    Attributes:
        said: its `userMetadata`.
        replaced: files that it removed, with their bytes.
        feed: files with nothing but what it changed.
        also_feed: files with rows of the table that are the only record of what it changed.
    """

    version: int
    at_ms: int
    said: str | None
    replaced: Mapping[str, int]
    feed: Sequence[str]
    also_feed: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Trimmed:
    """The effect of a trim: what it removed."""

    files: int = 0
    bytes: int = 0
    commits: int = 0


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A trim before it is made.

    Attributes:
        because: what keeps the rest: the name of a hold, or limits.
        gone: what it would remove.
    """

    floor: Floor
    because: str = ""
    gone: Trimmed = Trimmed()


def next_floor(
    seen: Sequence[Seen], holds: Iterable[Hold], limits: Limits, live_bytes: int, now_ms: int
) -> tuple[int, int]:
    """Returns the versions from which on changes, and the table as it was, are to be kept.

    Args:
        seen: the commits of the log, oldest first; at least one.
        live_bytes: of the files of the newest version.
    """
    newest = seen[-1].version

    def younger_than(ms: int) -> int:
        return next((commit.version for commit in seen if commit.at_ms > now_ms - ms), newest)

    holds = list(holds)
    bound = max(younger_than(limits.held_ms), newest - limits.held_commits)
    changes = max(younger_than(limits.history_ms), newest - limits.commits)
    rows, room = younger_than(limits.versions_ms), max(limits.bytes, 2 * live_bytes)
    for commit in reversed(seen):
        room -= sum(commit.replaced.values())
        if commit.version <= rows or room < 0:
            rows = max(rows, min(commit.version, younger_than(limits.least_ms)))
            break
    rows = min([rows, *(max(bound, hold.version) for hold in holds if hold.rows)])
    return min([changes, rows, *(max(bound, hold.version) for hold in holds)]), rows


class Trim:
    """Trims one table again and again; what was read of its log is not read again."""

    def __init__(self, lake: Lake, name: str, limits: Limits = Limits()) -> None:
        self._lake, self._name, self._limits = lake, name, limits
        self._root, self._history = Path(lake.uri(name)), lake.history(name)
        self._seen: deque[Seen] = deque()
        self._removed_to = 0  # version: what commits up to it have replaced is removed
        self._kept: dict[str, int] = {}  # file that was replaced, and is the feed of a commit that is kept -> its bytes
        self._next_s = 0.0

    def when_due(self) -> None:
        """Trims, unless the last trim was so recent that too much time would go into them."""
        if time.monotonic() >= self._next_s:
            began = time.monotonic()
            self.now()
            self._next_s = time.monotonic() + _SHARE * (time.monotonic() - began)

    def now(self) -> Trimmed:
        """Removes what the table need not keep, unless another process does it now; killed, it is simply repeated."""
        with self._history.trimming() as is_ours:
            return self._trim() if is_ours else Trimmed()

    def outlook(self) -> Outlook:
        """Returns what `now` would remove and why no more, and changes nothing; not of an object that trims."""
        table = self._lake.open(self._name)
        live, log = dict(_files_of(table)), self._log_files()
        self._read({version for version, name in log if name.endswith(".json")}, table.version())
        before = self._history.floor()
        if not self._seen:
            return Outlook(floor=before)
        live_bytes, holds = sum(live.values()), self._history.holds()
        changes, rows = self._wanted(live_bytes)
        days = self._limits.history_ms // (24 * _HOUR_MS)
        floor, because = self._floor(before, log, changes, rows), f"{days} days, {self._limits.commits:,} commits"
        if (changes, rows) != next_floor(list(self._seen), (), self._limits, live_bytes, _now_ms()):
            because = min(holds, key=lambda holder: holds[holder].version)
        files, commits = self._replaced(min(rows, floor.rows), min(changes, floor.changes), live, log)
        sizes = [path.stat().st_size for path in files if path.exists()]
        number = sum(name.endswith(".json") for name in commits)
        gone = Trimmed(files=len(sizes), bytes=sum(sizes), commits=number)
        return Outlook(floor=floor, because=because, gone=gone)

    def orphans(self, before_s: float) -> list[Path]:
        """Lists data files that neither the table nor its log names, and that are older than a moment, epoch seconds.

        They are of writers that were killed before they committed, or of commits that are gone.
        """
        aged = [path for path in self._root.rglob("*.parquet") if path.stat().st_mtime < before_s]
        aged = [path for path in aged if not path.relative_to(self._root).parts[0].startswith(("_delta", "_history"))]
        if not aged:
            return []
        table = self._lake.open(self._name)
        self._read({version for version, name in self._log_files() if name.endswith(".json")}, table.version())
        if not all(commit.at_ms for commit in self._seen):
            return []  # a commit is empty, or cut off: what it named is not known, and it may be put back
        logged = {path for commit in self._seen for path in (*commit.replaced, *commit.feed, *commit.also_feed)}
        named = {self._root / path for path in logged.union(path for path, _ in _files_of(table))}
        return [path for path in aged if path not in named]

    def _trim(self) -> Trimmed:
        table = self._lake.open(self._name)
        self._keep_checkpoints_small(table)
        live = dict(_files_of(table))
        log = self._log_files()
        self._read({version for version, name in log if name.endswith(".json")}, table.version())
        if not self._seen:
            return Trimmed()
        floor = self._raised(log, sum(live.values()))
        # A hold that begins from here on sees the floor; one that began before is seen here.
        changes, rows = self._wanted(sum(live.values()))
        gone = self._remove(min(rows, floor.rows), min(changes, floor.changes), live, log)
        if gone.files or gone.commits:
            _log.info("trimmed table=%s files=%d bytes=%d commits=%d", self._name, gone.files, gone.bytes, gone.commits)
        return gone

    def _wanted(self, live_bytes: int) -> tuple[int, int]:
        return next_floor(list(self._seen), self._history.holds().values(), self._limits, live_bytes, _now_ms())

    def _raised(self, log: Sequence[tuple[int, str]], live_bytes: int) -> Floor:
        """Publishes the floor to which the table is trimmed."""
        before = self._history.floor()
        floor = self._floor(before, log, *self._wanted(live_bytes))
        if floor != before:
            self._history.raise_floor(floor)
        return floor

    def _floor(self, before: Floor, log: Sequence[tuple[int, str]], changes: int, rows: int) -> Floor:
        # The log opens from a checkpoint only.
        openable = max((version for version, name in log if ".checkpoint." in name and version <= changes), default=0)
        facts, starts = dict(before.facts), dict(before.starts)
        for commit in takewhile(lambda commit: commit.version < openable, self._seen):
            if commit.version >= before.changes:
                info = info_of({"userMetadata": commit.said})
                facts |= dict.fromkeys(info, info)
                starts = {**info.get("starts", {}), **starts}
        return Floor(changes=max(before.changes, openable), rows=max(before.rows, rows), facts=facts, starts=starts)

    def _remove(self, rows: int, changes: int, live: Mapping[str, int], log: Sequence[tuple[int, str]]) -> Trimmed:
        files, names = self._replaced(rows, changes, live, log)
        removed = [size for path, size in files.items() if _unlinked(path)]
        commits = [name for name in names if _unlinked(self._root / "_delta_log" / name) and name.endswith(".json")]
        return Trimmed(files=len(removed), bytes=sum(removed), commits=len(commits))

    def _replaced(
        self, rows: int, changes: int, live: Mapping[str, int], log: Sequence[tuple[int, str]]
    ) -> tuple[dict[Path, int], list[str]]:
        """Returns the files that go, with their bytes, and those of the log; they are not returned again."""
        feeds = {path for commit in self._seen if commit.version >= changes for path in commit.also_feed}
        for place, commit in enumerate(self._seen):
            if self._removed_to < commit.version <= rows:
                self._kept |= commit.replaced
                self._seen[place] = replace(commit, replaced={})
        doomed = {path: size for path, size in self._kept.items() if path not in live and path not in feeds}
        self._kept = {path: size for path, size in self._kept.items() if path in feeds}
        self._removed_to = max(self._removed_to, rows)
        while self._seen and self._seen[0].version < changes:
            doomed |= dict.fromkeys(self._seen.popleft().feed, 0)
        files = {self._root / path: size for path, size in doomed.items()}
        return files, [name for version, name in log if version < changes]

    def _keep_checkpoints_small(self, table: DeltaTable) -> None:
        """Has checkpoints name replaced files for an hour; tables were made to name them for a month."""
        from deltalake.exceptions import CommitFailedError

        with suppress(CommitFailedError):  # others write it: the next trim does it
            if set_properties(table, REPLACED_IN_CHECKPOINTS):
                self._lake.write_checksum(self._name, table.version())

    def _read(self, there: Container[int], newest: int) -> None:
        """Reads the commits up to the newest that were not read yet.

        A commit that filled a hole below them, and whose writer was killed before it removed it, is none of them.
        """
        unread, first = self._seen[-1].version + 1 if self._seen else 0, newest + 1
        while first > unread and first - 1 in there:
            first -= 1
        for version in range(first, newest + 1):
            file = self._root / "_delta_log" / f"{version:020d}.json"
            self._seen.append(_seen(version, file.read_bytes()))

    def _log_files(self) -> list[tuple[int, str]]:
        """Lists the files of the log, the oldest first, so that one that is killed leaves no hole."""
        names = (file.name for file in (self._root / "_delta_log").iterdir())
        return sorted((version, name) for name in names if (version := logged_version(name)) is not None)


def set_properties(table: DeltaTable, properties: Mapping[str, str]) -> bool:
    """Gives the table these properties; returns whether it had others."""
    is_other = not properties.items() <= table.metadata().configuration.items()
    if is_other:
        table.alter.set_table_properties(dict(properties))
    return is_other


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _File(msgspec.Struct):
    path: str
    size: int | None = None
    dataChange: bool = True


class _Info(msgspec.Struct):
    timestamp: int = 0
    userMetadata: str | None = None


class _Action(msgspec.Struct):
    add: _File | None = None
    remove: _File | None = None
    cdc: _File | None = None
    commitInfo: _Info | None = None


_decode = msgspec.json.Decoder(_Action).decode


def _seen(version: int, text: bytes) -> Seen:
    actions = [_decode(line) for line in text.splitlines() if line.strip()]
    info = next((action.commitInfo for action in actions if action.commitInfo), _Info())
    feed = [unquote(action.cdc.path) for action in actions if action.cdc]
    removed = [action.remove for action in actions if action.remove]
    changed = [*(action.add for action in actions if action.add), *removed]
    return Seen(
        version=version,
        at_ms=info.timestamp,
        said=info.userMetadata,
        replaced={unquote(file.path): file.size or 0 for file in removed},
        feed=feed,
        also_feed=[] if feed else [unquote(file.path) for file in changed if file.dataChange],
    )


def _files_of(table: DeltaTable) -> Iterable[tuple[str, int]]:
    files = pa.table(table.get_add_actions(flatten=True))
    return zip(map(unquote, files["path"].to_pylist()), files["size_bytes"].to_pylist(), strict=True)


def _unlinked(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True

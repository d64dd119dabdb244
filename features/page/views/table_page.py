"""The page of a table: whether it can be trusted, what late data changed in it, where its rows come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from twofold.features.page.platform_status import PlatformStatus
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.text.printable import shown_duration
from twofold.status.late_cost import Correction, LateCost, corrections_of, late_cost
from twofold.status.parts.snapshot import TableState
from twofold.status.table_health import Health

WEEKS = 5
MOST_CORRECTIONS, MANY_CORRECTIONS, MOST_COMMITS = 20, 1_000, 60
HOUR_MS = 3_600_000
DELAYS_MS = tuple(HOUR_MS * hours for hours in (1, 2, 3, 6, 12, 24, 48, 168, 720))


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """The content of the page of a table.

    Attributes:
        corrections: the newest ones first; of `WEEKS` weeks.
        commits: the newest versions, oldest first.
        delays: delay in words, and the rows that a stream which waits for so long would still have left wrong.
    """

    health: Health
    cost: LateCost
    corrections: Sequence[Correction]
    commits: Sequence[LoggedCommit]
    delays: Sequence[tuple[str, int]]


def table_page(platform: PlatformStatus, lake: Lake, name: str) -> TablePage | None:
    """Returns the facts of a table, None if the snapshot does not have it."""
    health = platform.healths.get(name)
    if health is None or not isinstance(health.state, TableState):
        return None
    version = health.state.version
    today = platform.now.at.replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    corrections = corrections_of(lake, name, since, platform.now.at)
    cost = late_cost(corrections, since, platform.now.at)
    commits: list[LoggedCommit] = []
    if version is not None:
        commits = list(lake.commits(name, max(-1, version - MOST_COMMITS), version, kept=True))
    return TablePage(
        health=health,
        cost=cost,
        corrections=corrections[::-1],
        commits=commits,
        delays=_delays(cost, health.entry.watermark_ms or 0),
    )


def _delays(cost: LateCost, own_ms: int) -> list[tuple[str, int]]:
    """Returns the delay of the table and longer ones, up to the first that leaves the fewest rows wrong."""
    delays_ms = [own_ms, *(delay for delay in DELAYS_MS if delay > own_ms)]
    points = [(_hours(delay), cost.still_wrong(delay)) for delay in delays_ms]
    least = min(count for _, count in points)
    last = next(n for n, (_, count) in enumerate(points) if count == least)
    return points[: max(last + 1, 3)]


def _hours(delay_ms: int) -> str:
    """Formats a delay as a scale has it."""
    if delay_ms % HOUR_MS or not delay_ms:
        return shown_duration(delay_ms / 1_000)
    hours = delay_ms // HOUR_MS
    return f"{hours // 24} d" if hours % 24 == 0 else f"{hours} h"

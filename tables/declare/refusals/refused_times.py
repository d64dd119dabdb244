"""Refusals of the parameters that say when rows are, and when they close."""

from __future__ import annotations

from twofold.tables.declare.refusals.declaration_refusal import DeclarationRefusal
from twofold_algebra.refusal import Subject

NEAR = DeclarationRefusal(
    name="depends-within-that-is-too-short",
    subject=Subject.TIMES,
    shape="depends_within={given!r} contradicts {function}",
    why="in it rows depend on rows that are {distance} away",
    instead="Leave depends_within out, or write depends_within={distance!r}.",
)
OTHER_TIME = DeclarationRefusal(
    name="depends-within-of-another-time",
    subject=Subject.TIMES,
    shape="depends_within={given!r} contradicts {function}",
    why="it makes windows by {column}, not by the event time of what it reads",
    instead="Leave depends_within out, or declare {column} as the topic's event_time.",
)
NEAR_WHAT = DeclarationRefusal(
    name="depends-within-without-event-time",
    subject=Subject.TIMES,
    shape="depends_within needs event_time",
    why="the distance is measured from it",
    instead='Write event_time="COLUMN", the column that dates a row.',
)
CLOSES_WHEN = DeclarationRefusal(
    name="closes-at-without-event-time",
    subject=Subject.TIMES,
    shape="closes_at needs event_time and depends_within",
    why="by them reconcile knows which rows a late record can change",
    instead="Write both, or leave closes_at out.",
)
ENDS_WHEN = DeclarationRefusal(
    name="ends-at-without-event-time",
    subject=Subject.TIMES,
    shape="ends_at needs event_time and depends_within, and no closes_at",
    why="a change less than depends_within from the time between event_time and ends_at recomputes the row",
    instead="Write event_time and depends_within, which for sessions is their gap, and leave closes_at out.",
)
CLOSES_LATER = DeclarationRefusal(
    name="sequence-by-that-does-not-start-with-event-time",
    subject=Subject.TIMES,
    shape="With closes_at, sequence_by must start with event_time {time!r}; it starts with {first!r}",
    why="of several rows of one key the later one must also be the one that closes later",
    instead="Write sequence_by=[{time!r}, {first!r}].",
)
NEVER_CLOSES = DeclarationRefusal(
    name="closes-at-of-a-table-of-tables",
    subject=Subject.TIMES,
    shape="closes_at of a table that reads tables",
    why="their rows can be corrected, so that none is ever final",
    instead="Leave closes_at out: the rows follow every correction.",
)

"""Refusals of columns for their types, which the analysis of Spark finds."""

from __future__ import annotations

from twofold.tables.declare.refusals.declaration_refusal import DeclarationRefusal
from twofold_algebra.refusal import Subject

UNSTORED = DeclarationRefusal(
    name="type-that-delta-has-not",
    subject=Subject.TYPES,
    shape="{column} is or holds a value of the type {type}",
    why="Delta tables do not have it",
    instead="Convert it: {conversion}.",
)
COLLATED = DeclarationRefusal(
    name="column-with-a-collation",
    subject=Subject.TYPES,
    shape="{column} is of the type {type}",
    why="by a collation Spark alone takes different texts for one",
    instead='Return it without: F.collate({column!r}, "UTF8_BINARY").',
)
UNTIMELY = DeclarationRefusal(
    name="time-of-another-type",
    subject=Subject.TYPES,
    shape="{parameter}={column!r} is a {type}",
    why="expected a {expected}",
    instead="Name a column that says when, such as F.to_timestamp({column!r}, FORMAT).",
)
UNORDERED = DeclarationRefusal(
    name="map-in-a-key",
    subject=Subject.TYPES,
    shape="{what} holds a map",
    why="a map has no order",
    instead="Return it as text, F.to_json({column!r}), or as entries, F.sort_array(F.map_entries({column!r})).",
)

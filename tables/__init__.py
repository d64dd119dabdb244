"""Declarations of topics and tables; from here a declaration imports all that it needs."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from twofold.infra.project.feature import words
from twofold.quality.rules import between, expression, fresh_within, matches, not_null, one_of, unique
from twofold.tables.declare.functions.bloom_filters import may_hold, members, members_of_all
from twofold.tables.declare.functions.event_patterns import RECORD, Event, Match, find_matches, times_then
from twofold.tables.declare.record_fields import field, header, key
from twofold.tables.declare.spark_names import SparkName, sql
from twofold.tables.declare.table import table
from twofold.tables.declare.topic import DeviceClock, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F

    from twofold.features.words import *  # noqa: F403
else:
    DataFrame, F, Window = SparkName("DataFrame"), SparkName("functions"), SparkName("Window")

__all__ = [
    "RECORD",
    "DataFrame",
    "DeviceClock",
    "Event",
    "F",
    "Match",
    "Topic",
    "Window",
    "between",
    "expression",
    "field",
    "find_matches",
    "fresh_within",
    "header",
    "key",
    "matches",
    "may_hold",
    "members",
    "members_of_all",
    "not_null",
    "one_of",
    "sql",
    "table",
    "times_then",
    "unique",
]
_OF_FEATURES = words()
__all__ += list(_OF_FEATURES)


def __getattr__(name: str) -> Any:
    """Loads a word of a feature when it is first used: features are above declarations."""
    if name not in _OF_FEATURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_OF_FEATURES[name])

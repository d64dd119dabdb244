"""Declarations of topics and tables; from here a declaration imports all that it needs."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from twofold.infra.project.feature import words
from twofold.quality.rules import between, expression, fresh_within, matches, not_null, one_of, unique
from twofold.tables.declare.functions.bloom_filters import may_hold, members, members_of_all
from twofold.tables.declare.functions.captured_rows import history, latest_rows, latest_values
from twofold.tables.declare.functions.event_patterns import RECORD, Event, Match, find_matches, times_then
from twofold.tables.declare.outputs.postgres_output import to_postgres
from twofold.tables.declare.outputs.topic_output import to_topic
from twofold.tables.declare.outputs.webhook_output import to_webhook
from twofold.tables.declare.personal import domain_of, person, personal, start_of, token_of, year_group
from twofold.tables.declare.record_fields import field, header, key
from twofold.tables.declare.sources.captured_topic import changes_of, outbox_of
from twofold.tables.declare.sources.webhook_topic import from_webhook
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
    "changes_of",
    "domain_of",
    "expression",
    "field",
    "find_matches",
    "fresh_within",
    "from_webhook",
    "header",
    "history",
    "key",
    "latest_rows",
    "latest_values",
    "matches",
    "may_hold",
    "members",
    "members_of_all",
    "not_null",
    "one_of",
    "outbox_of",
    "person",
    "personal",
    "sql",
    "start_of",
    "table",
    "times_then",
    "to_postgres",
    "to_topic",
    "to_webhook",
    "token_of",
    "unique",
    "year_group",
]
_OF_FEATURES = words()
__all__ += list(_OF_FEATURES)


def __getattr__(name: str) -> Any:
    """Loads a word of a feature when it is first used: features are above declarations."""
    if name not in _OF_FEATURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_OF_FEATURES[name])

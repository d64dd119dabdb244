"""What exists and how its rows are computed; from here a declaration imports all that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import between, expression, fresh_within, matches, not_null, one_of, unique
from tables.declaration import DeviceClock, Topic, table
from tables.spark_names import SparkName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F
else:
    DataFrame, F, Window = SparkName("DataFrame"), SparkName("functions"), SparkName("Window")

__all__ = [
    "DataFrame",
    "DeviceClock",
    "F",
    "Topic",
    "Window",
    "between",
    "expression",
    "fresh_within",
    "matches",
    "not_null",
    "one_of",
    "table",
    "unique",
]

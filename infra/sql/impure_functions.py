"""Lists the functions of Spark whose result depends on the time, the run or the place of a call."""

from __future__ import annotations

import re
from collections.abc import Sized


def names(text: str) -> frozenset[str]:
    """Splits a text into words."""
    return frozenset(text.split())


BARE = names(
    """
    current_catalog current_database current_date current_schema current_time current_timestamp current_timezone
    current_user localtimestamp session_user
    """
)
"""Functions that are called without brackets, too."""
IMPURE = BARE | names(
    """
    aes_encrypt collations curdate current_path input_file_block_length input_file_block_start input_file_name
    java_method monotonically_increasing_id now python_worker_logs rand randn random randstr reflect shuffle
    spark_partition_id table_changes table_changes_by_path try_reflect uniform user uuid version
    """
)
"""Functions that are impure whatever their arguments: with a seed, too, rows in another order get other numbers."""

_UNREAD = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`(?!\s*\()|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALL = re.compile(
    rf"\b(?:({'|'.join(BARE)})\b|({'|'.join(IMPURE)})`?\s*\(|(unix_timestamp)`?\s*\(\s*\))", re.IGNORECASE
)


def is_impure(function: str, arguments: Sized) -> bool:
    """Whether the result of a call depends on its time, run or place."""
    return function in IMPURE or (function == "unix_timestamp" and not len(arguments))


def find_impure(sql: str) -> str | None:
    """Returns the first impure function that SQL calls, or None; literals, quoted names and comments are ignored."""
    found = _CALL.search(code_of(sql))
    return found and found[found.lastindex or 0].lower()


def code_of(sql: str) -> str:
    """Replaces the literals, quoted names and comments of SQL by spaces."""
    return _UNREAD.sub(lambda found: " " * len(found[0]), sql)

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

_COMMENT = r"--[^\n]*|/\*.*?\*/"
_GAP = rf"(?:\s|{_COMMENT})*"
_CALL = rf"(?<!`)(?:{'|'.join(BARE)})\b|(?:{'|'.join(IMPURE)})(?=`?{_GAP}\()|unix_timestamp(?=`?{_GAP}\({_GAP}\))"
_OF_OTHER_ROWS = r"\b(?:over|select)\b"
_OF_THE_CLOCK = rf"\b(?:date|timestamp\w*){_GAP}['\"]\s*(?:now|today|tomorrow|yesterday)\b"
_UNREAD = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`"
_PART = re.compile(
    rf"`?\b(?P<impure>{_CALL})|(?P<undecided>{_OF_OTHER_ROWS}|{_OF_THE_CLOCK})|{_UNREAD}|{_COMMENT}",
    re.IGNORECASE | re.DOTALL,
)
"""Consumes literals, quoted names and comments, so that nothing is found in them."""


def is_impure(function: str, arguments: Sized) -> bool:
    """Whether the result of a call depends on its time, run or place."""
    return function in IMPURE or (function == "unix_timestamp" and not len(arguments))


def find_impure(sql: str) -> str | None:
    """Returns the first impure function that SQL calls, or None; literals, quoted names and comments are ignored."""
    return next((part["impure"].lower() for part in _PART.finditer(sql) if part["impure"]), None)


def find_undecided(sql: str) -> str | None:
    """Returns the first part of a condition that its row does not decide: clock, chance, place, other rows; or None."""
    return next((part[part.lastgroup].lower() for part in _PART.finditer(sql) if part.lastgroup), None)

"""A difference of rows as people read it: how many, when, where it is concentrated, which columns, examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.spark.rows import Rows


def summarise(changed: Rows, key: Sequence[str], event_time: str | None, rows_before: int) -> dict[str, Any]:
    return {}

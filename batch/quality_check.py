"""Checks the rules of tables on their current rows and stores the result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twofold.tables.declare.registry import load
from twofold.tables.refresh.open_platform import opened

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings
    from twofold.quality.check_result import Verdict


def quality(settings: Settings, tables: Sequence[str] = ()) -> list[Verdict]:
    """Checks every row of tables against their declared rules.

    Each table is read at one Delta version, in one pass; a Great Expectations suite of the same rules stores its
    results and its Data Docs under `<home>/quality`.

    Args:
        tables: full or bare names; none: every table.

    Returns:
        One verdict per table, in dependency order; failing rows raise no error.

    Raises:
        BadArgument: an unknown table; nothing was read.
        BadDeclaration: a rule does not fit its table.
    """
    from twofold.quality.gate import Subject, gate

    chosen = load().chosen(tables)
    with opened(settings, "quality", [table.domain for table in chosen]) as p:
        spark = p.spark
        subjects = (
            Subject(
                df=p.lake.frame(spark, table.full_name, p.lake.version(table.full_name)),
                table=table.full_name,
                rules=table.checks,
                key=table.primary_key,
            )
            for table in chosen
        )
        return gate(subjects, settings, datetime.now(UTC))

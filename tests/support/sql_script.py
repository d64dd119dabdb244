"""Statements of a script, each run by itself: without BEGIN and COMMIT each one commits."""

from __future__ import annotations

import re
from typing import Any

from twofold.infra.postgres.database_connection import connected
from twofold.infra.project.settings import Settings

_STATEMENT = re.compile(r"""(?:[^;'"$]|'[^']*'|"[^"]*"|\$(\w*)\$.*?\$\1\$)+""", re.DOTALL)


def statements(script: str) -> list[str]:
    """Returns the statements between semicolons that are not quoted."""
    return [text for match in _STATEMENT.finditer(script) if (text := match[0].strip())]


def run_script(settings: Settings, script: str, *, timeout_s: float = 30) -> list[tuple[Any, ...]]:
    """Runs the statements on one connection and returns the rows of all of them."""
    rows: list[tuple[Any, ...]] = []
    with connected(settings, timeout_s=timeout_s) as connection:
        for statement in statements(script):
            cursor = connection.execute(statement)
            rows += cursor.fetchall() if cursor.description else []
    return rows

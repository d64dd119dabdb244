"""The DAGs of the documentation that wait for a table."""

from __future__ import annotations

from tests import ROOT

PAGE = ROOT / "docs" / "how-to" / "wait-for-a-table.md"


def hourly_and_daily_report() -> list[str]:
    """The code of the two, as the page has it."""
    return [part.partition("```")[0] for part in PAGE.read_text("utf-8").split("```python\n")[1:]]

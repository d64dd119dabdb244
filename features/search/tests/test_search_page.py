"""The declarations of the page on searches: they load, and recompute by what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests import ROOT
from tests.tables.declared import written
from twofold.tables.declare.registry import load

PAGE = (ROOT / "docs/how-to/search-a-stream.md").read_text("utf-8")
SHOP = ROOT / "demo" / "tables" / "shop"
CHANGES = """\
'''Changes of saved searches.'''
from twofold import changes_of

TOPIC = changes_of(
    "public.searches",
    columns={"search_id": "string", "customer": "string", "query": "string"},
    primary_key=["search_id"],
)
"""


def test_each_table_recomputes_by_the_text_and_the_search(tmp_path: Path) -> None:
    shown = re.findall(r'```python\n(""".*?"""  # (\w+)\.py\n.*?)```', PAGE, re.DOTALL)
    files = {f"board/{name}.py": text for text, name in shown}
    for name in ("post_events", "posts", "saved_searches"):
        files[f"board/{name}.py"] = (SHOP / f"{name}.py").read_text("utf-8")
    registry = load(written(tmp_path, {**files, "board/search_changes.py": CHANGES})).require_sound()
    found = {name: list(registry.find_table(name).recompute_by) for _, name in shown}
    assert found == {
        "saved_search_terms": ["search_id"],
        "matching_searches": ["post_id", "search_id"],
        "search_terms_then": ["search_id"],
        "matches_then": ["post_id", "search_id"],
    }

"""The star schema of the page on kinds of tables: what recomputes what is inferred as the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests import ROOT
from tests.docs.test_docs import rows_of
from tests.tables.declared import written
from twofold.tables.declare.registry import load

PAGE = (ROOT / "docs/how-to/kinds-of-tables.md").read_text("utf-8")
FILES = {name: text for text, name in re.findall(r'```python\n(""".*?"""  # (\w+)\.py\n.*?)```', PAGE, re.DOTALL)}
CHANGES = """\
'''Changes of a table.'''
from twofold import changes_of

TOPIC = changes_of("public.{name}", columns={columns}, primary_key={key})
"""
COPY = """\
'''A copy of a table.'''
from twofold import latest_rows, table


@table(primary_key={key}, recompute_by={key})
def {name}({name}_changes):
    return latest_rows({name}_changes, key={key}, columns={others})
"""
CAPTURED = [
    ({"orderkey": "long", "linenumber": "int", "cents": "long"}, "lineitem", ["orderkey", "linenumber"]),
    ({"orderkey": "long", "custkey": "long", "ordered_on": "date"}, "orders", ["orderkey"]),
    ({"custkey": "long", "nationkey": "int"}, "customer", ["custkey"]),
    ({"nationkey": "int", "nation": "string"}, "nation", ["nationkey"]),
]


def test_each_step_recomputes_by_the_columns_that_the_page_says(tmp_path: Path) -> None:
    files = {f"star/{name}.py": text for name, text in FILES.items()}
    for columns, name, key in CAPTURED:
        files[f"star/{name}_changes.py"] = CHANGES.format(name=name, columns=columns, key=key)
        files[f"star/{name}.py"] = COPY.format(name=name, key=key, others=[c for c in columns if c not in key])
    registry = load(written(tmp_path, files)).require_sound()
    said = {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in rows_of(PAGE, "table | `recompute_by`")}
    assert said.keys() == FILES.keys()
    assert {name: list(registry.find_table(name).recompute_by) for name in FILES} == said

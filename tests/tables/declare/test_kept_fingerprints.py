"""The fingerprints of the demo stay as homes have them: `python -m tests.tables.declare.test_kept_fingerprints`.

The command writes `kept_fingerprints.json` as the code is now.
"""

from __future__ import annotations

import json
from pathlib import Path

from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.decoding_fingerprint import decoding

KEPT = Path(__file__).with_name("kept_fingerprints.json")
CHANGED = """
Homes have rows of the other code: each of these tables and topics asks for a plan after an upgrade.
If the change is no change of what the code does, write it so that its fingerprint stays: see _THEN in
tables/declare/code_fingerprint.py, and _SAID_BEFORE in tables/refresh/events/decoding_fingerprint.py.
If it is one, CHANGELOG.md says that the release asks for a plan of these; then write the file again:
python -m tests.tables.declare.test_kept_fingerprints
"""


def fingerprints() -> dict[str, str]:
    registry = load().require_sound()
    tables = {f"table {name}": fingerprint(table) for name, table in sorted(registry.tables.items())}
    return tables | {f"topic {name}": decoding(topic) for name, topic in sorted(registry.topics.items())}


def test_tables_and_decodings_have_the_fingerprints_that_homes_have() -> None:
    kept, now = json.loads(KEPT.read_text("utf-8")), fingerprints()
    assert len(now) > 45
    assert {name for name, _ in kept.items() ^ now.items()} == set(), CHANGED


if __name__ == "__main__":
    KEPT.write_text(json.dumps(fingerprints(), indent=2) + "\n", "utf-8")

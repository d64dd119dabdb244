"""The page of a row: what wrote it, in order, and the life of one of its values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from twofold.features.page.life_chart import life_chart, watermark_chart
from twofold.features.page.row_story import ask
from twofold.infra import COMMAND
from twofold.infra.text.printable import harmless, shown_duration
from twofold.status.catalog import Entry
from twofold.status.window_life import history_from, lives_of, marks_of
from twofold.status.words import CAUSES, CHANGES

PREFIX = "k."


def row_page(entry: Entry, query: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the template says of a row.

    Args:
        query: `k.COLUMN` -> value of each column of the key; `column`: whose life is drawn.
    """
    key = {name.removeprefix(PREFIX): value for name, value in query.items() if name.startswith(PREFIX)}
    pairs = [f"{name}={value}" for name, value in key.items()]
    story = ask(entry.name, pairs)
    command = f"{COMMAND} why {entry.name} {shlex.join(map(harmless, pairs))}"
    facts: dict[str, Any] = {"name": entry.name, "key": key, "story": story, "command": command}
    facts |= {"pairs": {f"{PREFIX}{name}": value for name, value in key.items()}}
    if story.document is None:
        return {**facts, "life": None}
    history = history_from(story.document)
    lives = lives_of(history)
    life = next((life for life in lives if life.column == query.get("column")), lives[0] if lives else None)
    marks, lasted = marks_of(history), ""
    if life and life.streamed and life.corrected:
        since = marks.closed_at or life.streamed[-1].at
        lasted = shown_duration((life.corrected[-1].at - since).total_seconds())
    return {
        **facts,
        "history": history,
        "lives": lives,
        "life": life,
        "lasted": lasted,
        "marks": marks,
        "drawings": [life_chart(life, marks), watermark_chart(life, marks)] if life else [],
        "causes": CAUSES,
        "changes": CHANGES,
        "columns_of": lambda version: [
            column for column in {**(version.before or {}), **(version.after or {})} if column not in history.key
        ],
    }

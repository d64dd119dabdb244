"""Symptoms of topics with columns of persons."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.status.parts.snapshot import Snapshot
from twofold.status.symptoms.symptom import Case, kind


@kind(
    "degraded",
    "Let only producers that encrypt write to it; `{twofold} send {subject} --quarantined` sends its records again.",
    "send {subject} --quarantined",
)
def plain_text(now: Snapshot) -> Iterator[Case]:
    """Finds topics to which another producer wrote values of persons in the clear, in the last 7 days."""
    return (Case(topic, text) for topic, text in now.plain_text.items())

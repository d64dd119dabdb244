"""A symptom: something that is wrong, with what helps; and its kind, a function that finds it in a snapshot."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from twofold.infra import COMMAND
from twofold.status.parts.snapshot import Snapshot

Severity = Literal["failed", "degraded", "unknown"]
SEVERITIES: tuple[Severity, ...] = ("failed", "degraded", "unknown")
"""The worst first."""


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """Something that is wrong; it is the same one as long as its kind and subject are.

    Attributes:
        subject: a topic, table, query, process or part of the platform; None: all of it.
        text, hint, command: what is wrong, with numbers that change; what to do; what does so, or shows more.
        restarts: the program whose restart may help; empty: none.
        watched: the watch of the stream that it concerns fails for it.
        since: when it was seen first, since it was last seen to be right; None: not known.
    """

    kind: str
    subject: str | None
    severity: Severity = field(compare=False)
    text: str = field(compare=False)
    hint: str = field(compare=False)
    command: str = field(compare=False)
    restarts: str = field(compare=False)
    watched: bool = field(compare=False)
    since: datetime | None = field(compare=False)


class Case(NamedTuple):
    """A finding of a kind about a subject; several about one are one symptom."""

    subject: str | None
    text: str
    hint: str = ""
    restarts: str = ""


Find = Callable[[Snapshot], Iterable[Case]]


@dataclass(frozen=True)
class SymptomKind:
    """A kind of symptom; braces in its texts are the `subject`, its `domain`, and `twofold` as it is called here.

    Attributes:
        find: finds its cases; the docstring says what that is.
        remedy: what to do, if a case does not say it.
        command: the words of the command that helps.
    """

    find: Find
    severity: Severity
    remedy: str
    command: str
    watched: bool

    @property
    def name(self) -> str:
        """The name in `docs/reference/symptoms.md`."""
        return self.find.__name__.replace("_", "-")

    @property
    def meaning(self) -> str:
        """The docstring of the function, without its verb."""
        return " ".join((inspect.getdoc(self.find) or "").split()).partition(" ")[2]

    def symptoms(self, now: Snapshot) -> Iterator[Symptom]:
        """Finds its symptoms in a snapshot, one for each subject."""
        cases = defaultdict[str | None, list[Case]](list)
        for case in self.find(now):
            cases[case.subject].append(case)
        for subject, about in cases.items():
            names = {"twofold": COMMAND, "subject": subject, "domain": (subject or "").partition(".")[0]}
            yield Symptom(
                kind=self.name,
                subject=subject,
                severity=self.severity,
                text="; ".join(case.text for case in about),
                hint=about[0].hint or self.remedy.format(**names),
                command=f"{COMMAND} {self.command.format(**names)}",
                restarts=about[0].restarts,
                watched=self.watched,
                since=now.since.get(f"{self.name} {subject}"),
            )


def kind(severity: Severity, remedy: str, command: str, *, watched: bool = False) -> Callable[[Find], SymptomKind]:
    """Makes a function that finds cases the kind of symptom of its name."""
    return lambda find: SymptomKind(find, severity, remedy, command, watched)

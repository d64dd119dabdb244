"""Refusals: one value gives the text of an error and its section of `docs/reference/refusals.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Subject(StrEnum):
    """The headings of the page, in its order."""

    ORDER = "Order of rows"
    CLOCK = "Clock, chance and other places"
    STREAM = "What a stream cannot do"
    KEYS = "Keys and scopes"
    TIMES = "Times of rows"
    TYPES = "Types"
    NAMES = "Names"


Identities = Mapping[str, Sequence[str]]
"""Input -> the columns that identify a row of it."""
Find = Callable[..., Iterator[Mapping[str, str]]]
"""Finds in a relation, given `Identities`, what is refused: the details of each place."""


@dataclass(frozen=True)
class PlanMistake:
    """One mistake of a function.

    Attributes:
        refusal: the name of the refusal whose section says more; empty: its error says all.
        only_on_stream: it is one only if a stream keeps open rows in its state.
        runs: the function runs all the same, and may give one result.
    """

    message: str
    hint: str
    refusal: str = ""
    only_on_stream: bool = False
    runs: bool = True


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A shape of declaration that is refused; an error fills in the names in braces.

    Attributes:
        name: of its section of the page.
        shape: what is refused, in one line.
        why: the reason, without a full stop.
        instead: what to write.
        runs: the function of such a declaration runs all the same, and may give one result.
    """

    name: str
    subject: Subject
    shape: str
    why: str
    instead: str
    runs: bool = False

    def mistake(self, **details: object) -> PlanMistake:
        """Returns the mistake of a function, as its error says it."""
        is_name = self.subject is Subject.NAMES
        return PlanMistake(
            message=f"{self.shape}: {self.why}.".format(**details),
            hint=self.instead.format(**details),
            refusal="" if is_name else self.name,
            only_on_stream=self.subject is Subject.STREAM,
            runs=not is_name,
        )

    def found_by(self, find: Find) -> Find:
        """Makes a function the rule that finds it."""
        RULES[self] = find
        return find


RULES: dict[Refusal, Find] = {}
"""The rules for what a table's function does."""

"""Queries that are stored and evaluated on each text: words, phrases, numbers and ranges, with AND, OR and NOT."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, repeat
from typing import Protocol

from twofold.features.search.analyzer import words
from twofold.infra.errors import BadArgument

EVERY = "*"
"""The anchor that each text has."""
DEEPEST = 100
"""Parentheses and NOTs within each other, at most."""
_PART = re.compile(r'\s*(?:(?P<sign>[()])|"(?P<phrase>[^"]*)(?P<end>"?)|(?P<word>[^\s()"]+))')
_OF_NUMBER = re.compile(r"([A-Za-z_]\w*):(.*)", re.ASCII)
_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"(?P<low>{_NUMBER})?(?P<dots>\.\.)?(?P<high>(?<=\.\.){_NUMBER})?", re.ASCII)
_OPERATORS = ("AND", "OR", "NOT")

Numbers = Mapping[str, int | float | Decimal | None]


class Query(Protocol):
    """A part of a stored query."""

    def is_met(self, text: str, numbers: Numbers) -> bool:
        """Whether a text of `searchable`, with the numbers of its row, meets the query."""

    def anchors(self, common: Collection[str]) -> frozenset[str]:
        """Returns words, or `EVERY`: each text that meets the query has at least one of them.

        Args:
            common: words that are taken only if there is no other choice.
        """


@dataclass(frozen=True)
class Phrase:
    """Words in a row, as `searchable` writes them; one word is a phrase, too."""

    words: str

    def is_met(self, text: str, numbers: Numbers) -> bool:
        return self.words in text

    def anchors(self, common: Collection[str]) -> frozenset[str]:
        return min((frozenset([word]) for word in self.words.split()), key=lambda found: _frequency(found, common))


@dataclass(frozen=True)
class Within:
    """A number between two bounds, both included; none is for null and NaN."""

    column: str
    low: Decimal | None
    high: Decimal | None

    def is_met(self, text: str, numbers: Numbers) -> bool:
        value = numbers.get(self.column)
        if value is None or value != value:
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def anchors(self, common: Collection[str]) -> frozenset[str]:
        return frozenset([EVERY])


@dataclass(frozen=True)
class Not:
    """A query that is met by what does not meet another one."""

    query: Query

    def is_met(self, text: str, numbers: Numbers) -> bool:
        return not self.query.is_met(text, numbers)

    def anchors(self, common: Collection[str]) -> frozenset[str]:
        return frozenset([EVERY])


@dataclass(frozen=True)
class AllOf:
    """Several queries that must all be met."""

    queries: tuple[Query, ...]

    def is_met(self, text: str, numbers: Numbers) -> bool:
        return all(query.is_met(text, numbers) for query in self.queries)

    def anchors(self, common: Collection[str]) -> frozenset[str]:
        return min((query.anchors(common) for query in self.queries), key=lambda found: _frequency(found, common))


@dataclass(frozen=True)
class AnyOf:
    """Several queries; one of them must be met."""

    queries: tuple[Query, ...]

    def is_met(self, text: str, numbers: Numbers) -> bool:
        return any(query.is_met(text, numbers) for query in self.queries)

    def anchors(self, common: Collection[str]) -> frozenset[str]:
        found = frozenset[str]().union(*(query.anchors(common) for query in self.queries))
        return frozenset([EVERY]) if EVERY in found else found


def searchable(texts: Iterable[str | None], language: str) -> str:
    """Returns the words of a row's texts, each word between spaces and each text on a line; null has no words."""
    return "\n".join(_in_a_row(words(text, language)) for text in texts if text is not None)


def parse(written: str, language: str, numbers: Collection[str] = ()) -> Query:
    """Parses a stored query.

    Args:
        numbers: the columns that a range may name.

    Raises:
        BadArgument: its message begins with the position, from 1, at which the query cannot be read.
    """
    return _Parser(written, language, numbers).query()


def _in_a_row(found: Sequence[str]) -> str:
    """Writes words so that a phrase is within a text if and only if its words are there in a row."""
    return f" {' '.join(found)} "


def _frequency(anchors: frozenset[str], common: Collection[str]) -> tuple[bool, bool, int, list[str]]:
    """Orders anchors by how many texts may have them, fewest first: by their shortest word, as long ones are rare."""
    return EVERY in anchors, any(one in common for one in anchors), -min(map(len, anchors)), sorted(anchors)


@dataclass(frozen=True)
class _Part:
    """A sign, an operator, a word or a phrase, with the position at which it begins."""

    kind: str
    text: str
    position: int


class _Parser:
    """Reads the parts of a query from left to right: OR binds less than AND, AND less than NOT."""

    def __init__(self, written: str, language: str, numbers: Collection[str]) -> None:
        self._language, self._numbers = language, numbers
        self._parts = chain(_parts(written), repeat(_Part("end", "", len(written) + 1)))
        self._next = next(self._parts)
        self._depth = 0

    def query(self) -> Query:
        found = self._any()
        if self._next.kind != "end":
            raise _mistake(self._next, "expected the end, AND or OR")
        return found

    def _take(self) -> _Part:
        part, self._next = self._next, next(self._parts)
        return part

    def _any(self) -> Query:
        found = [self._all()]
        while self._next.kind == "OR":
            self._take()
            found.append(self._all())
        return found[0] if len(found) == 1 else AnyOf(tuple(found))

    def _all(self) -> Query:
        """Reads what AND links; it may be left out."""
        found = [self._one()]
        while self._next.kind in ("AND", "NOT", "(", "phrase", "word"):
            if self._next.kind == "AND":
                self._take()
            found.append(self._one())
        return found[0] if len(found) == 1 else AllOf(tuple(found))

    def _one(self) -> Query:
        part = self._take()
        self._depth += 1
        if self._depth > DEEPEST:
            raise _mistake(part, f"expected at most {DEEPEST} parentheses and NOTs within each other")
        try:
            match part.kind:
                case "NOT":
                    return Not(self._one())
                case "(":
                    found = self._any()
                    if self._next.kind != ")":
                        raise _mistake(self._next, f"expected `)` for the `(` at position {part.position}")
                    self._take()
                    return found
                case "phrase":
                    return self._phrase(part)
                case "word":
                    named = _OF_NUMBER.fullmatch(part.text)
                    return self._within(part, *named.groups()) if named else self._phrase(part)
        finally:
            self._depth -= 1
        raise _mistake(part, "expected a word, a phrase, a range, NOT or `(`")

    def _phrase(self, part: _Part) -> Phrase:
        """Reads a phrase; a word with a sign within is one, too: `red-brown` is "red brown"."""
        found = words(part.text, self._language)
        if not found:
            raise _mistake(part, "expected a letter or a digit")
        return Phrase(_in_a_row(found))

    def _within(self, part: _Part, column: str, bounds: str) -> Within:
        if column not in self._numbers:
            known = f"the numbers are {', '.join(self._numbers)}" if self._numbers else "there are no numbers"
            raise _mistake(part, f'expected no `{column}:`, since {known}; write "..." around text with a colon')
        found = _RANGE.fullmatch(bounds)
        if not found or not (found["low"] or found["high"]):
            raise _mistake(part, f"expected {column}:5, {column}:5..10, {column}:5.. or {column}:..10")
        low, high = (Decimal(found[name]) if found[name] else None for name in ("low", "high"))
        if low is not None and high is not None and low > high:
            raise _mistake(part, "expected the lower bound first")
        return Within(column, low, high if found["dots"] else low)


def _parts(written: str) -> Iterator[_Part]:
    at = 0
    while found := _PART.match(written, at):
        at, kind = found.end(), found.lastgroup or ""
        kind = "phrase" if found["phrase"] is not None else kind
        text, position = found[kind], found.start(kind) + (0 if kind == "phrase" else 1)
        if kind == "phrase" and not found["end"]:
            raise BadArgument(f'position {position}: expected `"` at the end of the phrase.')
        is_sign = kind == "sign" or (text in _OPERATORS and kind == "word")
        yield _Part(text if is_sign else kind, text, position)


def _mistake(part: _Part, expected: str) -> BadArgument:
    shown = f"`{part.text[:40]}`" if part.text else "the end" if part.kind == "end" else "nothing"
    return BadArgument(f"position {part.position}: {expected}; found {shown}.")


def anchors_of(query: Query, common: Sequence[str], language: str) -> list[str]:
    """Returns the anchors of a query, in order; `common` are words as they are written."""
    return sorted(query.anchors({found for word in common for found in words(word, language)}))

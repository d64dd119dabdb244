"""Regular expressions that RE2 (Arrow), Java (Spark) and Python understand alike."""

from __future__ import annotations

import re

from twofold.infra.errors import BadDeclaration

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": r" \t\n\r\f"}
_CONTROLS = frozenset("tnrf")
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_MOST_REPEATS = 1_000  # RE2 refuses more
_HINT = "Keep to literals, [classes], groups, | and the repeats * + ? {n,m}: what Arrow, Spark and Python read alike."


def portable(regex: str) -> str:
    r"""Rewrites an expression so that all three engines accept exactly the same values.

    `\d`, `\w`, `\s` mean ASCII characters, `.` is any character but a newline.

    Raises:
        BadDeclaration: it does not compile, or holds what an engine lacks or reads differently: look-around,
            backreferences, flags, anchors, possessive repeats, nested classes, Unicode properties.
    """
    if not isinstance(regex, str) or not regex:
        raise BadDeclaration(f"The regular expression {regex!r} is not a text that can match.", hint=_HINT)
    _require_compiles(regex, regex)
    spelled = "".join(_Speller(regex).pieces())
    _require_compiles(spelled, regex)
    return spelled


def _require_compiles(spelled: str, regex: str) -> None:
    try:
        re.compile(spelled)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadDeclaration(f"The regular expression {regex!r} does not compile: {error}.", hint=_HINT) from error


class _Speller:
    """Walks an expression that Python can compile, once, from left to right."""

    def __init__(self, regex: str) -> None:
        self.regex = regex
        self.position = 0

    def pieces(self) -> list[str]:
        spelled = []
        while self.position < len(self.regex):
            spelled.append(self._piece())
        return spelled

    def _piece(self) -> str:
        here = self.regex[self.position]
        if here == "\\":
            return self._escape(in_class=False)
        if here == "[":
            return self._class()
        if here == "(":
            return self._group()
        if here in "*+?{":
            return self._repeat()
        self.position += 1
        if here in "^$":
            raise self._refused(here, "The whole value must match: leave the anchors out.")
        if here in "]}":
            raise self._refused(here, f"Write \\{here} for the character itself.")
        return r"[^\n]" if here == "." else here

    def _escape(self, *, in_class: bool) -> str:
        following = self.regex[self.position + 1]
        self.position += 2
        if following in _CLASSES:
            return _CLASSES[following] if in_class else f"[{_CLASSES[following]}]"
        if following.lower() in _CLASSES and not in_class:
            return f"[^{_CLASSES[following.lower()]}]"
        if following in _CONTROLS or (following.isascii() and not following.isalnum() and following.isprintable()):
            return f"\\{following}"
        raise self._refused(f"\\{following}")

    def _class(self) -> str:
        self.position += 1
        spelled = "["
        if self.regex[self.position] == "^":
            spelled += "^"
            self.position += 1
        first = True
        while first or self.regex[self.position] != "]":
            here = self.regex[self.position]
            if here in "[]" or self.regex[self.position : self.position + 2] in ("&&", "--", "~~", "||"):
                raise self._refused(here, f"Write \\{here} for the character itself.")
            if here == "\\":
                spelled += self._escape(in_class=True)
            else:
                spelled += "\\^" if here == "^" else here
                self.position += 1
            first = False
        self.position += 1
        return spelled + "]"

    def _group(self) -> str:
        # Captures are never read; without them RE2 may use its fastest matcher.
        if self.regex.startswith("(?:", self.position):
            self.position += 3
        elif self.regex.startswith("(?", self.position):
            raise self._refused(self.regex[self.position : self.position + 3])
        else:
            self.position += 1
        return "(?:"

    def _repeat(self) -> str:
        start = self.position
        if self.regex[start] == "{":
            counts = _REPEAT.match(self.regex, start)
            if counts is None:
                raise self._refused("{", "Write {n}, {n,} or {n,m} for a repeat, \\{ for the character itself.")
            if max(int(count) for count in counts.groups("0") if count) > _MOST_REPEATS:
                raise self._refused(counts[0], f"Repeat at most {_MOST_REPEATS} times.")
            self.position = counts.end()
        else:
            self.position += 1
        spelled = self.regex[start : self.position]
        following = self.regex[self.position : self.position + 1]
        if following == "+":
            raise self._refused(spelled + following)
        if following == "?":
            self.position += 1
        return spelled

    def _refused(self, what: str, hint: str = _HINT) -> BadDeclaration:
        return BadDeclaration(
            f"The regular expression {self.regex!r} holds {what}, which not every engine reads alike.", hint=hint
        )

"""The words of a text: without accents and case, in the stem of a language."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from twofold.infra.errors import BadArgument, nearest

if TYPE_CHECKING:
    from tantivy import TextAnalyzer

LANGUAGES = (
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian", "italian",
    "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
)  # fmt: skip
"""Languages whose stems are known."""


def words(text: str, language: str) -> list[str]:
    """Returns the words of a text in order: each longest run of letters and digits, folded and stemmed.

    Letters lose their accents, and ligatures become their letters (`ß` is `ss`), then case is dropped, then Snowball's
    stemmer of the language takes endings away. Both forms of an accented letter, composed or not, are the same.

    Args:
        language: one of `LANGUAGES`; empty: words keep their endings.
    """
    return analyzer(language).analyze(unicodedata.normalize("NFC", text))


def require_language(language: str) -> None:
    """Refuses a language whose stems are not known.

    Raises:
        BadArgument: names the nearest one.
    """
    if language and language not in LANGUAGES:
        raise BadArgument(
            f"language={language!r}: its stems are not known.",
            hint=nearest(language, LANGUAGES, f'There are {", ".join(LANGUAGES)}; "" leaves words as they are.'),
        )


@lru_cache
def analyzer(language: str) -> TextAnalyzer:
    """Returns what takes a text in Unicode's form NFC apart; one for each language."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    require_language(language)
    folded = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.ascii_fold()).filter(Filter.lowercase())
    return (folded.filter(Filter.stemmer(language)) if language else folded).build()

"""The rules of texts: what a word is, and which words are the same."""

from __future__ import annotations

import random
from importlib import metadata

import pytest

from tests.support.duckdb_extensions import with_extension
from twofold.features.search.analyzer import LANGUAGES, require_language, words
from twofold.infra.errors import BadArgument

VOCABULARY = (
    "runs running bicycles happily flies dying national nationality skis proceed kettles broken breaking candles "
    "clocks shelves rugs generously tables lamps plates stools vases bowls cups written writes relational conditional"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Red BICYCLES", ["red", "bicycl"]),
        ("été, e\u0301te\u0301 and ÉTÉ", ["ete", "ete", "and", "ete"]),
        ("Straße ﬁne Łódź ø", ["strass", "fine", "lodz", "o"]),
        ("don't a_b a-b", ["don", "t", "a", "b", "a", "b"]),
        ("12.50 x2 m²", ["12", "50", "x2", "m2"]),
        ("東京 tower😀", ["東京", "tower"]),
        (" .,; ", []),
        ("", []),
        ("a\x00b\nc", ["a", "b", "c"]),
    ],
)
def test_words_are_letters_and_digits_without_case_and_accents(text: str, expected: list[str]) -> None:
    assert words(text, "english") == expected


def test_stems_are_those_of_a_language_or_none() -> None:
    assert words("Häuser running", "german") == ["haus", "running"]
    assert words("häuser running", "english") == ["hauser", "run"]
    assert words("häuser running", "") == ["hauser", "running"]


def test_stems_are_those_of_duckdb() -> None:
    with with_extension("fts") as database:
        for word in VOCABULARY.split():
            assert words(word, "english") == [database.execute("SELECT stem(?, 'english')", [word]).fetchall()[0][0]]


def test_folded_words_of_random_latin_texts_are_those_of_duckdb() -> None:
    chance = random.Random(7)
    letters = "abcXYZ012 .,-éÈüñçÅőŽ'\"()_/"
    with with_extension("fts") as database:
        for _ in range(300):
            text = "".join(chance.choices(letters, k=20))
            query = "SELECT regexp_extract_all(strip_accents(lower(?)), '[a-z0-9]+')"
            assert words(text, "") == database.execute(query, [text]).fetchall()[0][0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_stems(language: str) -> None:
    require_language(language)
    assert len(words("Two words", language)) == 2


def test_an_unknown_language_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadArgument, match="language='englisch': its stems are not known") as fault:
        words("a", "englisch")
    assert "english" in str(fault.value.hint)


def test_the_analyzer_is_the_one_whose_words_are_kept_in_tables() -> None:
    """Another version may find other stems: rebuild the tables of searches, then change this."""
    assert metadata.version("tantivy") == "0.27.0"

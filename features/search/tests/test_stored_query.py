"""Stored queries: what they mean, what a mistake in one says, and that anchors lose no match."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.features.search.stored_query import EVERY, anchors_of, parse, searchable
from twofold.infra.errors import BadArgument

NUMBERS = ("price", "stars")


def is_met(query: str, *texts: str | None, **numbers: float | Decimal | None) -> bool:
    return parse(query, "english", NUMBERS).is_met(searchable(texts, "english"), numbers)


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("lamp", "A red LAMP.", True),
        ("lamps", "a lamp", True),
        ("LÁMP", "the lamp's shade", True),
        ("lam", "a lamp", False),
        ("red lamp", "lamp, red", True),
        ("red lamp", "a lamp", False),
        ("red AND lamp", "lamp, red", True),
        ('"red lamp"', "lamp, red", False),
        ('"red lamps"', "two red-lamp shades", True),
        ('"lamp red"', "a lamp. Red!", True),
        ("red-lamp", "lamp, red", False),
        ("red OR lamp", "a lamp", True),
        ("red OR lamp", "a cup", False),
        ("red or lamp", "red lamp", False),
        ("lamp NOT red", "a lamp", True),
        ("lamp NOT red", "a red lamp", False),
        ("NOT NOT lamp", "a lamp", True),
        ("a OR b c", "a", True),
        ("(a OR b) c", "a", False),
        ("(a OR b) c", "c b", True),
        ("NOT a OR b", "c", True),
        ("NOT (a OR b)", "b", False),
        ("12.5", "costs 12,5 or more", True),
        ("12", "costs 12,5 or more", True),
        ("12", "costs 125", False),
    ],
)
def test_a_query_is_met_by_its_words(query: str, text: str, expected: bool) -> None:
    assert is_met(query, text) is expected


def test_a_phrase_is_within_one_text_and_words_are_in_any() -> None:
    assert is_met("red lamp", "red", None, "lamp")
    assert not is_met('"red lamp"', "red", "lamp")
    assert not is_met("red", None)


@pytest.mark.parametrize(
    ("query", "price", "expected"),
    [
        ("price:5", 5, True),
        ("price:5", 5.0, True),
        ("price:0.1", Decimal("0.10"), True),
        ("price:0.1", 0.1, False),  # the double is a little more
        ("price:5..10", 10, True),
        ("price:5..10", 10.5, False),
        ("price:-5..", -5, True),
        ("price:..-5", -4, False),
        ("price:..-5", None, False),
        ("NOT price:..-5", None, True),
        ("price:0..", float("nan"), False),
        ("price:0..", float("inf"), True),
        ("NOT price:0..", float("nan"), True),
    ],
)
def test_a_range_has_both_of_its_bounds_and_no_null(query: str, price: float | None, expected: bool) -> None:
    assert is_met(query, "any", price=price) is expected


@pytest.mark.parametrize(
    ("query", "mistake"),
    [
        ("", "position 1: expected a word, a phrase, a range, NOT or `(`; found the end."),
        ("lamp OR", "position 8: expected a word, a phrase, a range, NOT or `(`; found the end."),
        ("AND lamp", "position 1: expected a word, a phrase, a range, NOT or `(`; found `AND`."),
        ("red AND AND lamp", "position 9: expected a word, a phrase, a range, NOT or `(`; found `AND`."),
        ("lamp )", "position 6: expected the end, AND or OR; found `)`."),
        ("red (lamp", "position 10: expected `)` for the `(` at position 5; found the end."),
        ('red "lamp', 'position 5: expected `"` at the end of the phrase.'),
        ('red ""', "position 5: expected a letter or a digit; found nothing."),
        ("red !?", "position 5: expected a letter or a digit; found `!?`."),
        ("price:dear", "position 1: expected price:5, price:5..10, price:5.. or price:..10; found `price:dear`."),
        ("price:..", "position 1: expected price:5, price:5..10, price:5.. or price:..10; found `price:..`."),
        ("price:9..1", "position 1: expected the lower bound first; found `price:9..1`."),
        (
            "prize:9",
            (
                'position 1: expected no `prize:`, since the numbers are price, stars; write "..." around text with a '
                "colon; found `prize:9`."
            ),
        ),
        (
            "(" * 101 + "a" + ")" * 101,
            "position 101: expected at most 100 parentheses and NOTs within each other; found `(`.",
        ),
    ],
)
def test_a_bad_query_says_where_and_what_was_expected(query: str, mistake: str) -> None:
    with pytest.raises(BadArgument) as fault:
        parse(query, "english", NUMBERS)
    assert fault.value.message == mistake


@pytest.mark.parametrize(
    ("query", "anchors"),
    [
        ("lamp", ["lamp"]),
        ("red bicycles", ["bicycl"]),
        ('"a red lamp"', ["lamp"]),
        ("red OR lamp", ["lamp", "red"]),
        ("(red OR lamp) bicycle", ["bicycl"]),
        ("(red OR bicycle) lamp", ["lamp"]),
        ("lamp price:5", ["lamp"]),
        ("price:5", [EVERY]),
        ("NOT lamp", [EVERY]),
        ("lamp OR NOT red", [EVERY]),
        ("here red", ["red"]),
        ("here", ["here"]),
    ],
)
def test_anchors_are_the_longest_words_and_common_ones_last(query: str, anchors: list[str]) -> None:
    assert anchors_of(parse(query, "english", NUMBERS), ["Here"], "english") == anchors


WORDS = ["lamp", "lamps", "red", "shelf", "ein", "x2", "7"]
leaves = st.one_of(
    st.sampled_from(WORDS).map(lambda word: ("words", [word])),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(lambda found: ("words", found)),
    st.tuples(st.sampled_from(NUMBERS), st.integers(0, 3), st.integers(0, 2)).map(lambda found: ("range", found)),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(lambda one: ("NOT", one)),
        st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=8,
)


def written(tree: tuple) -> str:
    """The query of a tree, with parentheses around everything."""
    match tree:
        case ("words", found):
            return f'"{" ".join(found)}"' if len(found) > 1 else found[0]
        case ("range", (column, low, more)):
            return f"{column}:{low}..{low + more}"
        case ("NOT", one):
            return f"NOT ({written(one)})"
        case (operator, several):
            return f" {operator} ".join(f"({written(one)})" for one in several)


def naive(tree: tuple, text: list[str], numbers: dict[str, int | None]) -> bool:
    """What the tree says of a list of words: by loops over their places, without the code that is tested."""
    match tree:
        case ("words", found):
            wanted, held = ([word.rstrip("s") for word in one] for one in (found, text))
            return any(held[at : at + len(wanted)] == wanted for at in range(len(held)))
        case ("range", (column, low, more)):
            value = numbers[column]
            return value is not None and value in range(low, low + more + 1)
        case ("NOT", one):
            return not naive(one, text, numbers)
        case ("AND", several):
            return all(naive(one, text, numbers) for one in several)
        case _:
            return any(naive(one, text, numbers) for one in tree[1])


@given(
    tree=trees,
    text=st.lists(st.sampled_from(WORDS), max_size=6),
    numbers=st.fixed_dictionaries({name: st.one_of(st.none(), st.integers(0, 5)) for name in NUMBERS}),
    common=st.lists(st.sampled_from(WORDS), max_size=3),
)
def test_random_queries_mean_what_they_say_and_anchors_lose_nothing(
    tree: tuple, text: list[str], numbers: dict[str, int | None], common: list[str]
) -> None:
    query, held = parse(written(tree), "english", NUMBERS), searchable([" ".join(text)], "english")
    expected = naive(tree, text, numbers)
    assert query.is_met(held, numbers) is expected
    anchors = anchors_of(query, common, "english")
    assert not expected or {*anchors} & {EVERY, *held.split()}


@given(st.text(alphabet='ab"() :.AND', max_size=12))
def test_any_text_is_a_query_or_a_mistake_with_a_position(text: str) -> None:
    try:
        assert anchors_of(parse(text, "english", ["a"]), [], "english")
    except BadArgument as fault:
        position = int(fault.message.removeprefix("position ").partition(":")[0])
        assert 1 <= position <= len(text) + 1

"""Rules as they are declared."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable

import pytest

from twofold.infra.errors import BadDeclaration
from twofold.quality.portable_regex import portable
from twofold.quality.rules import Rule, between, expression, fresh_within, matches, not_null, one_of, unique


@pytest.mark.parametrize(
    ("rule", "kind", "columns", "text"),
    [
        (not_null("origin"), "not_null", ("origin",), "not_null(origin)"),
        (between("delay_min", -240, 2_880), "between", ("delay_min",), "between(delay_min, -240, 2880)"),
        (between("at", "2013-01-01T00:00:00Z", None), "between", ("at",), "between(at, 2013-01-01T00:00:00Z, None)"),
        (one_of("kind", ["a", "b", "a"]), "one_of", ("kind",), "one_of(kind, ['a', 'b'])"),
        (matches("origin", r"\w{3}"), "matches", ("origin",), r"matches(origin, \w{3})"),
        (unique("a", "b"), "unique", ("a", "b"), "unique(a, b)"),
        (fresh_within("at", "2 hours"), "fresh_within", ("at",), "fresh_within(at, 2 hours)"),
        (expression("a <= b"), "expression", (), "expression(a <= b)"),
    ],
    ids=str,
)
def test_a_rule_says_what_it_is(rule: Rule, kind: str, columns: tuple[str, ...], text: str) -> None:
    assert (rule.kind, rule.columns, str(rule)) == (kind, columns, text)
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert hash(rule) == hash(pickle.loads(pickle.dumps(rule)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: not_null(""), "expected the name of a column"),
        (lambda: between("v", 2, 1), "low is above high"),
        (lambda: between("v", "2013-01-02", "2013-01-01"), "low is above high"),
        (lambda: between("v", None, None), "has no bound"),
        (lambda: between("v", 1, "2013-01-01"), "two types"),
        (lambda: between("v", "2013-01-01", "2013-01-01T00:00:00Z"), "two types"),
        (lambda: between("v", float("nan"), 1), "finite"),
        (lambda: between("v", True, 1), "finite"),
        (lambda: between("v", 0, 2**63), "finite"),
        (lambda: between("v", "2013-01-01T00:00:00", None), "no offset"),
        (lambda: between("v", "2013-02-30", None), "day is out of range"),
        (lambda: between("v", "soon", None), "Invalid isoformat"),
        (lambda: one_of("v", []), "lists no value"),
        (lambda: one_of("v", "abc"), "a list of values"),
        (lambda: one_of("v", ["a", 1]), "mixes types"),
        (lambda: one_of("v", [None]), "expected texts"),  # type: ignore[list-item]
        (lambda: one_of("v", [float("nan")]), "expected texts"),
        (lambda: unique(), "each once"),
        (lambda: unique("a", "a"), "each once"),
        (lambda: fresh_within("v", "soon"), "a length of time"),
        (lambda: fresh_within("v", "1 month"), "a length of time"),
        (lambda: expression("  "), "a condition in SQL"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused_with_a_hint(wrong: Callable[[], Rule], said: str) -> None:
    with pytest.raises(BadDeclaration, match=said) as refused:
        wrong()
    assert refused.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "v > rand()",
        "at < current_timestamp",
        "at < CURRENT_TIMESTAMP()",
        "at < now ( )",
        "id != uuid()",
        "monotonically_increasing_id() > 5",
        "day < current_date",
        "unix_timestamp() > 5",
        "aes_encrypt(name, key) = secret",
        "current_path() = name",
        "name = user()",
        "d < curdate/* of the clock */()",
        "`rand`() > v",
        "at < timestamp'now'",
        "at < timestamp /* of the clock */ 'now'",
        "`my`(rand()) > `v`",
        "v > (SELECT 1)",
        "rank() over (order by v) = 1",
    ],
)
def test_an_expression_that_the_row_does_not_decide_is_refused(sql: str) -> None:
    with pytest.raises(BadDeclaration, match="which the row does not decide"):
        expression(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "kind <> 'rand()'",
        "`now` > 1",
        "brand(v) > 1 or overtime > 2",
        "unix_timestamp(at) > 5",
        "uuid IS NOT NULL",
        "name <> 'now('",
        "v > 1 -- now()",
        "`now` > `rand` and `select`(v)",
        "name <> 'timestamp \"now\"'",
        "aes_decrypt(secret, key) = name",
        "typeof(v) = 'int'",
    ],
)
def test_names_that_only_look_like_clocks_and_chance_are_allowed(sql: str) -> None:
    assert expression(sql).sql == sql


@pytest.mark.parametrize(
    "regex",
    [
        "",
        "(",
        "a**",
        "(?=a)b",
        "(?<!a)b",
        r"(a)\1",
        "(?P<n>a)",
        "(?i)a",
        "^a",
        "a$",
        r"a\b",
        r"\Aa",
        r"\p{L}",
        r"\x41",
        r"\v",
        "a++",
        "a*+",
        "a{2}+",
        "a{,3}",
        "a{1001}",
        "a{",
        "a]",
        "[[:alpha:]]",
        "[a&&b]",
        "[]a]",
        r"[\D]",
    ],
)
def test_a_regular_expression_that_engines_read_differently_is_refused(regex: str) -> None:
    with pytest.raises(BadDeclaration) as refused:
        matches("v", regex)
    assert repr(regex) in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("regex", "good", "bad"),
    [
        (r"[A-Z0-9]{2}", ["UA", "9E"], ["ua", "U"]),
        (r"a.c", ["abc", "a\rc"], ["a\nc", "ac"]),
        (r"(a|b)+?c?", ["ab", "abc"], ["", "c"]),
        (r"[^a-c\]]\-\.", ["d-.", "^-."], ["a-.", "]-."]),
        (r"[\w.-]+@\w+", ["a.b-c@d"], ["@d", "é@d"]),
        (r"\d{1,3}(?:,\d{3})*", ["1,234,567"], ["1,23", "٣"]),
        (r"[a^]", ["a", "^"], ["b"]),
        (r"\{\}\$\^", ["{}$^"], ["{}"]),
        (r"\S\W\D", ["a-b"], ["1a1"]),
    ],
)
def test_a_portable_expression_accepts_what_was_meant(regex: str, good: list[str], bad: list[str]) -> None:
    spelled = re.compile(portable(regex))
    assert [value for value in good if not spelled.fullmatch(value)] == []
    assert [value for value in bad if spelled.fullmatch(value)] == []

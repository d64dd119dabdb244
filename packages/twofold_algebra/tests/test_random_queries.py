"""Random queries over random rows: what is inferred of keys and scopes holds when DuckDB runs them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from tests.harness.tiers import this_run
from twofold_algebra.dependencies import by_source, scope_of, unknown_in
from twofold_algebra.expression_sql import sql_of
from twofold_algebra.keys import determined, keys
from twofold_algebra.reading.connect_plan import read_function
from twofold_algebra.relations import Relation

QUERIES = 40 * (this_run.worlds or 1)
Database = duckdb.DuckDBPyConnection
Row = tuple[Any, ...]
COLUMNS = {"a": ["i", "k", "n", "g"], "b": ["j", "k", "m", "t", "u"]}
KINDS = {
    "a": {"i": "int", "k": "string?", "n": "int?", "g": "string"},
    "b": {"j": "int", "k": "string?", "m": "int?", "t": "string", "u": "string?"},
}
TYPES = {"i": "INT", "j": "INT", "n": "INT", "m": "INT"}
KEYS = {"a": ["i", "g"], "b": ["j"]}


def rows(dice: random.Random) -> dict[str, list[Row]]:
    """Rows of both inputs, unique by their keys, with nulls; the texts `1` and `01` are equal as numbers."""
    texts = ["p", "1", "01", None]
    a = {(dice.randrange(4), dice.choice("pq")): None for _ in range(9)}
    b = dict.fromkeys(dice.randrange(5) for _ in range(6))
    return {
        "a": [(i, dice.choice(texts), dice.choice([None, 0, 1, 2]), g) for i, g in a],
        "b": [
            (
                j,
                dice.choice(texts),
                dice.choice([None, 0, 1, 2]),
                dice.choice(["p", "q", "1"]),
                dice.choice([None, "0", "1", "01"]),
            )
            for j in b
        ],
    }


def condition(dice: random.Random) -> str:
    """A condition on rows of `x`, an alias of `a`, most with a subquery."""
    inner = dice.choice(["b.k = x.k", "b.m = x.n", "b.j = x.i AND b.m > x.n", "x.k = b.k OR b.m = x.n", "b.m = 1"])
    limit = dice.choice(["", "", " ORDER BY j LIMIT 2"])
    return dice.choice(
        [
            f"EXISTS (SELECT 1 FROM {{b}} AS b WHERE {inner})",
            f"NOT EXISTS (SELECT j FROM {{b}} AS b WHERE {inner}{limit})",
            f"x.n > (SELECT max(b.m) FROM {{b}} AS b WHERE {inner})",
            f"x.n <= (SELECT count(*) FROM (SELECT * FROM {{b}} AS b WHERE {inner}{limit}) AS c)",
            f"x.k IN (SELECT k FROM {{b}}{limit})",
            f"x.n NOT IN (SELECT m FROM {{b}} AS b WHERE {inner})",
            "x.k NOT IN (SELECT k FROM {b} WHERE k IS NOT NULL)",
            f"(x.k IN (SELECT k FROM {{b}} AS b WHERE {inner}) OR x.n = 1)",
            "x.n > (SELECT avg(y.n) FROM {a} AS y WHERE y.k = x.k)",
            "(SELECT max(b.m) FROM {b} AS b WHERE b.k = x.k AND b.j IN (SELECT i FROM {a} AS z WHERE z.n = x.n)) >= 0",
            "x.n = 1 AND x.g = 'p'",
            "x.k = '1'",
            "1 = 1",
        ]
    )


def join(dice: random.Random) -> str:
    """A join of both inputs."""
    how = dice.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    on = dice.choice(
        [
            "x.i = b.j",
            "x.k = b.k",
            "x.g = b.t",
            "x.n = b.u",
            "x.i = b.u AND x.g = b.t",
            "x.n = b.m AND x.i = b.j",
            "x.i = b.j AND x.g = b.t",
        ]
    )
    picked = dice.choice(
        ["x.*", "x.i, x.g, b.j", "b.*", "x.i, x.g, b.j, b.k", "x.i, x.g, b.m", "b.j, x.n, x.g", "x.n, b.u"]
    )
    return f"SELECT {picked} FROM {{a}} AS x {how} {{b}} AS b ON {on} WHERE {dice.choice(['1 = 1', 'x.i = 1'])}"


def group(dice: random.Random) -> str:
    """A group, by one or several sets of columns."""
    by = dice.choice(
        ["k, n", "g, k", "ROLLUP(g, k)", "CUBE(k, n)", "g, ROLLUP(k)", "GROUPING SETS ((g, n), (g), (g))", "ROLLUP(g)"]
    )
    shown = ", ".join(name for name in "gkn" if name in by.lower().replace("rollup", "").replace("grouping", ""))
    told = dice.choice(["", f", grouping({shown[0]}) AS one", ", " + " + ".join(
        f"grouping({one})" for one in shown.split(", ")) + " AS level"]) if "(" in by else ""  # fmt: skip
    where = dice.choice(["x.g IS NOT NULL AND x.k IS NOT NULL AND NOT x.n IS NULL", "x.k > 'a'", condition(dice)])
    having = dice.choice(["", " HAVING count(*) > (SELECT min(m) FROM {b})"])
    return f"SELECT {shown}, count(*) AS c{told} FROM {{a}} AS x WHERE {where} GROUP BY {by}{having}"


def union(dice: random.Random) -> str:
    """A union, whose parts a constant may tell apart."""
    kind = dice.choice(["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
    first, second, third = dice.choice(
        [(0, 1, 2), (0, 1, 1), ("'1'", "'2'", "'x'"), (1, 1, 1), (0, 0, 1), (0, "NULL", 1)]
    )
    third = dice.choice([third, "CAST(NULL AS INT)"]) if isinstance(third, int) else third
    return (
        f"SELECT i AS key, g, {first} AS part FROM {{a}} {kind} SELECT j, t, {second} FROM {{b}} "
        f"{kind} SELECT {dice.choice(['j', 'j', 'NULL'])}, 'p', {third} FROM {{b}} WHERE j = 1"
    )


def window(dice: random.Random) -> str:
    """The first rows of partitions."""
    by, nth = dice.choice(["k", "g, k", "n"]), dice.choice(["= 1", "<= 2", "= n"])
    inner = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY i, g) AS nth FROM {{a}} AS x"
    return (
        f"SELECT {dice.choice(['*', by, 'i, g', f'{by}, nth'])} FROM ({inner} WHERE {condition(dice)}) WHERE nth {nth}"
    )


def ranks(dice: random.Random) -> str:
    """Rows with the next one of their partition."""
    by, order = dice.choice(["g", "n", "k"]), dice.choice(["i", "i, g", "n, g", "g, i"])
    rank = dice.choice(["rank", "dense_rank", "row_number"])
    of_each = f"(SELECT *, {rank}() OVER (PARTITION BY {by} ORDER BY {order}) AS nth FROM {{a}} AS x)"
    shift, picked = dice.choice(["+ 1", "- 1", ""]), dice.choice([f"x.{by}, x.nth", "x.i, x.g", "x.i, x.g, y.n"])
    return f"SELECT {picked} FROM {of_each} AS x JOIN {of_each} AS y ON x.{by} = y.{by} AND x.nth = y.nth {shift}"


def both(dice: random.Random) -> str:
    """The rows of two groups with the same key, of each if the other has none."""
    by, other = dice.choice([("i", "j"), ("g", "t"), ("n", "m"), ("k", "k"), ("n", "u")])
    kept = [dice.choice([f"{column} IS NOT NULL", "1 = 1"]) for column in (by, other)]
    x = f"(SELECT {by} AS one, count(*) AS c FROM {{a}} AS x WHERE {kept[0]} GROUP BY {by})"
    y = f"(SELECT {other} AS two, count(*) AS d FROM {{b}} WHERE {kept[1]} GROUP BY {other})"
    on = dice.choice(["one = two", "one = two", "one = two AND c = d", "one = two AND c > 1"])
    if other == "u":  # no engine has a value of both types
        return f"SELECT one, two, c FROM {x} AS x FULL JOIN {y} AS y ON {on}"
    picked = dice.choice(["coalesce(one, two) AS key, c, d", "coalesce(one, two) AS key, coalesce(c, d) AS most, c"])
    return f"SELECT {picked} FROM {x} AS x FULL JOIN {y} AS y ON {on}"


def turned(dice: random.Random) -> str:
    """Columns made of values, or rows made of columns."""
    if dice.choice([True, False]):
        inner = f"SELECT {dice.choice(['g, k, n', 'k, n', 'g, n, i', '*'])} FROM {{a}} AS x WHERE {condition(dice)}"
        made = dice.choice(["count(*)", "max(n)", "count(*) AS c, max(n) AS d", "sum(n) AS s, min(n) AS m"])
        return f"SELECT * FROM ({inner}) PIVOT ({made} FOR n IN ({dice.choice(['0, 1', '1 AS one, 2'])}))"
    inner = f"SELECT {dice.choice(['i, g, k', 'g, k', 'i, g, k, n'])} FROM {{a}} AS x WHERE {condition(dice)}"
    columns = dice.choice(["g, k", "k", "g AS one, k AS two"])
    return f"SELECT * FROM ({inner}) UNPIVOT (value FOR name IN ({columns}))"


def whole(dice: random.Random) -> str:
    """A query that ends in one row, or in some."""
    return dice.choice(
        [
            f"SELECT count(*) AS c, max(n) AS most FROM {{a}} AS x WHERE {condition(dice)} LIMIT 1",
            f"SELECT k, count(*) AS c FROM {{a}} AS x WHERE {condition(dice)} GROUP BY k ORDER BY k LIMIT 1",
            "SELECT p.c, q.d FROM (SELECT count(*) AS c FROM {a}) AS p, (SELECT max(k) AS d FROM {b}) AS q LIMIT 5",
            f"SELECT i, g, (SELECT max(m) FROM {{b}} AS b WHERE b.k = x.k) AS o FROM {{a}} x WHERE {condition(dice)}",
            "SELECT g, k, n + 1 AS more, max(i) AS most FROM {a} GROUP BY ALL",
            "SELECT count(*) AS c, max(b.k) AS k FROM {b} AS b JOIN {a} AS x ON x.i = b.j WHERE b.j = 1 AND b.m = 1",
            "SELECT m, k FROM {b} WHERE j = 1",
            f"SELECT i, g, n + 1 AS p, p + 1 AS q FROM {{a}} AS x WHERE {condition(dice)} AND x.k IS NOT NULL",
        ]
    )


SHAPES = [
    lambda dice: (
        f"SELECT {dice.choice(['x.i, x.g, x.n', 'b.j, b.u', 'x.n, b.u'])} FROM {{a}} AS x "
        f"{dice.choice(['', 'LEFT', 'RIGHT'])} JOIN {{b}} AS b ON x.n = b.u"
    ),
    lambda dice: f"SELECT * FROM {{a}} AS x WHERE {condition(dice)} AND {condition(dice)}",
    join,
    group,
    union,
    window,
    ranks,
    both,
    turned,
    whole,
    lambda dice: f"SELECT k, count(*) AS c FROM (SELECT * FROM {{a}} AS x WHERE {condition(dice)}) GROUP BY k",
    lambda dice: (
        f"SELECT x.k, x.i, x.g, y.c FROM {{a}} AS x JOIN (SELECT k, count(*) AS c FROM {{b}} GROUP BY k) AS y "
        f"ON x.k = y.k WHERE {condition(dice)}"
    ),
]


@pytest.mark.worlds
def test_keys_and_scopes_of_queries_hold_when_they_run(database: Database) -> None:
    dice, held = random.Random(this_run.seed), Counter[str]()
    for number in range(QUERIES):
        text = SHAPES[number % len(SHAPES)](dice)
        inputs = [name for name in COLUMNS if f"{{{name}}}" in text]
        root = read_function(query(text), {name: COLUMNS[name] for name in inputs}, KINDS)
        assert not unknown_in(root), text
        key = inferred(root)
        for _ in range(4):
            tables = rows(dice)
            names, found = run(database, text, tables)
            assert [one for one in root.names if one not in names] == [], text
            if key:
                places = [names.index(one) for one in key]
                twice = [one for one, n in Counter(tuple(row[p] for p in places) for row in found).items() if n > 1]
                assert not twice, f"{text}: {key} of {tables}"
                held["key"] += 1
            for place, column in enumerate(names):
                if names.count(column) == 1 and (scope := restrictions(root, column)):
                    value = dice.choice([row[place] for row in found] or [None])
                    kept = {
                        name: only(database, each, COLUMNS[name], scope.get(name), value)
                        for name, each in tables.items()
                    }
                    expected = Counter(row for row in found if row[place] == value)
                    assert Counter(row for row in run(database, text, kept)[1] if row[place] == value) == expected, (
                        f"{text}: {column}={value!r} by {scope} of {tables}"
                    )
                    held["scope"] += 1
    assert held["key"] > QUERIES, held
    assert held["scope"] > QUERIES, held


@pytest.fixture
def database() -> Iterator[Database]:
    """A database in memory, on one core."""
    with duckdb.connect() as database:
        database.execute("SET threads = 1")
        yield database


def query(text: str) -> Callable[..., Any]:
    """A function of a table that runs a query over its inputs."""
    return lambda **inputs: next(iter(inputs.values())).sparkSession.sql(text, None, **inputs)


def inferred(root: Relation) -> list[str]:
    """The names of the columns that hold a key, or enough of it that the others follow."""
    for key in keys(root, KEYS):
        held = {one: name for one in key if (name := root.name_of(one))}
        follows = determined(held, root, KEYS)
        if held and all(one in held or follows(one) for one in key):
            return list(dict.fromkeys(held.values()))
    return []


def restrictions(root: Relation, column: str) -> dict[str, str]:
    """Input -> the expression by which its rows matter to a value of the column."""
    value = root.value([column])
    found = by_source(root, scope_of(root, value)) if value is not None else {}
    return {name: text for name, one in found.items() if (text := sql_of(one))}


def run(database: Database, text: str, tables: dict[str, list[Row]]) -> tuple[list[str], list[Row]]:
    """The columns and the rows of a query."""
    for name, found in tables.items():
        fill(database, name, COLUMNS[name], found)
    result = database.execute(text.format(a="a", b="b"))
    return [one[0] for one in result.description or ()], result.fetchall()


def only(database: Database, found: list[Row], columns: list[str], by: str | None, value: Any) -> list[Row]:
    """The rows whose expression has the value itself: the text `01` is not the number 1."""
    if by is None or not found:
        return found
    fill(database, "t", columns, found)
    is_it = f"CAST({by} AS VARCHAR) IS NOT DISTINCT FROM CAST(? AS VARCHAR)"
    return database.execute(f"SELECT * FROM t WHERE {is_it}", [value]).fetchall()


def fill(database: Database, name: str, columns: list[str], found: list[Row]) -> None:
    typed = ", ".join(f"{column} {TYPES.get(column, 'VARCHAR')}" for column in columns)
    database.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({typed})")
    if found:
        marks = ", ".join(f"({', '.join('?' * len(columns))})" for _ in found)
        database.execute(f"INSERT INTO {name} VALUES {marks}", [value for row in found for value in row])

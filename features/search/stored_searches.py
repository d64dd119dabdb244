"""Searches over a stream: stored queries by the words that a text must have, and the texts that meet them.

A query is found by its anchors: each text that meets it has at least one of them as a word. A table of queries and
anchors is joined with the words of texts, and each pair that this finds is evaluated exactly. So the cost follows the
matches, not the product of texts and queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from twofold.features.search.analyzer import require_language
from twofold.features.search.stored_query import EVERY, Query, anchors_of, parse, searchable
from twofold.infra.errors import BadArgument, BadDeclaration

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

ANCHOR, MISTAKE, LANGUAGE = "anchor", "mistake", "language"
_WORDS = "searched_words"
_QUERIES = 200_000
"""Parsed queries that a process keeps."""


def search_terms(
    searches: DataFrame,
    *,
    query: str = "query",
    language: str = "english",
    numbers: Sequence[str] = (),
    common: Sequence[str] = (),
) -> DataFrame:
    """Computes a row for each stored query and anchor, for `search_matches`.

    A query that cannot be read has one row, without an anchor, which says why; it matches nothing.

    Args:
        searches: one row per query, such as `latest_values` of a compacted topic.
        query: the column with the query.
        language: whose stems words are compared by; empty: words are compared as they are.
        numbers: the columns that ranges of queries may name.
        common: words that most texts have: an anchor only if a query has no other word. Any choice is right.

    Returns:
        The columns of `searches`, `language`, `anchor`, and `mistake`, null for a query that can be read. A search with
        `anchor` identifies a row.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F

    require_language(language)
    kind = pa.struct({"anchors": pa.list_(pa.string()), MISTAKE: pa.string()})

    def anchored(queries: pa.Array) -> pa.Array:
        found = [_anchors(written, language, numbers, common) for written in queries.to_pylist()]
        return pa.array(found, kind)

    read = searches.withColumn("read", _of_arrays(anchored, kind)(query))
    rows = read.withColumn(LANGUAGE, F.lit(language)).withColumn(MISTAKE, F.col(f"read.{MISTAKE}"))
    return rows.withColumn(ANCHOR, F.explode_outer("read.anchors")).drop("read")


def search_matches(
    posts: DataFrame,
    terms: DataFrame,
    *,
    text: Sequence[str],
    query: str = "query",
    language: str = "english",
    numbers: Sequence[str] = (),
) -> DataFrame:
    """Computes a row for each post and stored query that it meets.

    Args:
        posts: one row per text or record; it has no column with the name of one of `terms`.
        terms: what `search_terms` made, with the same `query`, `language` and `numbers`.
        text: the columns of `posts` that are searched; a phrase is within one of them.
        numbers: the columns of `posts` that ranges of queries may name.

    Returns:
        The columns of `posts` and those of the searches. The key of `posts` with that of the searches identifies a row.

    Raises:
        BadDeclaration: no column is searched.
        BadArgument: a query names a number that is not in `numbers`; terms of another language are an error of Spark.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F

    require_language(language)
    if isinstance(text, str) or not text:
        raise BadDeclaration(f"search_matches has text={text!r}; expected columns.", hint='Write text=["text"].')

    def analyzed(*texts: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in texts), strict=True)
        return pa.array([searchable(row, language) for row in rows], pa.string())

    def met(found: pa.Array, queries: pa.Array, *values: pa.Array) -> pa.Array:
        return pa.array(_met(found, queries, language, dict(zip(numbers, values, strict=True))), pa.bool_())

    words = _of_arrays(analyzed, pa.string())
    is_met = _of_arrays(met, pa.bool_())
    expected = f"search_matches expects terms of the language {language!r}; search_terms made some of '%s'."
    other = F.raise_error(F.format_string(f"{expected} Hint: Give both the same language.", LANGUAGE))
    read = terms.where(F.when(F.col(LANGUAGE) == language, F.col(ANCHOR).isNotNull()).otherwise(other))
    each = F.array_distinct(F.array_append(F.split(_WORDS, r"\s+"), EVERY))
    searched = posts.withColumn(_WORDS, words(*text)).withColumn(ANCHOR, F.explode(each))
    pairs = searched.join(read, ANCHOR).where(is_met(_WORDS, query, *numbers))
    # Two anchors can find the same pair.
    return pairs.drop(ANCHOR, MISTAKE, LANGUAGE, _WORDS).distinct()


def _of_arrays(function: Callable[..., pa.Array], kind: pa.DataType) -> Callable[..., Column]:
    """Makes a function of Spark columns from one of Arrow arrays, whose result has this type."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    # Spark would look up the annotations of the function, which are there for the type checker alone.
    plain = lambda *columns: function(*columns)  # noqa: E731
    return arrow_udf(plain, from_arrow_type(kind))  # type: ignore[call-overload,no-any-return]


def _anchors(written: str | None, language: str, numbers: Sequence[str], common: Sequence[str]) -> dict[str, object]:
    """Returns the anchors of a query, or why it has none."""
    try:
        if written is None:
            raise BadArgument("position 1: expected a query; found null.")
        return {"anchors": anchors_of(parse(written, language, numbers), common, language)}
    except BadArgument as error:
        return {MISTAKE: error.message}


def _met(found: pa.Array, queries: pa.Array, language: str, numbers: dict[str, pa.Array]) -> list[bool]:
    """Evaluates the query of each row on its words and numbers."""
    names = tuple(numbers)
    values = zip(*(column.to_pylist() for column in numbers.values()), strict=True) if names else ((),) * len(found)
    return [
        _parsed(written, language, names).is_met(text, dict(zip(names, row, strict=True)))
        for text, written, row in zip(found.to_pylist(), queries.to_pylist(), values, strict=True)
    ]


@lru_cache(maxsize=_QUERIES)
def _parsed(written: str, language: str, numbers: tuple[str, ...]) -> Query:
    return parse(written, language, numbers)

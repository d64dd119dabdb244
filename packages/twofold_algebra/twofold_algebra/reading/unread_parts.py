"""Names what of a part of a plan that is not read depends on the order of rows, or on chance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from twofold_algebra.reading.called_functions import messages
from twofold_algebra.spark_functions import INEXACT, NEED_ORDER, ORDERED

OPEN = {*ORDERED, *NEED_ORDER, *INEXACT}
"""Functions whose result is not known unless all of their query is."""
_KINDS = {"sample_by": "sampleBy", "freq_items": "freqItems", "approx_quantile": "approxQuantile", "summary": "summary",
          "describe": "describe", "corr": "corr", "cov": "cov", "as_of_join": "asOfJoin"}  # fmt: skip
"""Relations of the client that are open themselves -> how they are called."""
_WORDS = {"limit", "offset", "tablesample"}
_ENDS_OF_ROWS = {"between", "unbounded", "current"}


def open_parts(kind: str, message: Any) -> tuple[str, ...]:
    """Returns the open functions of a relation of the client, without those of the relations that it is made of."""
    found = {_KINDS[kind]} if kind in _KINDS else set()
    for one in messages(message, lambda inner: inner.WhichOneof("rel_type") != "sql"):
        match one.DESCRIPTOR.name:
            case "UnresolvedFunction" | "CallFunction":
                found |= {one.function_name.rpartition(".")[2].lower()} & OPEN
            case "ExpressionString":
                found.update(_of_text(one.expression))
            case "SQL":
                found.update(_of_text(one.query))
            case "WindowFrame" if one.frame_type == type(one).FRAME_TYPE_ROW:
                found |= set() if one.lower.unbounded and one.upper.unbounded else {"rowsBetween"}
    return tuple(sorted(found))


def _of_text(sql: str) -> Iterator[str]:
    try:
        tokens = Spark().tokenize(sql)
    except SqlglotError:
        yield "SQL text"
        return
    for one, after in pairwise([*tokens, *tokens[-1:]]):
        word = one.text.lower()
        if one.token_type is TokenType.STRING:
            continue
        if word in _WORDS or (word in OPEN and after.token_type is TokenType.L_PAREN):
            yield word
        elif word == "rows" and after.text.lower() in _ENDS_OF_ROWS:
            yield "ROWS"

"""Spark's names for declarations, imported from pyspark when one is used first.

Importing pyspark takes half a second or more, loading a declaration a few milliseconds; Airflow loads all of them in
every process that parses a DAG.
"""

from __future__ import annotations

import ast
import importlib
from string import Formatter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import BadDeclaration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkName(ModuleType):
    """Stands for one name of `pyspark.sql`, such as `functions`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"pyspark.sql.{name}")
        self._name = name

    def import_as(self, alias: str) -> ast.ImportFrom:
        """Returns the import statement that it stands for."""
        return ast.ImportFrom("pyspark.sql", [ast.alias(self._name, alias if alias != self._name else None)], 0)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        try:
            target = getattr(importlib.import_module("pyspark.sql"), self._name)
        except AttributeError:  # a module that the package does not import itself
            target = importlib.import_module(self.__name__)
        return getattr(target, attribute)


def sql(query: str, /, **inputs: DataFrame) -> DataFrame:
    """Runs a query in Spark SQL, in which `{orders}` reads the input `orders`.

    The query is read when the declaration is loaded, so that parameters follow from it as from other functions.

    Args:
        query: one SELECT, with or without WITH. A brace of the text itself is written twice: `RLIKE '[0-9]{{3}}'`.
        inputs: what it reads: parameters of the table's function, or rows computed of them; of a stream or a batch.
    """
    names = [name for _, name, _, _ in Formatter().parse(query) if name is not None]
    unknown = [name for name in names if name not in inputs]
    if unknown or not names:
        raise BadDeclaration(
            f"sql() reads {unknown[0]!r}, which is none of its inputs." if unknown else "sql() reads no input.",
            hint='Write sql("... FROM {orders}", orders=orders), and a brace of the text itself twice.',
        )
    return inputs[names[0]].sparkSession.sql(query, None, **inputs)

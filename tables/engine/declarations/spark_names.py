"""Spark's names for declarations, imported from pyspark when one is used first.

To import pyspark takes half a second or more, to load a declaration a few milliseconds; Airflow loads all of them in
every process that parses a DAG.
"""

from __future__ import annotations

import ast
import importlib
from types import ModuleType
from typing import Any


class SparkName(ModuleType):
    """Stands for one name of `pyspark.sql`, such as `functions`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"pyspark.sql.{name}")
        self._name = name

    def import_as(self, alias: str) -> ast.ImportFrom:
        """The statement that it stands for."""
        return ast.ImportFrom("pyspark.sql", [ast.alias(self._name, alias if alias != self._name else None)], 0)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        try:
            target = getattr(importlib.import_module("pyspark.sql"), self._name)
        except AttributeError:  # a module that the package does not import itself
            target = importlib.import_module(self.__name__)
        return getattr(target, attribute)

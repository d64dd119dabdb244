"""Calls in a declaration's file whose answer depends on when or where they are made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CLOCK = "Take times from the events: the batch computes the same rows again years later."
_CHANCE = "Leave chance out, or derive it from the key with F.hash."
_PLACE = "Other data come from a topic or a table, as a parameter of the function."
_IMPURE = {
    "datetime.datetime.now": _CLOCK,
    "datetime.datetime.utcnow": _CLOCK,
    "datetime.datetime.today": _CLOCK,
    "datetime.date.today": _CLOCK,
    "time.time": _CLOCK,
    "time.time_ns": _CLOCK,
    "time.monotonic": _CLOCK,
    "random": _CHANCE,
    "secrets": _CHANCE,
    "numpy.random": _CHANCE,
    "uuid.uuid1": _CHANCE,
    "uuid.uuid4": _CHANCE,
    "open": _PLACE,
    "os.environ": _PLACE,
    "os.getenv": _PLACE,
    "pathlib.Path": _PLACE,
    "requests": _PLACE,
    "urllib.request": _PLACE,
    "pandas.read_csv": _PLACE,
    "pandas.read_parquet": _PLACE,
    "pyspark.sql.SparkSession": _PLACE,
    "spark.read": _PLACE,
}


def impure_calls(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, name and what to do instead, of each in the order of the file."""
    imported = dict(_imported(tree))
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    calls: dict[tuple[int, str], tuple[str, str]] = {}
    for node in ast.walk(tree):
        path = _path(node)
        if not path or path[0] in bound or (path[0] not in imported and path[0] not in ("open", "spark")):
            continue
        full = ".".join([imported.get(path[0], path[0]), *path[1:]])
        for impure, instead in _IMPURE.items():
            if full == impure or full.startswith(f"{impure}."):
                calls.setdefault((node.lineno, impure), (full, instead))  # type: ignore[attr-defined]
    for (line, _), (full, instead) in sorted(calls.items()):
        yield line, full, instead


def _path(node: ast.AST) -> list[str]:
    """`a.b.c` as its parts; a name alone only where it is called."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return [node.func.id]
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) and parts else []


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Name in the file -> what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"

"""Refuses questions to Spark while a function builds a query, in which the answer would stay."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_ASKING = """
approxQuantile checkpoint collect corr count cov crosstab explain first foreach foreachPartition freqItems head
inputFiles isEmpty isLocal isStreaming localCheckpoint rdd show tail take toArrow toLocalIterator toPandas transpose
"""
"""What of a frame runs a query, or says how one would run."""
_building: ContextVar[bool] = ContextVar("building", default=False)
_patching = threading.Lock()


class AsksForRows(Exception):
    """A function asks Spark a question while it builds a query.

    Attributes:
        method: of the frame, by which it asks.
    """

    def __init__(self, method: str) -> None:
        super().__init__(f"{method}() asks Spark for rows")
        self.method = method


def method_called() -> str:
    """Returns the name of the method of pyspark that its caller was reached through."""
    frame, name = sys._getframe(1), ""
    while frame.f_back is not None:
        frame = frame.f_back
        module = frame.f_globals.get("__name__", "")
        if module.startswith("pyspark."):
            name = frame.f_code.co_name
        elif name and module != __name__:  # between two methods of pyspark, where `only_lazily` stands
            break
    return name


@contextmanager
def only_lazily(frames: Iterable[Any]) -> Iterator[None]:
    """Refuses in this thread what makes frames of these kinds run.

    Raises:
        AsksForRows: names the method.
    """
    with _patching:
        for kind in {type(frame) for frame in frames}:
            for name in _ASKING.split() if "_asks_us" not in vars(kind) else ():
                if (own := inspect.getattr_static(kind, name, None)) is not None:
                    setattr(kind, name, _refusing(own, name))
            kind._asks_us = True
    token = _building.set(True)
    try:
        yield
    finally:
        _building.reset(token)


def _refusing(own: Any, name: str) -> Any:
    if not callable(own):
        return property(_refusing(own.func if isinstance(own, functools.cached_property) else own.fget, name))
    method: Callable[..., Any] = own

    @functools.wraps(method)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if _building.get():
            raise AsksForRows(name)
        return method(*args, **kwargs)

    return asked

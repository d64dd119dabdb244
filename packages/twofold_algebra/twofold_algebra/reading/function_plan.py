"""Gets the plan of a table's function from Spark Connect's client, without a JVM.

The function gets a stand-in for each input. The client's fields are private: they are pinned with its version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from twofold_algebra.algebra_errors import Unreadable
from twofold_algebra.plan_mistakes import ASKS_FOR_ROWS
from twofold_algebra.reading.lazy_frames import AsksForRows, method_called

_analysing: ContextVar[bool] = ContextVar("analysing", default=False)
_patching = threading.Lock()


def is_analysed() -> bool:
    """Whether a function runs to be analysed, not to compute rows."""
    return _analysing.get()


class _Session:
    """The part of a Connect session that a plan needs."""

    is_mock_session = True
    session_id = "analysis"
    _user_id = "analysis"

    def __init__(self, schema_of: Callable[[Any], Any]) -> None:
        self.client = _Client(schema_of)

    def sql(self, query: str, _: Any = None, **inputs: Any) -> Any:
        """Builds a query over its inputs, each under a name that the query itself has not."""
        from pyspark.sql.connect.dataframe import DataFrame
        from pyspark.sql.connect.plan import SQL, SubqueryAlias

        session: Any = self
        prefix = "input_"
        while prefix in query.lower():
            prefix += "_"
        names = {name: f"{prefix}{name}" for name in inputs}
        views = [SubqueryAlias(frame._plan, names[name]) for name, frame in inputs.items()]
        return DataFrame(SQL(query.format_map(names), views=views), session)


class _Client:
    """Answers with the columns of a plan, and refuses what takes Spark to answer."""

    def __init__(self, schema_of: Callable[[Any], Any]) -> None:
        self._schema_of = schema_of

    def _set_relation_in_plan(self, plan: Any, relation: Any) -> None:
        plan.root.CopyFrom(relation)

    def schema(self, plan: Any) -> Any:
        return self._schema_of(plan.root)

    def _analyze(self, method: str, **_: Any) -> None:
        if method not in ("persist", "unpersist"):
            raise AsksForRows(method_called())

    def __getattr__(self, name: str) -> Any:
        raise AsksForRows(method_called())


def _unknown_schema(_: Any) -> Any:
    raise ValueError("it asks Spark for the columns of rows")


def plan_of(
    function: Callable[..., Any], inputs: Iterable[str], schema_of: Callable[[Any], Any] = _unknown_schema
) -> Any:
    """Returns the client's plan of the function's result; each input is read as a table of its parameter's name.

    Args:
        schema_of: the columns of a plan, which the function may ask for.

    Raises:
        Unreadable: the plan cannot be had without data, and why.
    """
    try:
        with _by_client():
            from pyspark.sql.connect.dataframe import DataFrame
            from pyspark.sql.connect.plan import Read

            session: Any = _Session(schema_of)
            rows = function(**{name: DataFrame(Read(name), session) for name in inputs})
            return rows._plan.plan(session)
    except AsksForRows as error:
        raise Unreadable(ASKS_FOR_ROWS.mistake(function=error.method).message, error.method) from error
    except Exception as error:
        said = f"{type(error).__name__}: {str(error)[:80]}"
        if isinstance(error, AttributeError) and "_Session" in said:
            said = "it asks Spark's session for more than a query"
        raise Unreadable(f"{function.__name__} cannot be read without running Spark ({said})") from error


@contextmanager
def _by_client() -> Iterator[None]:
    """Makes Spark functions of this thread build plans of the client, whatever sessions the process has."""
    from pyspark.sql import utils
    from pyspark.sql.pandas import functions as vectorized

    with _patching:
        if not hasattr(utils.is_remote, "is_ours"):
            known = utils.is_remote

            def is_remote() -> bool:
                return _analysing.get() or known()

            is_remote.is_ours = True  # type: ignore[attr-defined]
            utils.is_remote = vectorized.is_remote = is_remote  # type: ignore[attr-defined]
    token = _analysing.set(True)
    try:
        yield
    finally:
        _analysing.reset(token)

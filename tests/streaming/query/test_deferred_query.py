"""What is done before a query is looked after as the query itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from twofold.streaming.query.deferred_query import DeferredQuery


class Query:
    """A query that runs until it is stopped."""

    name = "plant.ingest"

    def __init__(self) -> None:
        self.isActive = True
        self.failure: Exception | None = None

    def exception(self) -> Exception | None:
        return self.failure

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self) -> None:
        if self.failure:
            raise self.failure


def nothing(_: Callable[[], bool]) -> None:
    pass


def test_the_query_begins_when_the_fill_is_done() -> None:
    done, order = threading.Event(), []

    def fill(_: Callable[[], bool]) -> None:
        done.wait(30)
        order.append("filled")

    def start() -> Query:
        order.append("started")
        return query

    query = Query()
    filling = DeferredQuery("plant.ingest", fill, start)
    assert filling.isActive
    assert order == []
    done.set()
    filling.awaitTermination()
    assert order == ["filled", "started"]
    assert filling.isActive
    filling.stop()
    assert not filling.isActive
    assert not query.isActive


def test_a_fill_that_fails_starts_no_query_and_says_why() -> None:
    def fill(_: Callable[[], bool]) -> None:
        raise ValueError("no archive")

    started: list[Query] = []
    filling = DeferredQuery("plant.ingest", fill, lambda: started.append(Query()) or Query())
    with pytest.raises(ValueError, match="no archive"):
        filling.awaitTermination()
    assert (filling.isActive, str(filling.exception()), started) == (False, "no archive", [])


def test_a_fill_that_is_stopped_ends_early_and_starts_no_query() -> None:
    began, started = threading.Event(), []

    def fill(is_stopped: Callable[[], bool]) -> None:
        began.set()
        while not is_stopped():
            threading.Event().wait(0.01)

    filling = DeferredQuery("plant.ingest", fill, lambda: started.append(1) or Query())
    began.wait(30)
    filling.stop()
    assert (filling.isActive, filling.exception(), started) == (False, None, [])


def test_the_failure_of_the_query_is_its_own() -> None:
    query = Query()
    query.failure = ValueError("data loss")
    filling = DeferredQuery("plant.ingest", nothing, lambda: query)
    with pytest.raises(ValueError, match="data loss"):
        filling.awaitTermination()
    assert filling.exception() is query.failure

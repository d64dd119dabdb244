"""A table's function that asks Spark for rows while it is called would keep the answer of the first call."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest

from twofold_algebra.algebra_errors import Unreadable
from twofold_algebra.reading.function_plan import plan_of
from twofold_algebra.reading.lazy_frames import AsksForRows, only_lazily


class Frame:
    """What a function gets."""

    columns = ("sensor",)

    def first(self) -> list[int]:
        return [1]

    @property
    def isStreaming(self) -> bool:
        return False

    @cached_property
    def rdd(self) -> str:
        return "rows"


@pytest.mark.parametrize("asked", ["first", "isStreaming", "rdd"])
def test_a_frame_answers_only_when_no_query_is_built(asked: str) -> None:
    frame = Frame()
    with pytest.raises(AsksForRows, match=asked), only_lazily([frame]):
        _ = getattr(frame, asked) if asked != "first" else frame.first()
    with only_lazily([frame]):
        assert frame.columns == ("sensor",)
    assert (frame.first(), frame.isStreaming, frame.rdd) == ([1], False, "rows")


def test_a_plan_names_what_was_called_also_where_frames_are_refused() -> None:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import Read

    session: Any = object()
    with only_lazily([DataFrame(Read("readings"), session)]):
        pass
    with pytest.raises(Unreadable, match=r"asks Spark by first\(\)"):
        plan_of(lambda readings: readings.first(), ["readings"])

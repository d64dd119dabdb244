"""Writers of both engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.infra.delta.counts import NAME, SCHEMA
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Engine, Settings

ENGINES = [pytest.param("delta-rs"), pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def writer_to(engine: Engine, settings: Settings, request: pytest.FixtureRequest) -> Callable[..., Writer]:
    """Makes a table and its writer, which uses the engine."""
    session = request.getfixturevalue("spark") if engine == "spark" else None
    lake = Lake(replace(settings, engine=engine))

    def make(schema: pa.Schema = SCHEMA, name: str = NAME) -> Writer:
        lake.ensure(name, schema, statistics=[schema.names[0]])
        return Writer(lake, name, session)

    return make

"""The server of the copies that a module's tests make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.outputs.copies_server import Server, postgres_of_copies


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with postgres_of_copies(tmp_path_factory.mktemp("outputs") / "home") as server:
        yield server

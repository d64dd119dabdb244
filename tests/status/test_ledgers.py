"""Ledgers are described in their schemas, and by these in the lake."""

from __future__ import annotations

import pyarrow as pa
import pytest

from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake, descriptions_of
from twofold.infra.project.settings import Settings
from twofold.status.ledgers import describe_ledgers, ledger_schemas


@pytest.mark.parametrize("name", ledger_schemas())
def test_a_ledger_of_an_older_platform_is_written_and_described(settings: Settings, name: str) -> None:
    lake, schema = Lake(settings), ledger_schemas()[name]
    lake.ensure(name, pa.schema([(field.name, field.type) for field in schema]), statistics=[])
    row = pa.Table.from_pylist([{}], schema=schema)
    Writer(lake, name).append(row, CommitTag(app="older", version=1))
    describe_ledgers(lake)
    assert lake.descriptions(name) == descriptions_of(schema)
    version = lake.version(name)
    describe_ledgers(lake)
    Writer(lake, name).append(row, CommitTag(app="older", version=2))
    assert (lake.version(name), len(pa.table(lake.open(name).scan()))) == (version + 1, 2)


def test_a_new_ledger_has_its_description_and_comments(settings: Settings) -> None:
    lake = Lake(settings)
    for name, schema in ledger_schemas().items():
        lake.ensure(name, schema, statistics=[])
        description, comments = lake.descriptions(name)
        assert (description, comments) == descriptions_of(schema)
        assert description.startswith("One row per ")
        assert [*comments] == schema.names
        assert all(comments.values())
    versions = {name: lake.version(name) for name in ledger_schemas()}
    describe_ledgers(lake)
    assert {name: lake.version(name) for name in versions} == versions, "nothing is left to describe"

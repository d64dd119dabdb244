"""Declarations of captured tables are written from the database's catalog, and captures wait for tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import Server
from twofold.features.capture.operate.capture_scaffold import CapturedTable, copy_text, declared_type, write_captures
from twofold.features.capture.operate.connect_service import wait_for_tables
from twofold.features.capture.table_catalog import CatalogColumn, missing_tables
from twofold.infra.errors import BadArgument
from twofold.infra.postgres.database_connection import query
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load

SCHEMA = """
CREATE TYPE mood AS ENUM ('happy', 'sad');
CREATE DOMAIN cents AS numeric(12,2) NOT NULL;
CREATE TABLE lineitem (
    l_linenumber int, l_orderkey bigint, l_quantity numeric(15,2) NOT NULL, l_shipdate date NOT NULL, l_comment text,
    l_tax cents, exact numeric, wide numeric(60,2), small smallint, ratio real, flag char(1), code varchar(10),
    ok boolean,
    at timestamptz(3), local_at timestamp, clock time, doc jsonb, photo bytea, token uuid, feeling mood, tags text[],
    big bigint[], span interval, slots tstzrange, price money, "Mixed" int, "with space" int, place point, "class" int,
    twice numeric(15,2) GENERATED ALWAYS AS (l_quantity * 2) VIRTUAL,
    PRIMARY KEY (l_orderkey, l_linenumber));
ALTER TABLE lineitem DROP COLUMN ok;
CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name text NOT NULL);
CREATE TABLE keyless (id int);
CREATE TABLE by_ratio (ratio float8 PRIMARY KEY);
"""
COLUMNS = {
    "l_linenumber": "int",
    "l_orderkey": "long",
    "l_quantity": "decimal(15,2)?",
    "l_shipdate": "date?",
    "l_comment": "string?",
    "l_tax": "decimal(12,2)?",
    "exact": "string?",
    "wide": "string?",
    "small": "int?",
    "ratio": "double?",
    "flag": "string?",
    "code": "string?",
    "at": "timestamp?",
    "local_at": "timestamp_ntz?",
    "clock": "long?",
    "doc": "json?",
    "photo": "binary?",
    "token": "string?",
    "feeling": "string?",
    "tags": "array<string?>?",
    "big": "array<long?>?",
    "span": "string?",
    "slots": "string?",
    "price": "decimal(19,2)?",
    "Mixed": "int?",
}


@pytest.fixture(scope="module")
def database(postgres: Server) -> Settings:
    """A PostgreSQL with a table of many types."""
    return postgres.with_tables(SCHEMA)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tables" / "tpch").mkdir(parents=True)
    return tmp_path


def declared(root: Path) -> Registry:
    registry = load(root / "tables")
    assert not registry.faults
    return registry


@pytest.mark.platform
def test_topics_and_copies_follow_the_catalog(database: Settings, root: Path) -> None:
    lineitem, nation = write_captures(database, ["public.lineitem", "public.nation"], domain="tpch", root=root)
    registry = declared(root)
    topic = registry.find_topic("tpch.lineitem_changes")
    assert topic.captures == "public.lineitem"
    assert {name: kind for name, kind in topic.schema.items() if not name.startswith("cdc_")} == COLUMNS
    assert list(lineitem.left_out) == ["with space", "place", "class", "twice"]
    assert {*COLUMNS} <= {*registry.descriptions["tpch.lineitem_changes"]}
    copy = registry.find_table("tpch.lineitem")
    assert {*registry.descriptions["tpch.lineitem"]} == {*COLUMNS}
    assert (copy.primary_key, copy.recompute_by) == (("l_orderkey", "l_linenumber"),) * 2
    assert [rule.columns for rule in copy.checks] == [("l_quantity",), ("l_shipdate",), ("l_tax",)]
    assert (nation.columns, nation.not_null) == ({"n_nationkey": "int", "n_name": "string"}, ["n_name"])


@pytest.mark.platform
def test_what_is_written_is_formatted(database: Settings, root: Path) -> None:
    write_captures(database, ["public.lineitem", "public.nation"], domain="tpch", root=root)
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--diff", "--line-length=120", root],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.platform
@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (["public.nation", "public.nations"], "has no table public.nations"),
        (["public.keyless"], "public.keyless has no primary key"),
        (["public.by_ratio"], "has ratio double precision; expected a single exact value"),
        (["nation"], "expected a table as `schema.name`"),
    ],
)
def test_of_tables_with_a_mistake_among_them_none_is_written(
    database: Settings, root: Path, tables: list[str], message: str
) -> None:
    with pytest.raises(BadArgument, match=message):
        write_captures(database, tables, domain="tpch", root=root)
    assert list(root.rglob("*.py")) == []


@pytest.mark.platform
def test_nothing_is_overwritten_and_the_domain_must_be_there(database: Settings, root: Path) -> None:
    write_captures(database, ["public.nation"], domain="tpch", root=root)
    with pytest.raises(BadArgument, match="is declared already"):
        write_captures(database, ["public.nation"], domain="tpch", root=root)
    with pytest.raises(BadArgument, match="There is no domain 'tpcds'"):
        write_captures(database, ["public.nation"], domain="tpcds", root=root)


@pytest.mark.platform
def test_up_says_which_tables_it_waits_for(database: Settings, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_captures(database, ["public.nation"], domain="tpch", root=root)
    changes = root / "tables/tpch/nation_changes.py"
    for name in ("region", "part"):
        changes.with_name(f"{name}_changes.py").write_text(
            changes.read_text().replace("public.nation", f"public.{name}")
        )
    registry = declared(root)
    assert missing_tables(database, ["public.region", "public.nation", "public.part"]) == [
        "public.region",
        "public.part",
    ]
    wait_for_tables(database, registry)
    said = capsys.readouterr().out
    at = f"in the database postgres at 127.0.0.1:{database.database_port}"
    assert said.startswith(f"! Waiting to capture public.part, public.region {at}. All else runs.\n")
    assert said.count("public.region") == 1
    query(database, "CREATE TABLE region (id int); CREATE TABLE part (id int)")
    wait_for_tables(database, registry)
    assert capsys.readouterr().out == ""
    query(database, "DROP TABLE region; DROP TABLE part")


@pytest.mark.parametrize(
    ("type", "kind", "declared"),
    [
        ("numeric(38,0)", "b", "decimal(38,0)"),
        ("numeric(2,3)", "b", "string"),
        ("mood[]", "b", None),
        ("ip4", "c", None),
    ],
)
def test_a_type_without_a_fitting_one_is_text_or_left_out(type: str, kind: str, declared: str | None) -> None:
    column = CatalogColumn(name="a", type=type, kind=kind, not_null=False, is_virtual=False, key=None)
    assert declared_type(column) == declared


def test_a_table_of_nothing_but_its_key_has_a_copy() -> None:
    text = copy_text(CapturedTable(table="public.tags", columns={"tag": "string"}, key=["tag"]))
    assert 'return latest_rows(tags_changes, key=["tag"], columns=[])' in text

"""Declarations of TPC-H as an engineer writes them: its tables as topics and their copies, its queries verbatim."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from tests.kinds.tpch.tpch_database import KEYS, Change, TpchDatabase, batches
from tests.tables.declared import written
from twofold.tables.declare.registry import Registry, load
from twofold.testing.worlds import World

Source = Literal["captured", "plain"]

_PREFIX = "query_"
_AT_ONCE = 4
_TYPES = {"BIGINT": "long", "INTEGER": "int", "VARCHAR": "string", "DATE": "date", "DECIMAL(15,2)": "decimal(15,2)"}

_CAPTURED = '''\
"""Changes of {table} in the database."""
from twofold import changes_of

TOPIC = changes_of("public.{table}", columns={columns}, primary_key={key})
'''
_COPY = '''\
"""{table}, as the database has it."""
from twofold import latest_rows, table


@table(primary_key={key}, recompute_by={key})
def {table}({table}_log):
    return latest_rows({table}_log, key={key}, columns={others})
'''
_PLAIN = '''\
"""Versions of the rows of {table}."""
from twofold import Topic

TOPIC = Topic(
    schema={columns},
    event_time="changed_at",
    message_key="{first}",
    dedup_keys={identity},
)
'''
_NEWEST = '''\
"""The newest version of each row of {table}."""
from twofold import table


@table(primary_key={key}, sequence_by=["changed_at"], recompute_by={key})
def {table}({table}_log):
    return {table}_log
'''
_QUERY = '''\
"""Query {number} of TPC-H."""
from twofold import sql, table

QUERY = """
WITH {relations}
SELECT {columns} FROM (
{query}
) AS answer ({names})
"""


@table({parameters})
def {name}({inputs}):
    return sql(QUERY, {given})
'''


@dataclass(frozen=True)
class Parameters:
    """What an engineer says of a query: SQL text is not read.

    Attributes:
        key: the columns that identify a row of the answer; none: there is one row.
        recompute_by: of these, those of whose value a row depends alone.
    """

    key: Sequence[str] = ()
    recompute_by: Sequence[str] = ()


QUERIES: Mapping[int, Parameters] = {
    1: Parameters(("l_returnflag", "l_linestatus"), ("l_returnflag", "l_linestatus")),
    2: Parameters(("p_partkey", "s_name")),
    3: Parameters(("l_orderkey",)),
    4: Parameters(("o_orderpriority",), ("o_orderpriority",)),
    5: Parameters(("n_name",), ("n_name",)),
    6: Parameters(),
    7: Parameters(("supp_nation", "cust_nation", "l_year")),
    8: Parameters(("o_year",)),
    9: Parameters(("nation", "o_year")),
    10: Parameters(("c_custkey",)),
    11: Parameters(("ps_partkey",)),
    12: Parameters(("l_shipmode",), ("l_shipmode",)),
    13: Parameters(("c_count",)),
    14: Parameters(),
    15: Parameters(("s_suppkey",)),
    16: Parameters(("p_brand", "p_type", "p_size"), ("p_brand", "p_type", "p_size")),
    17: Parameters(),
    18: Parameters(("o_orderkey",)),
    19: Parameters(),
    20: Parameters(("s_name",)),
    21: Parameters(("s_name",)),
    22: Parameters(("cntrycode",)),
}


def declared(folder: Path, database: TpchDatabase, source: Source, numbers: Iterable[int]) -> Registry:
    """The domain `tpch`: these queries, with what they read."""
    numbers = list(numbers)
    read = {table for number in numbers for table in inputs_of(database.query(number))}
    files = {f"tpch/{name_of(number)}.py": _query_file(database, source, number) for number in numbers}
    for table in read:
        log, copy = _table_files(database, source, table)
        files |= {f"tpch/{table}_log.py": log, f"tpch/{table}.py": copy}
    return load(written(folder, files)).require_sound()


def take_in(world: World) -> None:
    """Let all tables take in what is there, a few queries at a time: a driver gives them turns, too."""
    names = list(world.registry.tables)
    queries = [name for name in names if name.startswith(f"tpch.{_PREFIX}")]
    world.maintain(name for name in names if name not in queries)
    for first in range(0, len(queries), _AT_ONCE):
        world.maintain(queries[first : first + _AT_ONCE])


def name_of(number: int) -> str:
    return f"{_PREFIX}{number}"


def inputs_of(query: str) -> list[str]:
    """The tables that a query reads."""
    return [table for table in KEYS if re.search(rf"\b{table}\b", query)]


def column_names(names: Sequence[str]) -> list[str]:
    """The columns of an answer: one is an expression in the published text, which no table may call a column."""
    return [re.sub(r"\W+", "_", name).strip("_") for name in names]


def records(source: Source, changes: Sequence[Change], version: int) -> dict[str, list[bytes]]:
    """Topic -> the records that say the changes.

    Args:
        version: counts the transactions of the database; their changes have it.
    """
    record = _captured if source == "captured" else _plain
    return {
        f"{table}_log": [record(change, version, number) for number, change in enumerate(of_table)]
        for table, of_table in batches(changes)
    }


def _table_files(database: TpchDatabase, source: Source, table: str) -> tuple[str, str]:
    key = list(KEYS[table])
    types = {name: _TYPES[kind] for name, kind in database.columns(table).items()}
    facts = {"table": table, "key": key, "others": [name for name in types if name not in key]}
    if source == "captured":
        return _CAPTURED.format(columns=types, **facts), _COPY.format(**facts)
    types |= {"changed_at": "timestamp", "is_deleted": "boolean"}
    return _PLAIN.format(columns=types, first=key[0], identity=key, **facts), _NEWEST.format(**facts)


def _query_file(database: TpchDatabase, source: Source, number: int) -> str:
    query, parameters = database.query(number), QUERIES[number]
    inputs = inputs_of(query)
    names = column_names(database.answer(number)[0])
    is_there = "" if source == "captured" else " WHERE NOT is_deleted"
    key = list(parameters.key) or ["one"]
    return _QUERY.format(
        number=number,
        name=name_of(number),
        relations=", ".join(f"{table} AS (SELECT * FROM {{{table}}}{is_there})" for table in inputs),
        columns="*" if parameters.key else "1 AS one, *",
        names=", ".join(names),
        query=query,
        parameters=f"primary_key={key}, recompute_by={list(parameters.recompute_by)}",
        inputs=", ".join(inputs),
        given=", ".join(f"{table}={table}" for table in inputs),
    )


def _captured(change: Change, version: int, number: int) -> bytes:
    """The change as Debezium writes it."""
    image = "before" if change.operation == "delete" else "after"
    lsn = version * 1_000_000 + number
    source = {
        "name": f"twofold_1_tpch_{change.table}_log",
        "sequence": json.dumps(
            [None if change.operation == "snapshot" else str(version * 1_000_000 + 999_999), str(lsn)]
        ),
        "lsn": lsn,
        "ts_us": version * 1_000_000,
        "txId": version,
        "snapshot": "true" if change.operation == "snapshot" else "false",
        "table": change.table,
    }
    operation = {"snapshot": "r", "insert": "c", "update": "u", "delete": "d"}[change.operation]
    row = {
        name: (value - date(1970, 1, 1)).days if isinstance(value, date) else value
        for name, value in change.row.items()
    }
    return _json({"before": None, "after": None, image: row, "op": operation, "source": source})


def _plain(change: Change, version: int, number: int) -> bytes:
    at = date(2026, 1, 1) + timedelta(days=version)
    return _json({**change.row, "changed_at": f"{at}T00:00:00Z", "is_deleted": change.operation == "delete"})


def _json(value: object) -> bytes:
    return json.dumps(value, default=_as_text).encode()


def _as_text(value: Any) -> str:
    assert isinstance(value, date | Decimal)
    return str(value)

"""A copy in a real PostgreSQL has exactly the rows of its table, each change once, whatever is killed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.postgres import Server
from twofold import to_postgres
from twofold.features.outputs import next_step as reading
from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.refused_rows import REFUSED
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets import postgres_copy
from twofold.features.outputs.targets.postgres_copy import PostgresCopy
from twofold.features.outputs.targets.postgres_output import COPIES
from twofold.features.outputs.tests.followed_table import FollowedTable, hour
from twofold.features.outputs.tests.killed_steps import killed_after
from twofold.features.outputs.tests.moved_outputs import MovedOutput, Row
from twofold.features.outputs.tests.revealed_table import RevealedTable, mail_of
from twofold.features.outputs.tests.targets.target_contract import Kind, TargetContract
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting, DatabaseUnreachable, StatementRefused, TryAgain
from twofold.infra.postgres import postgres_server
from twofold.infra.postgres.database_connection import Connection, connected_to, supervised_address
from twofold.tables.output_view import KEY
from twofold.tables.refresh.row_diff import difference

pytestmark = pytest.mark.platform
STATEMENTS = [(Connection, "execute")]


@pytest.fixture
def copy(postgres: Server) -> PostgresCopy:
    postgres.without_copies("plant")
    return copy_of(postgres)


def copy_of(postgres: Server, table: str = "plant.hours") -> PostgresCopy:
    return PostgresCopy(Lake(postgres.settings), Place(table, "hours", "postgres", ""), to_postgres())


@pytest.fixture
def followed(lake: Lake) -> FollowedTable:
    return FollowedTable(lake)


class TestContract(TargetContract):
    @pytest.fixture
    def kind(self, postgres: Server) -> Kind:
        at = supervised_address(postgres.settings, COPIES)

        def rows(moved: MovedOutput, columns: Sequence[str]) -> list[Row]:
            names = [name for (name,) in postgres.run("SELECT tablename FROM pg_tables WHERE schemaname = 'plant'")]
            if moved.output.name not in names:
                return []
            found = postgres.run(f"SELECT {', '.join(columns)} FROM plant.{moved.output.name}")
            return [dict(zip(columns, map(in_utc, row), strict=True)) for row in found]

        def folders() -> list[Path]:
            """The log of the database is kept elsewhere; it gathers statistics by itself, too, with values in them."""
            postgres.run("ANALYZE")
            postgres.run("CHECKPOINT")
            [(oid,)] = postgres.run("SELECT oid FROM pg_database WHERE datname = current_database()")
            return [postgres_server.data_directory(postgres.settings) / "base" / str(oid)]

        return Kind(
            output=to_postgres(destination="there"),
            address=f"postgresql://{at.user}:{at.password}@{at.host}:{at.port}/{at.dbname}",
            rows=rows,
            writes=[*STATEMENTS, (StateFile, "note_position")],
            folders=folders,
        )


def in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


NESTED = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.float64())), ("c", pa.decimal128(5, 2))])
LARGEST = Decimal("1234567890123456789012345678.0123456789")
SPRING = datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "flag": (pa.bool_(), "boolean", [True, False, None]),
    "tiny": (pa.int8(), "smallint", [-128, 127, None]),
    "small": (pa.int16(), "smallint", [-(2**15), 2**15 - 1, None]),
    "whole": (pa.int32(), "integer", [-(2**31), 2**31 - 1, None]),
    "large": (pa.int64(), "bigint", [-(2**63), 2**63 - 1, None]),
    "single": (pa.float32(), "real", [0.25, float("inf"), None]),
    "double": (pa.float64(), "double precision", [1 / 3, -1e300, 5e-324]),
    "exact": (pa.decimal128(38, 10), "numeric(38,10)", [LARGEST, Decimal("-1e-10"), None]),
    "text": (pa.string(), "text", ["ünï 😀", "\\.", "\t\r\n\x01"]),
    "bytes": (pa.binary(), "bytea", [b"\x00\xff\\", b"", None]),
    "day": (pa.date32(), "date", [date(1, 1, 1), date(9999, 12, 31), None]),
    "instant": (pa.timestamp("us", "UTC"), "timestamp with time zone", [datetime(1, 1, 1, tzinfo=UTC), SPRING, None]),
    "local": (pa.timestamp("us"), "timestamp without time zone", [datetime(1, 1, 1), datetime.max, None]),
}
"""Column -> its type in Delta, in PostgreSQL, and values of it."""


def typed_rows(**more: tuple[pa.DataType, list[Any]]) -> pa.Table:
    columns = {name: pa.array(values, kind) for name, (kind, _, values) in VALUES.items()}
    columns |= {name: pa.array(values, kind) for name, (kind, values) in more.items()}
    return pa.table({"k": ["a", "b", "c"], **columns})


def follow_rows(followed: FollowedTable, copy: PostgresCopy, rows: pa.Table) -> None:
    followed.overwrite(rows)
    followed.follow(copy)


def test_values_of_all_types_are_the_same_in_postgresql(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    follow_rows(followed, copy, typed_rows())
    named = ", ".join(f'"{name}"' for name in VALUES)
    rows = postgres.run(f"SELECT {named} FROM plant.hours ORDER BY k")
    assert {name: [row[n] for row in rows] for n, name in enumerate(VALUES)} == {
        name: [pa.scalar(value, kind).as_py() for value in values] for name, (kind, _, values) in VALUES.items()
    }
    types = postgres.run(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'plant.hours'::regclass AND attnum > 0",
    )
    assert dict(types) == {KEY: "text", "k": "text", **{name: kind for name, (_, kind, _) in VALUES.items()}}


def test_nested_values_are_json(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    value = {"a": [1, None], "b": [("x", float("nan")), ("y", 1.5)], "c": Decimal("1.50")}
    follow_rows(followed, copy, typed_rows(nested=(NESTED, [value, None, {"a": None, "b": [], "c": None}])))
    assert postgres.run("SELECT nested FROM plant.hours ORDER BY k") == [
        ({"a": [1, None], "b": [["x", "NaN"], ["y", 1.5]], "c": "1.50"},),
        (None,),
        ({"a": None, "b": [], "c": None},),
    ]


def test_what_is_read_back_is_what_was_sent(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    """All types, years beyond Python's too."""
    far = pa.array([-(10**17), 10**17, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    days = pa.array([-900_000, 90_000_000, 0], pa.int32()).cast(pa.date32())
    value = {"a": [1, None], "b": [("x", float("nan")), ("y", 1.5)], "c": Decimal("1.50")}
    rows = typed_rows(nested=(NESTED, [value, None, {"a": None, "b": [], "c": None}]))
    rows = rows.append_column("far", far).append_column("days", days)
    write_rows(followed, rows)
    followed.follow(copy)
    view = reading.View.declared(followed.table, followed.output).rows(rows, None)
    pages = [copy.sent(view.schema, page, 2) for page in range(2)]
    assert len(difference(view, pa.concat_tables(pages), [KEY])) == 0
    assert postgres.run("SELECT far::text FROM plant.hours ORDER BY k LIMIT 1") == [("1200-02-15 14:13:20+00 BC",)]


def write_rows(followed: FollowedTable, rows: pa.Table) -> None:
    from deltalake import write_deltalake

    write_deltalake(followed.lake.uri(followed.name), rows, mode="overwrite", schema_mode="overwrite")


def test_a_row_that_postgresql_cannot_hold_is_noted_and_absent(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    incompressible = "".join(sha256(bytes([n])).hexdigest() for n in range(100))
    far = pa.array([0, -(2**62), 0, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"k": ["good", "far", "nul \0", incompressible], "n": [1, 2, 3, 4], "closes_at": far})
    followed.put(("good", 0, None), ("far", 0, None))
    followed.follow(copy)
    write_rows(followed, rows)
    followed.follow(copy)
    assert postgres.run("SELECT k, n FROM plant.hours") == [("good", 1)]
    refused = pa.table(copy._lake.open(REFUSED).scan()).to_pylist()
    assert sorted((row["key"][:8], row["reason"][:29]) for row in refused) == [
        ('{"k":"6e', "index row size 6424 exceeds b"),
        ('{"k":"fa', 'timestamp out of range: "1441'),
        ('{"k":"nu', "invalid byte sequence for enc"),
    ]


def test_a_name_that_needs_quotes_is_one(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    odd = ['order "by" 100%s', "Zone", "{0}", "select"]
    rows = pa.table({"k": ["a"], **{name: [n] for n, name in enumerate(odd)}})
    follow_rows(followed, copy, rows)
    view = reading.View.declared(followed.table, followed.output).rows(rows, None)
    assert copy.sent(view.schema, 0, 1).to_pylist() == view.to_pylist()


def test_a_table_that_is_no_copy_is_left_alone(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    postgres.run("CREATE SCHEMA plant; CREATE TABLE plant.hours (k text)")
    with pytest.raises(BadSetting, match=r'"plant"."hours" is in the database outputs .* and is no copy of a table'):
        followed.follow(copy)
    assert postgres.run("SELECT * FROM plant.hours") == []


def test_the_copy_of_another_output_is_left_alone(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    followed.follow(copy)
    with pytest.raises(BadSetting, match=r"is the copy of plant\.hours: hours"):
        followed.follow(copy_of(postgres, "plant.days"))
    copy_of(postgres, "plant.days").erase()
    assert copy.position() is not None


def test_a_copy_that_was_dropped_is_made_again(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    followed.put(("a", 1, None))
    followed.follow(copy)
    postgres.run("DROP TABLE plant.hours")
    followed.follow(copy)
    assert postgres.run("SELECT k, n FROM plant.hours") == [("a", 1)]


def test_columns_come_and_go_in_the_transaction_of_their_rows(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    followed.with_output(columns=["n"])
    followed.put(("a", 1, hour(1)))
    followed.follow(copy)
    postgres.run("ALTER TABLE plant.hours ADD COLUMN mine text DEFAULT 'x'")
    followed.with_output(columns=["closes_at"])
    followed.follow(copy)
    assert postgres.run("SELECT n, closes_at, mine FROM plant.hours") == [(None, hour(1), "x")]


def test_a_column_gets_its_new_type(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    followed.put(("a", 1, hour(1)), ("b", 2, None))
    followed.follow(copy)
    follow_rows(
        followed,
        copy,
        pa.table({"k": ["a", "b"], "n": ["1", "x"], "closes_at": pa.array([hour(1), None], pa.timestamp("us", "UTC"))}),
    )
    assert postgres.run("SELECT k, n, closes_at FROM plant.hours ORDER BY k") == [("a", "1", hour(1)), ("b", "x", None)]


@pytest.mark.parametrize("statements", [2, 6, 10])
def test_a_server_killed_in_a_step_has_all_of_it_or_nothing(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable, statements: int
) -> None:
    def kill() -> None:
        postgres.kill()

    followed.put(("a", 0, None))
    followed.follow(copy)
    followed.put(("a", 1, None), ("b", 1, None))
    with killed_after(statements, STATEMENTS, kill):
        followed.follow(copy)
        raise AssertionError("it went on")
    with pytest.raises(DatabaseUnreachable) as failure:
        copy.position()
    assert isinstance(failure.value, TryAgain)
    postgres.start()
    followed.follow(copy)
    assert postgres.run("SELECT k, n FROM plant.hours ORDER BY k") == [("a", 1), ("b", 1)]


def test_what_a_trigger_of_the_owner_says_is_in_no_log(postgres: Server, copy: PostgresCopy, lake: Lake) -> None:
    people = RevealedTable(lake)
    people.put("ann")
    people.follow(copy)
    postgres.run(
        "CREATE OR REPLACE FUNCTION plant.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no %', NEW.mail; END $$; "
        "CREATE TRIGGER refused BEFORE INSERT ON plant.hours FOR EACH ROW EXECUTE FUNCTION plant.refuse()"
    )
    people.put("bob")
    with pytest.raises(StatementRefused, match="P0001") as refused:
        people.follow(copy)
    assert mail_of("bob") not in str(refused.value)
    assert mail_of("bob") not in postgres.log.read_text()


@pytest.fixture
def people(copy: PostgresCopy, lake: Lake) -> RevealedTable:
    """Two persons, whose copy does not know yet that the first one is forgotten."""
    people = RevealedTable(lake)
    people.put("person1", "person2")
    people.follow(copy)
    people.forget("person1")
    return people


def test_an_erasure_takes_its_time_and_waits_for_no_reader_long(
    postgres: Server, copy: PostgresCopy, people: RevealedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is cancelled begins again for ever, and one that waits for a reader has all others wait."""
    limits: list[Any] = []
    execute = Connection.execute

    def noted(self: Connection, statement: Any, *values: Any) -> Any:
        if str(statement).startswith("VACUUM"):
            shown = ("statement_timeout", "lock_timeout")
            limits.extend(execute(self, f"SHOW {name}").fetchone()[0] for name in shown)  # type: ignore[index]
        return execute(self, statement, *values)

    monkeypatch.setattr(Connection, "execute", noted)
    monkeypatch.setattr(postgres_copy, "_LOCK_S", 0.2)
    with connected_to(copy.at, hint="") as reader, reader.transaction():
        reader.execute("SELECT * FROM plant.hours")
        with pytest.raises(StatementRefused, match="due to lock timeout"):
            people.follow(copy)
        assert dict(postgres.run("SELECT k, mail FROM plant.hours")) == people.without("person1")
    people.follow(copy)
    assert limits == ["1d", "200ms"] * 2

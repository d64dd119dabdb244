"""A copy in a real PostgreSQL has exactly the rows of its table, each change once, whatever is killed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from tests.outputs.followed_table import SCHEMA, FollowedTable, hour, key_of
from tests.outputs.killed_steps import check_killed_steps, killed_after
from tests.outputs.revealed_table import RevealedTable, mail_of
from tests.outputs.test_next_step import EVENTS, run_events, small_pages
from tests.support.personal_search import found_in
from tests.support.postgres import Server
from twofold import to_postgres
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting, DatabaseUnreachable, StatementRefused, TryAgain, WriteConflict
from twofold.infra.postgres import postgres_server
from twofold.infra.postgres.database_connection import Connection, connected_to, supervised_address
from twofold.infra.project.settings import Settings
from twofold.outputs import next_step as reading
from twofold.outputs.refused_rows import Refused
from twofold.outputs.targets import postgres_copy
from twofold.outputs.targets.postgres_copy import PostgresCopy
from twofold.outputs.view import KEY
from twofold.tables.refresh.row_diff import difference

__all__ = ["small_pages"]

pytestmark = pytest.mark.platform


@pytest.fixture
def copy(postgres: Server) -> PostgresCopy:
    postgres.without_copies("plant")
    return new_copy(postgres)


def new_copy(postgres: Server, **changes: Any) -> PostgresCopy:
    copy = PostgresCopy(
        at=supervised_address(postgres.settings, "outputs"),
        schema="plant",
        name="hours",
        owner="plant.hours: hours",
        note_refused=lambda refused, after: None,
    )
    return replace(copy, **changes)


@pytest.fixture
def followed(lake: Lake) -> FollowedTable:
    return FollowedTable(lake)


def rows_of(postgres: Server, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted(postgres.run(f"SELECT {', '.join([KEY, *columns])} FROM plant.hours"), key=repr)


def test_a_copy_has_the_rows_and_the_columns_of_its_table(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    followed.put(("a", 1, hour(1)), ('it\'s \\ "so",\n', None, None), (None, 2**62, hour(-1)), ("", 0, None))
    followed.follow(copy)
    assert postgres.run("SELECT k, n, closes_at FROM plant.hours ORDER BY n") == [
        ("", 0, None),
        ("a", 1, hour(1)),
        (None, 2**62, hour(-1)),
        ('it\'s \\ "so",\n', None, None),
    ]
    followed.put(("a", 2, hour(1)))
    followed.remove("")
    followed.follow(copy)
    assert postgres.run("SELECT k, n FROM plant.hours ORDER BY n LIMIT 1") == [("a", 2)]
    assert postgres.run("SELECT count(*) FROM plant.hours") == [(3,)]


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
    noted: list[Refused] = []
    incompressible = "".join(sha256(bytes([n])).hexdigest() for n in range(100))
    copy = replace(copy, note_refused=lambda refused, after: noted.extend(refused))
    far = pa.array([0, -(2**62), 0, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"k": ["good", "far", "nul \0", incompressible], "n": [1, 2, 3, 4], "closes_at": far})
    followed.put(("good", 0, None), ("far", 0, None))
    followed.follow(copy)
    write_rows(followed, rows)
    followed.follow(copy)
    assert rows_of(postgres, ["n"]) == [(key_of("good"), 1)]
    assert sorted((r.key[:8], r.reason[:29]) for r in noted) == [
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


def test_a_process_that_is_behind_another_changes_nothing(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    followed.put(("a", 1, None))
    step = reading.next_step(followed.lake, followed.table, followed.output, None, copy)
    assert step is not None
    followed.follow(copy)
    with pytest.raises(WriteConflict, match="another process has moved the copy"):
        copy.send(step.changes, step.before, step.after)
    assert rows_of(postgres, ["n"]) == [(key_of("a"), 1)]


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
        followed.follow(replace(copy, owner="plant.days: hours"))


def test_a_copy_that_was_dropped_is_made_again(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    followed.put(("a", 1, None))
    followed.follow(copy)
    postgres.run("DROP TABLE plant.hours")
    followed.follow(copy)
    assert rows_of(postgres, ["n"]) == [(key_of("a"), 1)]


def test_an_edited_copy_is_compared_and_repaired(postgres: Server, copy: PostgresCopy, followed: FollowedTable) -> None:
    followed.put(("a", 1, hour(1)), ("b", 1, None), ("c", 1, None))
    followed.follow(copy)
    postgres.run("UPDATE plant.hours SET closes_at = 'infinity' WHERE k = 'a'")
    postgres.run("DELETE FROM plant.hours WHERE k = 'b'")
    count_changes(postgres)
    at = copy.position()
    assert at is not None
    copy.send(reading.next_step(followed.lake, followed.table, followed.output, None, copy).changes, at, at.unknown())
    followed.follow(copy)
    assert postgres.run("SELECT k, n, closes_at FROM plant.hours ORDER BY k") == [
        ("a", 1, hour(1)),
        ("b", 1, None),
        ("c", 1, None),
    ]
    assert postgres.run("SELECT op, k FROM seen ORDER BY k, op") == [("DELETE", "a"), ("INSERT", "a"), ("INSERT", "b")]


def count_changes(postgres: Server) -> None:
    """Record each change of a row of the copy, within its transaction."""
    postgres.run(
        """
        DROP TABLE IF EXISTS seen;
        CREATE TABLE seen (op text, k text, n bigint);
        CREATE OR REPLACE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO public.seen SELECT TG_OP, coalesce(NEW.k, OLD.k), coalesce(NEW.n, OLD.n); RETURN NULL; END $$;
        CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON plant.hours FOR EACH ROW EXECUTE FUNCTION see();
        """,
    )


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


STATEMENTS = [(Connection, "execute")]


def take_seen(postgres: Server) -> list[tuple[Any, ...]]:
    return sorted(postgres.run("DELETE FROM seen RETURNING op, k, n"))


def test_a_process_killed_at_any_statement_changes_each_row_once(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    followed.put(("a", 0, None), ("b", 0, None))
    followed.follow(copy)
    count_changes(postgres)
    statements, ran = 0, [""]
    while len(ran) >= statements:  # until it ends before it is killed
        statements += 1
        followed.put(("a", statements, None), (f"new {statements}", statements, None))
        with killed_after(statements, STATEMENTS) as ran:
            followed.follow(copy)
        followed.follow(copy)
        changed = [("DELETE", "a", statements - 1), ("INSERT", "a", statements)]
        assert take_seen(postgres) == [*changed, ("INSERT", f"new {statements}", statements)]
    assert statements > 10
    at = copy.position()
    assert at is not None
    assert rows_of(postgres, SCHEMA.names) == followed.expected(at)


def test_a_row_of_a_killed_step_is_gone_once_its_table_went_back(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable
) -> None:
    def opened() -> ReadCopy:
        return ReadCopy(**vars(copy), postgres=postgres)

    assert check_killed_steps(followed, opened, STATEMENTS) > 10


@pytest.mark.parametrize("statements", [2, 6, 10])
def test_a_server_killed_in_a_step_has_all_of_it_or_nothing(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable, statements: int
) -> None:
    def kill() -> None:
        postgres.kill()

    followed.put(("a", 0, None))
    followed.follow(copy)
    count_changes(postgres)
    followed.put(("a", 1, None), ("b", 1, None))
    with killed_after(statements, STATEMENTS, kill):
        followed.follow(copy)
        raise AssertionError("it went on")
    with pytest.raises(DatabaseUnreachable) as failure:
        copy.position()
    assert isinstance(failure.value, TryAgain)
    postgres.start()
    followed.follow(copy)
    assert take_seen(postgres) == [("DELETE", "a", 0), ("INSERT", "a", 1), ("INSERT", "b", 1)]


def test_a_snapshot_killed_between_pages_goes_on_while_rows_change(
    postgres: Server, copy: PostgresCopy, followed: FollowedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 5)
    followed.put(*((f"k{n}", 0, None) for n in range(30)))
    followed.step(copy)
    followed.step(copy)
    count_changes(postgres)
    for number in range(1, 6):
        with killed_after(3 * number, STATEMENTS):
            followed.step(copy)
        followed.put((f"k{number}", number, None))
    followed.follow(copy)
    at = copy.position()
    assert at is not None
    assert rows_of(postgres, SCHEMA.names) == followed.expected(at)
    inserted = [(k, n) for op, k, n in take_seen(postgres) if op == "INSERT"]
    assert len(inserted) == len(set(inserted))


@pytest.mark.usefixtures("small_pages")
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=10))
def test_a_copy_equals_its_table_whatever_happens(postgres: Server, events: list[tuple[str, Any]]) -> None:
    postgres.without_copies("plant")
    copy = ReadCopy(**vars(new_copy(postgres)), postgres=postgres)
    with TemporaryDirectory() as home:
        run_events(FollowedTable(Lake(Settings(home=Path(home) / "home"))), copy, events)


@dataclass(frozen=True, kw_only=True)
class ReadCopy(PostgresCopy):
    """A copy that tests read."""

    postgres: Server

    def rows(self, columns: list[str]) -> list[tuple[Any, ...]]:
        return rows_of(self.postgres, list(columns))


def test_what_was_revealed_of_a_forgotten_person_is_in_no_file_of_the_copy(
    postgres: Server, copy: PostgresCopy, lake: Lake
) -> None:
    people = RevealedTable(lake)
    names = [f"person{number}" for number in range(30)]
    people.put(*names)
    people.follow(copy)
    gone = names[:5]
    mails = [mail_of(name) for name in names[:6]]
    base = postgres_server.data_directory(postgres.settings) / "base"  # the log of the database is kept elsewhere
    postgres.run("CHECKPOINT")
    assert set(found_in([base], mails)) == set(mails), "the search of bytes finds what is there"
    rows = postgres.run("SELECT * FROM plant.hours")
    people.forget(*gone)
    people.put("person9", mail="new")
    people.follow(copy)
    assert dict(postgres.run("SELECT k, mail FROM plant.hours")) == people.without(*gone)
    kept = {row for row in rows if not any(name in row for name in [*gone, "person9"])}
    assert len(kept) == 24
    assert kept <= set(postgres.run("SELECT * FROM plant.hours"))
    postgres.run("CHECKPOINT")
    assert set(found_in([base], mails)) == {mails[5]}


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


def test_no_file_has_what_a_copy_showed_that_reveals_no_more(postgres: Server, copy: PostgresCopy, lake: Lake) -> None:
    people = RevealedTable(lake)
    people.put("carol", "dora")
    people.follow(copy)
    base, mails = postgres_server.data_directory(postgres.settings) / "base", [mail_of("carol"), mail_of("dora")]
    postgres.run("CHECKPOINT")
    assert set(found_in([base], mails)) == set(mails)
    people.output = to_postgres()
    people.follow(copy)
    postgres.run("CHECKPOINT")
    assert found_in([base], mails) == {}
    people.output = to_postgres(reveal=["mail"])
    people.follow(copy)
    replace(copy, owner="plant.hours: another").erase()
    assert len(postgres.run("SELECT mail FROM plant.hours")) == 2, "the copy of another output stays"
    copy.erase()
    copy.erase()
    assert copy.position() is None
    postgres.run("CHECKPOINT")
    assert found_in([base], mails) == {}


@pytest.fixture
def people(copy: PostgresCopy, lake: Lake) -> RevealedTable:
    """Two persons, whose copy does not know yet that the first one is forgotten."""
    people = RevealedTable(lake)
    people.put("person1", "person2")
    people.follow(copy)
    people.forget("person1")
    return people


def test_files_with_what_was_revealed_are_replaced_after_a_crash_too(
    postgres: Server, copy: PostgresCopy, people: RevealedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(self: PostgresCopy) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PostgresCopy, "_erase_replaced", cut_short)
        with pytest.raises(KeyboardInterrupt):
            people.follow(copy)
    assert dict(postgres.run("SELECT k, mail FROM plant.hours")) == people.without("person1")
    people.follow(copy)
    postgres.run("CHECKPOINT")
    base = postgres_server.data_directory(postgres.settings) / "base"
    assert set(found_in([base], [mail_of("person1"), mail_of("person2")])) == {mail_of("person2")}


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

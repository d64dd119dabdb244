"""Each chore finds what nothing needs any more, and nothing else; whatever is killed, the end is the same."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.plant import plant
from twofold.batch.chores import home_chores, table_chores
from twofold.batch.chores.doomed import Chore, Doomed
from twofold.batch.chores.upkeep import chores, upkeep
from twofold.batch.ledgers.reconcile_position import ReconcilePosition
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, SCHEMAS, Ledgers
from twofold.batch.plan.plan import Plan, Plans
from twofold.infra.airflow import airflow_processes
from twofold.infra.delta.change_feed import changed_rows
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.trim import Limits
from twofold.infra.errors import BadDeclaration
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.supervisord import Program, write_configuration
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.streaming_checkpoint import GONE, Splits

NOW = datetime.now(UTC)
NAME = "plant.hours"
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
NOTHING = Limits(history_ms=0, commits=0, versions_ms=0, bytes=0, least_ms=0)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return plant(tmp_path / "project")


def aged(file: Path, days: float, text: str = "x") -> Path:
    """Writes a file, as if so many days ago."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return dated(file, days)


def dated(file: Path, days: float) -> Path:
    then = (NOW - timedelta(days=days)).timestamp()
    os.utime(file, (then, then))
    return file


def found(chore: Chore, lake: Lake, registry: Registry) -> set[str]:
    return {doomed.what for doomed in chore(lake, registry, NOW)}


def written(lake: Lake, name: str = NAME, commits: int = 5) -> None:
    """A quiet table: each commit replaces its rows, and nobody trims it."""
    lake.ensure(name, SCHEMA, statistics=["id"])
    for number in range(1, commits + 1):
        rows = pa.table({"id": [1, 2], "value": [number] * 2}, schema=SCHEMA)
        Writer(lake, name).upsert(rows, ["id"], CommitTag(app="test", version=number))


def tree(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def rows_of(lake: Lake, name: str = NAME) -> list[dict[str, int]]:
    return sorted(pa.table(lake.open(name).scan()).to_pylist(), key=lambda row: row["id"])


def test_a_quiet_table_is_trimmed_as_far_as_nothing_holds_it(
    lake: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_chores, "Limits", lambda: NOTHING)
    written(lake)
    before = rows_of(lake)
    lake.history(NAME).note("stream of plant.days", 3, rows=True)
    [(name, outlook)] = table_chores.outlooks(lake)
    assert (name, outlook.floor.rows, outlook.because) == (NAME, 3, "stream of plant.days")
    [doomed] = table_chores.history(lake, registry, NOW)
    assert doomed.bytes > 0
    doomed.remove()
    assert rows_of(lake) == before
    assert lake.open(NAME, 3).count() == 2, "it is held"
    lake.history(NAME).end("stream of plant.days")
    [doomed] = table_chores.history(lake, registry, NOW)
    doomed.remove()
    assert list(table_chores.history(lake, registry, NOW)) == []
    assert rows_of(lake) == before


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_damaged_table_stops_no_other_and_keeps_its_files(
    lake: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    monkeypatch.setattr(table_chores, "Limits", lambda: NOTHING)
    written(lake)
    written(lake, "plant.damaged")
    aged(Path(lake.uri("plant.damaged")) / "orphan.parquet", 9)
    aged(Path(lake.uri(NAME)) / "orphan.parquet", 9)
    log = Path(lake.uri("plant.damaged"), "_delta_log")
    (log / f"{5:020d}.json").write_text("" if is_empty else '{"commitInfo": {"times')
    table_chores.keep_up(lake, registry, NOW + timedelta(days=1))
    assert NAME in found(table_chores.history, lake, registry)
    assert found(table_chores.orphans, lake, registry) == {NAME}


def test_a_young_history_stays(lake: Lake, registry: Registry) -> None:
    written(lake)
    assert found(table_chores.history, lake, registry) == set()


def test_a_quiet_table_gets_the_checkpoint_that_its_log_opens_from(
    lake: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_chores, "Limits", lambda: NOTHING)
    written(lake)
    log = Path(lake.uri(NAME), "_delta_log")
    table_chores.keep_up(lake, registry, NOW + timedelta(minutes=5))
    assert not list(log.glob("*.checkpoint.parquet")), "it was written just now"
    table_chores.keep_up(lake, registry, NOW + timedelta(days=1))
    assert [file.name for file in log.glob("*.checkpoint.parquet")] == [f"{5:020d}.checkpoint.parquet"]
    before = rows_of(lake)
    for doomed in table_chores.history(lake, registry, NOW):
        doomed.remove()
    assert [file.name for file in sorted(log.glob("*.json"))] == [f"{5:020d}.json"]
    assert rows_of(lake) == before


def test_a_run_that_died_before_it_was_recorded_is_recorded(lake: Lake, registry: Registry) -> None:
    written(lake)
    rows = pa.table({"id": [1], "value": [7]}, schema=SCHEMA)
    tag = CommitTag(app="runs", version=1, info={"run": "20130101T000000.000000Z-late", "cause": "late", "before": 5})
    table = replace(registry.tables[NAME], primary_key=("id",), event_time=None, closes_at=None, depends_within=None)
    registry = replace(registry, tables={NAME: table})
    Writer(lake, NAME).upsert(rows, ["id"], tag)
    table_chores.keep_up(lake, registry, NOW + timedelta(days=1))
    run = Ledgers(lake).newest_run(NAME, ["late"])
    assert run is not None
    assert (run["updated"], run["version_after"]) == (1, 6)
    before = lake.version(CORRECTIONS)
    table_chores.keep_up(lake, registry, NOW + timedelta(days=1))
    assert lake.version(CORRECTIONS) == before


def test_old_files_that_no_log_names_go_and_all_others_stay(lake: Lake, registry: Registry) -> None:
    written(lake)
    root = Path(lake.uri(NAME))
    for file in root.rglob("*.parquet"):
        dated(file, 30)
    named = set(root.rglob("*.parquet"))
    young, of_history = aged(root / "young.parquet", 6), aged(root / "_history" / "own.parquet", 30)
    orphan, feed = aged(root / "orphan.parquet", 8), aged(root / "_change_data" / "orphan.parquet", 8)
    [doomed] = table_chores.orphans(lake, registry, NOW)
    doomed.remove()
    doomed.remove()
    assert not orphan.exists()
    assert not feed.exists()
    assert set(root.rglob("*.parquet")) == named | {young, of_history}
    assert list(table_chores.orphans(lake, registry, NOW)) == []


def test_an_old_version_that_comes_back_has_its_files(lake: Lake, registry: Registry) -> None:
    written(lake)
    for file in Path(lake.uri(NAME)).rglob("*.parquet"):
        dated(file, 30)
    assert list(table_chores.orphans(lake, registry, NOW)) == []
    lake.open(NAME).restore(2)
    assert [row["value"] for row in rows_of(lake)] == [2, 2]


def test_copies_of_plans_and_of_killed_work_go_by_their_age(lake: Lake, registry: Registry) -> None:
    root = Path(lake.settings.lake_uri)
    for name, days in {"_before/old": 31, "_before/new": 29, "_copies/old": 4, "_copies/new": 2}.items():
        aged(root / name / "plant" / "hours" / "part.parquet", days)
    assert found(table_chores.copies, lake, registry) == {"_before/old", "_copies/old"}


def test_a_half_removed_folder_goes_whatever_its_age(lake: Lake, registry: Registry) -> None:
    aged(Path(lake.settings.lake_uri) / "_before" / "run.removed" / "part.parquet", 0)
    [doomed] = table_chores.copies(lake, registry, NOW)
    doomed.remove()
    assert list(table_chores.copies(lake, registry, NOW)) == []


def test_notes_of_split_commits_keep_their_number(lake: Lake, registry: Registry) -> None:
    notes = Splits(lake.settings.checkpoints / "plant" / "hours.splits")
    notes.file.parent.mkdir(parents=True)
    for version in (3, 4, 4, 9):
        notes.add("plant.readings", version)
    history = lake.history("plant.readings")
    history.raise_floor(replace(history.floor(), changes=5))
    assert found(table_chores.split_commits, lake, registry) == set(), "reconcile has looked at none"
    consumed = {"plant.readings": 5, "plant.readings#splits": 2}
    Ledgers(lake).move({NAME: ReconcilePosition(consumed=consumed, stream="s", pending={}, fingerprint="f")})
    [doomed] = table_chores.split_commits(lake, registry, NOW)
    doomed.remove()
    assert notes.versions_of("plant.readings") == [GONE, GONE, 4, 9]
    assert doomed.bytes > 0
    assert found(table_chores.split_commits, lake, registry) == set()
    notes.add("plant.readings", 10)
    assert notes.versions_of("plant.readings") == [GONE, GONE, 4, 9, 10]


def test_corrections_of_more_than_a_year_ago_go(lake: Lake, registry: Registry) -> None:
    Ledgers(lake).ensure()
    for days in (500, 420, 10):
        row = {"table": NAME, "run": str(days), "recorded_at": NOW - timedelta(days=days)}
        write_deltalake(lake.open(CORRECTIONS), pa.Table.from_pylist([row], SCHEMAS[CORRECTIONS]), mode="append")
    [doomed] = table_chores.corrections(lake, registry, NOW)
    assert "2 rows" in doomed.why
    doomed.remove()
    assert pa.table(lake.open(CORRECTIONS).scan())["run"].to_pylist() == ["10"]
    assert list(table_chores.corrections(lake, registry, NOW)) == []


def test_checkpoints_go_that_were_set_aside_or_are_of_no_declared_table(lake: Lake, registry: Registry) -> None:
    root = lake.settings.checkpoints / "plant"
    for name, days in {"hours": 99, "hours.abc": 31, "hours.lost": 5, "gone": 31, "moved": 5, "ingest": 99}.items():
        aged(root / name / "offsets" / "0", days)
    for name in ("hours", "gone", "moved"):
        aged(root / f"{name}.definition", 99)
    running = aged(root / "runs" / "offsets" / "0", 31)
    with exclusive(lake.settings.stream_lock("plant.runs")):
        assert found(home_chores.checkpoints, lake, registry) == {
            "checkpoints/plant/hours.abc",
            "checkpoints/plant/gone",
        }
        for doomed in home_chores.checkpoints(lake, registry, NOW):
            doomed.remove()
        assert running.exists()
    left = {path.name for path in root.iterdir()}
    assert left == {"hours", "hours.definition", "hours.lost", "moved", "moved.definition", "ingest", "runs"}
    broken = replace(registry, faults={"plant.runs": BadDeclaration("it cannot be loaded")})
    assert found(home_chores.checkpoints, lake, broken) == set(), "what it declares is not known"


def test_shadows_go_that_no_rebuild_goes_on_with(lake: Lake, registry: Registry) -> None:
    home = lake.settings.home
    for name, days in {"shadow/plant.hours": 8, "recovery/plant.hours": 8, "shadow/plant.kept": 6}.items():
        aged(home / name / "lake" / "part.parquet", days)
    assert found(home_chores.shadows, lake, registry) == {"shadow/plant.hours", "recovery/plant.hours"}
    with exclusive(home / "run" / "plant.hours.rebuild.lock"):
        for doomed in home_chores.shadows(lake, registry, NOW):
            doomed.remove()
    assert (home / "shadow" / "plant.hours").exists()
    for doomed in home_chores.shadows(lake, registry, NOW):
        doomed.remove()
    assert [path.name for path in home.glob("shadow/*")] == ["plant.kept"]


def test_old_plans_go_unless_they_have_begun(lake: Lake, registry: Registry) -> None:
    kept = Plans(lake.settings)
    for name, days in {"old": 34, "begun": 34, "new": 32}.items():
        (kept.folder / name).mkdir(parents=True)
        then = NOW - timedelta(days=days)
        begun_at = then if name == "begun" else None
        plan = Plan(id=name, cause="replay", command=("replay",), created_at=then, expires_at=then, begun_at=begun_at)
        kept.save(plan)
    aged(kept.folder / ".draft" / "rows.parquet", 4)
    aged(kept.folder / ".young" / "rows.parquet", 1)
    assert found(home_chores.plans, lake, registry) == {"plans/old", "plans/.draft"}
    for doomed in home_chores.plans(lake, registry, NOW):
        doomed.remove()
    assert {path.name for path in kept.folder.iterdir()} == {"begun", "new", ".young"}


def test_the_newest_result_of_a_check_stays(lake: Lake, registry: Registry) -> None:
    root = lake.settings.home / "quality" / "results"
    for name in ("plant.hours/2013a", "plant.hours/2013b", "plant.kept/2013a"):
        aged(root / f"{name}.json", 31)
    aged(root / "plant.days" / "2013.json", 29)
    [doomed] = home_chores.quality_results(lake, registry, NOW)
    assert doomed.what == "quality/results/plant.hours: 1 files"
    doomed.remove()
    assert sorted(path.name for path in root.glob("plant.hours/*")) == ["2013b.json"]


def test_logs_of_programs_that_run_no_more_go(lake: Lake, registry: Registry) -> None:
    write_configuration(lake.settings, [Program(name="broker", command=["broker"])])
    for name, days in {"broker.log": 99, "supervisord.log.1": 99, "stream-old.log.2": 31, "relay-old.log": 29}.items():
        aged(lake.settings.logs / name, days)
    assert found(home_chores.logs, lake, registry) == {"logs/stream-old.log.2"}


def test_runs_of_airflow_go_with_their_logs(lake: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    home = lake.settings.home
    old = aged(home / "logs" / "airflow" / "dag_id=x" / "run_id=1" / "task_id=t" / "attempt=1.log", 31)
    young = aged(home / "logs" / "airflow" / "dag_id=x" / "run_id=2" / "task_id=t" / "attempt=1.log", 29)
    parsed = aged(home / "airflow" / "logs" / "dag_processor" / "2013-01-01" / "dags.log", 31)
    (home / "airflow" / "logs" / "dag_processor" / "latest").symlink_to("2013-01-01")
    with sqlite3.connect(home / "airflow" / "airflow.db") as connection:
        connection.execute("CREATE TABLE dag_run (start_date TEXT)")
        connection.execute("CREATE TABLE log (dttm TEXT)")
        connection.execute("INSERT INTO dag_run VALUES (?)", [f"{NOW - timedelta(days=31):%Y-%m-%d %H:%M:%S.%f}"])
        connection.execute("INSERT INTO log VALUES (?)", [f"{NOW - timedelta(days=29):%Y-%m-%d %H:%M:%S.%f}"])
    monkeypatch.setattr(airflow_processes, "is_migrated", lambda settings: True)
    cleaned: list[tuple[str, ...]] = []
    monkeypatch.setattr(airflow_processes, "_run", lambda settings, *arguments: cleaned.append(arguments))
    doomed = list(home_chores.airflow(lake, registry, NOW))
    assert doomed[0].why == "1 runs and events of a month ago"
    for each in doomed:
        each.remove()
    [arguments] = cleaned
    assert {"clean", "--skip-archive", "--yes"} <= {*arguments}
    assert (old.parent.parent.exists(), young.exists(), parsed.exists()) == (False, True, False)


def test_a_home_without_airflow_has_no_runs(lake: Lake, registry: Registry) -> None:
    assert list(home_chores.airflow(lake, registry, NOW)) == []


def test_scratch_of_a_spark_that_runs_stays(lake: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = lake.settings.home / "spark"
    for name, days in {"blockmgr-1/0c/rdd": 9, "spark-2/jar": 5, "token": 99, "warmed": 99, "new/part": 0.5}.items():
        aged(scratch / name, days)
    began = (NOW - timedelta(days=7)).timestamp()
    process = type("Process", (), {"create_time": lambda self: began})
    monkeypatch.setattr(home_chores, "tagged_processes", lambda tag, variable: [process()])
    assert found(home_chores.spark_scratch, lake, registry) == {"spark/blockmgr-1"}
    monkeypatch.setattr(home_chores, "tagged_processes", lambda tag, variable: [])
    assert found(home_chores.spark_scratch, lake, registry) == {"spark/blockmgr-1", "spark/spark-2"}


def test_class_archives_of_other_versions_go_that_are_not_read(
    lake: Lake, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache" / "twofold" / "own"
    monkeypatch.setattr(type(lake.settings), "jars", property(lambda self: cache / "jars"))
    monkeypatch.setattr(home_chores, "other_caches", lambda own: [path for path in own.parent.iterdir() if path != own])
    for name in ("own", "old"):
        aged(cache.parent / name / "classes" / "spark.jsa", 91)
        aged(cache.parent / name / "jars" / "spark" / "a.jar", 91)
    aged(cache / "classes" / "tmp1" / "spark.jsa", 2)
    assert found(home_chores.class_archives, lake, registry) == {"old/classes/spark.jsa", "classes/tmp1"}


def test_drafts_of_killed_writers_go(lake: Lake, registry: Registry) -> None:
    home = lake.settings.home
    for name, days in {"ports.json.12.draft": 2, "run/days/x.json.12.draft": 2, "outputs/x.json.9.draft": 0}.items():
        aged(home / name, days)
    aged(home / "sketch.draft", 9)
    aged(Path(lake.uri(NAME)) / "_history" / "floor.json.7.draft", 2)
    assert found(home_chores.drafts, lake, registry) == {
        "ports.json.12.draft",
        "run/days/x.json.12.draft",
        "plant/hours/_history/floor.json.7.draft",
    }


def worn(lake: Lake) -> None:
    """A home with something for many chores, and something needed beside each."""
    home = lake.settings.home
    written(lake)
    root = Path(lake.uri(NAME))
    for file in root.rglob("*.parquet"):
        dated(file, 30)
    aged(root / "orphan.parquet", 9)
    lake.history(NAME).note("stream", 5, rows=True)
    for name, days in {"old": 31, "new": 1}.items():
        aged(Path(lake.settings.lake_uri) / "_before" / name / "a.parquet", days)
        aged(lake.settings.checkpoints / "plant" / f"hours.{name}" / "offsets" / "0", days)
        aged(home / "shadow" / f"plant.{name}" / "a.parquet", days)
        aged(home / "logs" / "airflow" / f"dag_id={name}" / "a.log", days)
        aged(home / "spark" / name / "block", days)
        aged(home / "outputs" / f"plant.hours.{name}.json", days, json.dumps({}))
        aged(home / "search" / f"plant.hours.{name}" / "abc" / "meta.json", days)


class Killed(BaseException):
    """What ends the process between two removals."""


def in_all(lake: Lake, registry: Registry, after: int | None = None) -> list[Doomed]:
    """Runs all chores; as if killed before so many removals were done."""
    removed: list[Doomed] = []
    faults: list[str] = []
    for doomed in upkeep(lake, registry, NOW + timedelta(hours=2), faults, dry_run=False):
        removed.append(doomed)
        if len(removed) == after:
            raise Killed
    assert faults == []
    return removed


def names_in(folder: Path) -> set[str]:
    made_twice = ("lock", "checkpoint")
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if not any(word in name for word in made_twice)}


def lake_in(lake: Lake, home: Path) -> Lake:
    return Lake(replace(lake.settings, home=home))


def test_chores_killed_between_any_two_removals_end_as_if_they_were_not(
    lake: Lake, registry: Registry, tmp_path: Path
) -> None:
    whole = lake_in(lake, tmp_path / "whole")
    worn(whole)
    number = len(in_all(whole, registry))
    assert number >= 8
    assert in_all(whole, registry) == []
    kinds = {_kind(name) for name in names_in(whole.settings.home)}
    for after in range(1, number + 1):
        cut = lake_in(lake, tmp_path / f"cut-{after}")
        worn(cut)
        before = rows_of(cut)
        with pytest.raises(Killed):
            in_all(cut, registry, after)
        in_all(cut, registry)
        assert {_kind(name) for name in names_in(cut.settings.home)} == kinds
        assert rows_of(cut) == before
        assert rows_of(cut) == rows_of(whole)


def _kind(name: str) -> str:
    return "part" if "part-" in name else name


def test_a_dry_run_changes_nothing(lake: Lake, registry: Registry) -> None:
    worn(lake)
    before, faults = tree(lake.settings.home), list[str]()
    doomed = list(upkeep(lake, registry, NOW, faults, dry_run=True))
    assert (len(doomed) >= 8, faults) == (True, [])
    assert tree(lake.settings.home) == before


def test_a_chore_that_fails_stops_no_other(lake: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    worn(lake)

    def fails(*_: object) -> Iterable[Doomed]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(table_chores, "orphans", fails)
    faults: list[str] = []
    removed = {doomed.what for doomed in upkeep(lake, registry, NOW, faults, dry_run=False)}
    assert faults == ["fails: the disk is gone"]
    assert "_before/old" in removed
    assert NAME not in removed


def test_a_reader_and_a_writer_get_all_while_chores_run(
    lake: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits keep nothing that is not held."""
    monkeypatch.setattr(table_chores, "Limits", lambda: NOTHING)
    written(lake, commits=1)
    history, read = lake.history(NAME), [1]
    history.note("reader", 1)
    ended = threading.Event()

    def clean() -> None:
        while not ended.is_set():
            assert faults == []
            list(upkeep(lake, registry, NOW + timedelta(days=1), faults, dry_run=False))

    faults: list[str] = []
    cleaning = threading.Thread(target=clean)
    cleaning.start()
    writer = Writer(lake, NAME)
    for number in range(2, 26):
        rows = pa.table({"id": [1, 2], "value": [number] * 2}, schema=SCHEMA)
        writer.upsert(rows, ["id"], CommitTag(app="test", version=number))
        if number % 3 == 0:
            changes = changed_rows(lake, NAME, read[-1], lake.version(NAME), ["value"])
            read += sorted({*changes["value"].to_pylist()} - {*read})
            history.note("reader", lake.version(NAME))
    ended.set()
    cleaning.join()
    assert (faults, read) == ([], list(range(1, 25)))
    assert [row["value"] for row in rows_of(lake)] == [25, 25]


def test_two_at_once_remove_the_same(lake: Lake, registry: Registry) -> None:
    worn(lake)
    both = [doomed.remove for _ in range(2) for doomed in upkeep(lake, registry, NOW, [], dry_run=True)]
    removals: list[Callable[[], object]] = [*both, *reversed(both)]
    for remove in removals:
        remove()
    assert list(upkeep(lake, registry, NOW, [], dry_run=True)) == []


def test_every_function_of_the_rooms_of_chores_is_a_chore() -> None:
    listed = chores()
    assert len(set(listed)) == len(listed)
    for module in (table_chores, home_chores):
        annotated = {
            value
            for value in vars(module).values()
            if getattr(value, "__module__", "") == module.__name__
            and list(getattr(value, "__annotations__", {}))[:3] == ["lake", "registry", "now"]
            and "Doomed" in value.__annotations__["return"]
        }
        assert annotated <= {*listed}

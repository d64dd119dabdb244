"""What a terminal gets to see, and how a command ends: nothing that data say is obeyed, nothing is broken in a word."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests import ROOT
from tests.cli.conftest import Cli, at
from tests.plant import plant
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.plan.plan import Plan, TableChange
from twofold.cli.__main__ import COMMANDS
from twofold.infra.errors import TwofoldError
from twofold.infra.text.printable import harmless
from twofold.quality.check_result import RuleVerdict, Verdict
from twofold.quality.rules import not_null
from twofold.tables.declare.registry import load
from twofold.tables.refresh.row_diff import Difference

HOSTILE = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\x00\r\x7f\u2028\ud800"
"""Writes to the clipboard, clears the screen, colours it, turns the direction, goes back to the start of the line."""
OBEYED = set(HOSTILE) - set("]52;c;cm0gLXJm[2J31mgnp.exe")

SILENT = {
    "setup": "folders, which are ours",
    "settings": "values of settings, which are ours",
    "init": "the name that was typed, through the console",
    "up": "names and addresses of processes, which are ours",
    "down": "counts of processes",
    "page": "an address and a password, which are ours",
    "maintain": "names of files and of who holds a table, through the console",
    "demo": "the counts of tables",
    "traffic": "counts of records",
    "send": "counts of records",
    "work": "counts of records, names, which the broker has checked, and what its command prints",
    "spark": "a Python of its own, which prints what is typed there",
    "notebook": "an address and a token, which are marimo's",
    "search": "rows, which `features/search/tests` makes hostile",
    "mcp": "JSON for a program, which `features/analysts/tests` reads",
    "stream": "a log",
    "ingest-once": "a log",
    "maintain-once": "a log",
    "check": "names and texts of declarations, which are ours",
    "forget": "the id that was typed, through the console",
    "remember": "the id that was typed, through the console",
    "export": "one JSON document, which `features/persons/tests` feeds hostile data",
    "recapture": "names of declarations, which are ours, and counts of rows; a preview keys, through the console",
}
"""Commands that print no data, and what they print."""


def test_what_a_terminal_obeys_is_written_as_its_escape() -> None:
    assert harmless("a\x1b[1mb") == "a\\u001b[1mb"
    assert harmless("\u202e\u2066\x9b\x7f") == "\\u202e\\u2066\\u009b\\u007f"
    assert harmless("\U000e0041") == "\\udb40\\udc41", "the escape of JSON"
    assert harmless("two\nlines\tand") == "two\nlines\tand"
    assert harmless("two\nlines", keep="") == "two\\u000alines"


@pytest.mark.parametrize("text", ["Zürich", "東京", "می‌خواهم", "नमस्ते", "👩‍✈️", "–"])
def test_the_writing_of_people_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_only_the_console_writes_to_the_terminal() -> None:
    found = []
    for path in sorted((ROOT / "cli").rglob("*.py")):
        if path.stem == "console":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "print",
                "typer.echo",
                "typer.secho",
                "sys.stdout.write",
                "sys.stderr.write",
                "Console",
                "Text",
                "Text.from_markup",
                "traceback.print_exc",
            }:
                found.append(f"{path.stem}: {ast.unparse(node)}")
    assert [f for f in found if not f.startswith("fast_path: ")] == [], "`fast_path` answers before it is loaded"


def _hostile_lake(home: Path) -> None:
    hours = {"origin": [HOSTILE.replace("\ud800", "")], "hour": pa.array([at("2013-01-01T10:00")])}
    write_deltalake(home / "lake" / "flights" / "delays_by_hour", pa.table(hours))


def _outcome() -> RunResult:
    rows = [Difference(key={"origin": HOSTILE}, change="update", before={"n": HOSTILE}, should={"n": HOSTILE})]
    return RunResult(table="flights.x", cause="late", run="late-1", unexplained=1, differences=rows)


def _fails(*_: object, **__: object) -> Any:
    raise TwofoldError(f"a record says {HOSTILE}", hint=HOSTILE, rows=[HOSTILE])


def _reconcile(*_: object, **__: object) -> list[RunResult]:
    return [_outcome()]


def _story(*_: object) -> Any:
    from twofold.batch.ledgers.row_history import RowHistory, RowVersion

    chapter = RowVersion(
        version=1,
        at=at("2013-01-01"),
        change="update",
        by=HOSTILE,
        before={"n": HOSTILE},
        after={"n": "x"},
        run=HOSTILE,
    )
    return RowHistory(
        table="flights.delays_by_hour",
        key={"origin": HOSTILE},
        now={"origin": HOSTILE, "n": HOSTILE},
        versions=[chapter],
        since=0,
        definition="f",
    )


def _late(*_: object) -> Any:
    from twofold.batch.late_records import LateRecord

    when = datetime(2013, 1, 1, tzinfo=UTC)
    return [
        LateRecord(
            source="flights.departures",
            partition=0,
            offset=1,
            late_by_ms=1,
            event_at=when,
            fate="corrected",
            rows=[{"origin": HOSTILE}],
        )
    ]


def _verdicts(*_: object) -> Any:
    return [
        Verdict(table="flights.x", rows=1, rules=[RuleVerdict(rule=not_null("n"), rows=1, failing=1, observed=HOSTILE)])
    ]


def _plan(*_: object, **__: object) -> Plan:
    summary = {
        "segments": [{"column": "origin", "value": HOSTILE, "share": 0.9, "of_all": 0.1}],
        "columns": [{"column": HOSTILE, "rows": 1, "key": {}, "before": HOSTILE, "after": HOSTILE}],
        "samples": [{"change": "update", "key": {"origin": HOSTILE}, "values": {"n": [HOSTILE, "x"]}}],
    }
    change = TableChange(table="flights.x", cause="rebuild", version=1, rows_before=9, updated=1, summary=summary)
    now = datetime.now(UTC)
    return Plan(
        id="rebuild-1",
        cause="rebuild",
        command=["rebuild"],
        created_at=now,
        expires_at=now,
        why=HOSTILE,
        changes=[change],
    )


class _Rows:
    """What `as-of` and `try` ask of a frame."""

    columns = ("origin",)

    def persist(self) -> _Rows:
        return self

    unpersist = persist

    def orderBy(self, *_: object) -> _Rows:
        return self

    def limit(self, _: int) -> _Rows:
        return self

    def toArrow(self) -> pa.Table:
        return pa.table({"origin": [HOSTILE.replace("\ud800", "")]})

    def count(self) -> int:
        return 1


@contextmanager
def _opened(*_: object, **__: object) -> Any:
    yield SimpleNamespace()


TABLE = "flights.delays_by_hour"
PRINTING: Mapping[str, tuple[Sequence[str], Mapping[str, object]]] = {
    "status": ([], {"twofold.status.observer.Observer.snapshot": _fails}),
    "doctor": ([], {"twofold.infra.process.doctor.examine": _fails}),
    "tables": ([], {"twofold.infra.delta.lake.Lake.rows": _fails}),
    "show": ([TABLE], {}),
    "sql": ([f"FROM {TABLE}"], {}),
    "as-of": (
        [TABLE, "2013-01-01"],
        {
            "twofold.tables.refresh.open_platform.opened": _opened,
            "twofold.batch.as_of.AsOf": lambda *_: SimpleNamespace(rows=lambda _: _Rows()),
        },
    ),
    "why": ([TABLE, "origin=x", "hour=2013-01-01"], {"twofold.batch.ledgers.row_history.read_history": _story}),
    "try": (
        [TABLE],
        {
            "twofold.infra.spark.spark_client.open_session": lambda *_: SimpleNamespace(stop=lambda: None),
            "twofold.batch.preview.preview": lambda *_: _Rows(),
        },
    ),
    "late": ([TABLE], {"twofold.batch.late_records.late_records": _late}),
    "reconcile": ([], {"twofold.batch.reconcile.reconcile": _fails}),
    "audit": ([], {"twofold.batch.audit.table_audit.audit": _fails}),
    "certify": ([TABLE], {"twofold.batch.audit.completeness.certify": _fails}),
    "acknowledge": (["departures", "--because", "x"], {"twofold.tables.refresh.open_platform.opened": _fails}),
    "quality": ([TABLE], {"twofold.batch.quality_check.quality": _verdicts}),
    "backfill": ([TABLE], {"twofold.tables.refresh.open_platform.opened": _fails}),
    "replay": (["departures"], {"twofold.tables.refresh.open_platform.opened": _fails}),
    "redrive": (["departures"], {"twofold.tables.refresh.open_platform.opened": _fails}),
    "rebuild": ([TABLE], {"twofold.batch.plan.rebuild_table.plan_rebuild": _plan}),
    "plans": (["rebuild-1"], {"twofold.batch.plan.plan.Plans.find": _plan}),
    "plan": ([], {"twofold.batch.plan.code_changes.code_changes": _fails}),
    "apply": (["rebuild-1"], {"twofold.batch.plan.plan.Plans.find": _fails}),
    "publish": (["rebuild-1"], {"twofold.batch.plan.plan.Plans.find": _fails}),
    "discard": (["rebuild-1"], {"twofold.batch.plan.plan.Plans.find": _fails}),
    "rollback": ([TABLE], {"twofold.tables.refresh.open_platform.opened": _fails}),
    "recover": ([TABLE], {"twofold.tables.refresh.open_platform.opened": _fails}),
}
"""Each command that prints data: how it is called, and what gives it hostile ones."""


def test_every_command_either_prints_no_data_or_is_fed_hostile_ones() -> None:
    names = {function.__name__.replace("_", "-") for functions in COMMANDS.values() for function in functions}
    assert names <= {*SILENT, *PRINTING}


@pytest.mark.parametrize("name", PRINTING)
@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_prints_what_a_terminal_obeys(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, as_json: bool
) -> None:
    _hostile_lake(home)
    arguments, patches = PRINTING[name]
    for place, instead in patches.items():
        monkeypatch.setattr(place, instead)
    ran = cli(name, *arguments, *(["--json"] if as_json else []))
    said = ran.out + ran.err
    assert OBEYED & set(said) == set()
    assert "\\u001b]52" in said, "the data are shown, harmless"
    if as_json:
        assert "\x1b]52" in json.dumps(ran.document, ensure_ascii=False).replace("\\u001b", "\x1b")


def test_values_as_csv_are_harmless_on_a_terminal_and_exact_in_a_file(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hostile_lake(home)
    query = ["sql", f"SELECT origin FROM {TABLE}", "--csv"]
    assert HOSTILE.replace("\ud800", "") in cli(*query).out.replace("\r\n", "\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert OBEYED & set(cli(*query).out) == set()


def test_an_error_is_harmless_with_its_traceback_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.infra.process.doctor.examine", _fails)
    ran = cli("--debug", "doctor")
    assert "Traceback" in ran.err
    assert OBEYED & set(ran.err) == set()


def test_text_that_looks_like_the_name_of_a_picture_stays_text(cli: Cli) -> None:
    assert ":warning:" in cli("sql", "SELECT ':warning:' AS v").out


@contextmanager
def _started(home: Path, *arguments: str, **options: Any) -> Any:
    environment = {**os.environ, "TWOFOLD_HOME": str(home), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # with it Python overlooks a write that was cut short
    command = [sys.executable, "-P", "-m", "twofold.cli.fast_path", *arguments]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        start_new_session=True,
        # What runs in the background of a shell ignores it, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_ctrl_c_ends_a_long_query_with_one_quiet_line(home: Path) -> None:
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000) b"
    with _started(home, "sql", endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not _computes(process.pid):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, "", "Interrupted.\n")


def _computes(pid: int) -> bool:
    """Whether the process has begun to count: its imports took less CPU time than this."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > 4


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_a_reader_that_leaves_ends_the_command_as_it_does_others(home: Path, form: list[str]) -> None:
    query = "SELECT repeat('x', 5000) AS v FROM range(100)"
    with _started(home, "sql", query, *form, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (141, "")


@pytest.mark.parametrize("width", [80, 160])
def test_nothing_is_broken_inside_a_word(cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = {declared.full_name for declared in load().declarations}
    said = {command: cli(*command).out for command in (("tables",), ("status",), ("show", "flights.departures"))}
    assert names <= set(said["tables",].split())
    assert names <= set(said["status",].split())
    types = load().topics["flights.departures"].schema
    assert {*types, *types.values()} <= set(said["show", "flights.departures"].split())


def test_a_domain_means_its_tables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    def run(_: object, names: Sequence[str], **__: object) -> list[RunResult]:
        asked.append(names)
        return []

    monkeypatch.setattr("twofold.batch.reconcile.reconcile", run)
    cli("reconcile", "flights", "--verify")
    cli("reconcile", "flights.flights", "--verify")
    tables = [t.full_name for t in load().tables.values() if t.domain == "flights"]
    assert {t.full_name for t in load().chosen(asked[0])} == set(tables)
    assert asked[1] == ["flights.flights"]


def test_reconcile_says_what_it_compared_what_waits_and_until_when(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = RunResult(
        table="flights.delays_by_hour",
        cause="late",
        run="late-1",
        touched=5,
        scopes=3,
        pending=1,
        waits_until=at("2013-01-05T14:00"),
    )
    monkeypatch.setattr("twofold.batch.reconcile.reconcile", lambda *_, **__: [waits])
    lines = cli("reconcile", "delays_by_hour", "--verify").out.splitlines()
    assert "3 scopes were compared with their recomputation; --verify compares all rows." in lines
    until = "what is pending waits until the stream's watermark has passed 2013-01-05 14:00:00."
    assert f"flights.delays_by_hour: {until}" in lines
    explained = [line.split(":")[0] for line in lines if ": " in line]
    assert explained[:3] == ["touched", "scopes", "pending"], "and not what is 0"
    monkeypatch.setattr("twofold.batch.reconcile.reconcile", lambda *_, **__: [replace(waits, compared=1_200)])
    assert "1,200 rows were compared with their recomputation." in cli("reconcile", "--verify").out


def test_a_table_that_was_removed_is_marked_as_such(cli: Cli, home: Path) -> None:
    write_deltalake(home / "lake" / "flights" / "gone", pa.table({"n": [1, 2]}))
    assert cli("tables", "--json").document["removed"] == [{"name": "flights.gone", "rows": 2}]
    assert "No file declares these tables any more" in cli("tables").out
    assert cli("status", "--json").document["removed"] == ["flights.gone"]
    shown = cli("show", "flights.gone")
    assert (shown.code, "flights.gone was removed: no file declares it any more." in shown.err) == (2, True)


def test_show_of_a_domain_lists_it(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    registry = plant(tmp_path / "declared")
    monkeypatch.setattr("twofold.tables.declare.registry.load", lambda: registry)
    names = [table["name"] for table in cli("show", "plant", "--json").document["tables"]]
    assert sorted(names) == ["plant.hours", "plant.kept", "plant.newest"]

"""The process of outputs: each goes on by itself, says why if it does not, and ends with the last step whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests import ROOT
from tests.support.postgres import Server
from twofold import to_postgres
from twofold.cli.__main__ import app
from twofold.features.outputs.copy_comparison import compare_copy
from twofold.features.outputs.follow import runner
from twofold.features.outputs.follow.output_reports import output_reports
from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.tests.followed_table import FollowedTable, hour
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting, ProcessFailed
from twofold.infra.process.file_locks import is_held
from twofold.infra.process.ports import free_port
from twofold.infra.project.settings import Settings
from twofold.status.parts.snapshot import OutputReport
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table

pytestmark = pytest.mark.platform


@pytest.fixture
def lake(postgres: Server, tmp_path: Path) -> Lake:
    """A lake without tables, of a platform that has the server; nothing else of that platform is left."""
    postgres.without_copies("plant", "shop")
    for file in (postgres.settings.home / "outputs").glob("*.json"):
        file.unlink()
    return Lake(replace(postgres.settings, lake=str(tmp_path / "lake")))


@contextmanager
def running(lake: Lake, *tables: Table) -> Iterator[None]:
    """The outputs of these tables, moved on by the process's own function."""
    stop: list[Callable[..., None]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", lambda number, handler: stop.append(handler))
        registry = Registry({}, {table.full_name: table for table in tables})
        thread = threading.Thread(target=runner.run, args=(lake.settings, registry))
        thread.start()
        until(lambda: stop and is_held(lake.settings.home / "run" / "outputs.lock"))
    try:
        yield
    finally:
        stop[0]()
        thread.join()


def until(is_so: Callable[[], Any], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def reports(lake: Lake, *tables: Table) -> dict[str, OutputReport]:
    registry = Registry({}, {table.full_name: table for table in tables})
    return {report.output: report for report in output_reports(lake, registry, datetime.now(UTC))}


def test_a_dead_destination_delays_no_other_output(lake: Lake, postgres: Server, tmp_path: Path) -> None:
    file = tmp_path / "destinations"
    file.write_text(f"# ours\ndead = postgresql://me:secret@127.0.0.1:{free_port()}/x\n")
    file.chmod(0o600)
    lake = Lake(replace(lake.settings, destinations=str(file)))
    followed = FollowedTable(lake)
    outputs = [to_postgres(), to_postgres(name="dead", destination="dead"), to_postgres(name="gone", destination="no")]
    table = replace(followed.table, outputs=outputs)
    followed.put(("a", 1, None))
    with running(lake, table):
        until(lambda: {"dead", "gone"} == {name for name, r in reports(lake, table).items() if r.error})
        until(lambda: reports(lake, table)["hours"].behind == 0)
        followed.put(("b", 1, None))
        until(lambda: reports(lake, table)["hours"].version == 2)
    assert postgres.run("SELECT k FROM plant.hours ORDER BY k") == [("a",), ("b",)]
    errors = {name: report.error for name, report in reports(lake, table).items()}
    assert errors["hours"] == ""
    assert "does not answer me" in errors["dead"]
    assert "has no destination 'no'" in errors["gone"]
    assert "secret" not in "".join(errors.values())
    assert {name for name, report in reports(lake, table).items() if report.has_failed} == {"dead", "gone"}
    assert "The database x at 127.0.0.1" in errors["dead"]
    assert reports(lake) == {}


def test_an_output_goes_on_when_its_server_is_back(lake: Lake, postgres: Server) -> None:
    followed = FollowedTable(lake)
    followed.put(("a", 1, None))
    with running(lake, followed.table):
        until(lambda: reports(lake, followed.table)["hours"].behind == 0)
        postgres.kill()
        followed.put(("b", 1, None))
        until(lambda: reports(lake, followed.table)["hours"].error)
        behind = reports(lake, followed.table)["hours"]
        assert (behind.state, behind.version, behind.behind) == ("failed", 1, 1)
        assert behind.behind_s is not None
        postgres.start()
        until(lambda: reports(lake, followed.table)["hours"].version == 2)
    assert postgres.run("SELECT k FROM plant.hours ORDER BY k") == [("a",), ("b",)]


def test_the_file_of_destinations_is_private(lake: Lake, tmp_path: Path) -> None:
    followed = FollowedTable(lake)
    output = to_postgres(destination="reports")

    def opened(text: str, mode: int = 0o600) -> Any:
        file = tmp_path / "destinations"
        file.write_text(text)
        file.chmod(mode)
        return open_target(Lake(replace(lake.settings, destinations=str(file))), followed.table, output)

    copy = opened("reports = postgresql://me:p%40ss@db:6543/copies")
    assert (copy.at.host, copy.at.port, copy.at.password, copy.at.dbname) == ("db", 6543, "p@ss", "copies")
    for text, mode, message in (
        ("reports = postgresql://db/x", 0o640, "others can read or write this file"),
        ("report = postgresql://db/x", 0o600, "has no destination 'reports'"),
        ("reports", 0o600, "line 1: expected `name = address`"),
        ("reports = http://db", 0o600, "expected postgresql://"),
    ):
        with pytest.raises(BadSetting, match=message):
            opened(text, mode)
    with pytest.raises(BadSetting, match="TWOFOLD_DESTINATIONS is not set"):
        open_target(lake, followed.table, output)


def test_a_second_process_of_one_home_is_refused(lake: Lake) -> None:
    with running(lake), pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", lambda *_: None)
        with pytest.raises(ProcessFailed, match="Another process moves the outputs"):
            runner.run(lake.settings, Registry({}, {}))


SHOP = "shop.paid_orders"
PAID = pa.schema(
    [
        *(("payment_id", pa.string()), ("order_id", pa.string()), ("customer", pa.string()), ("cents", pa.int64())),
        *((name, pa.timestamp("us", "UTC")) for name in ("ordered_at", "paid_at", "closes_at")),
    ]
)


def following(settings: Settings) -> subprocess.Popen[bytes]:
    """The process that `up` starts."""
    environment = {**os.environ, **settings.environment()}
    return subprocess.Popen([sys.executable, "-m", "twofold", "outputs", "follow"], cwd=ROOT, env=environment)


def twofold(settings: Settings, *words: str) -> str:
    return CliRunner().invoke(app, words, env={**settings.environment(), "COLUMNS": "140"}).output


def test_a_killed_process_of_the_shop_ends_with_the_rows_of_the_table(lake: Lake, postgres: Server) -> None:
    """The command that `up` runs, killed twice while the table changes; its three starts take the time."""
    table = load().find_table(SHOP)
    lake.ensure(SHOP, PAID, statistics=["payment_id"])
    writer = Writer(lake, SHOP)
    for life in range(3):
        process = following(lake.settings)
        for number in range(5):
            keys = [f"p{n}" for n in range(3 * number, 3 * number + 200)]
            rows = [{"payment_id": key, "cents": life * 100 + number, "paid_at": hour(number)} for key in keys]
            stamp = CommitTag(app="test", version=writer.next_number("test"))
            writer.upsert(pa.Table.from_pylist(rows, PAID), ["payment_id"], stamp)
            time.sleep(0.3)
        if life < 2:
            until(lambda: StateFile(lake.settings, SHOP, "paid_orders").read().version is not None)
            process.kill()
            process.wait()
    try:
        until(lambda: StateFile(lake.settings, SHOP, "paid_orders").read().version == lake.version(SHOP))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    copied = postgres.run("SELECT payment_id, cents, paid_at FROM shop.paid_orders ORDER BY 1")
    live = select(lake.open(SHOP), ["payment_id", "cents", "paid_at"]).sort_by("payment_id")
    assert copied == [tuple(row.values()) for row in live.to_pylist()]
    found = compare_copy(lake, table, open_target(lake, table, table.outputs[0]))
    assert found is not None
    assert (found.rows, found.differing) == (len(live), 0)

    shown = twofold(lake.settings, "outputs")
    assert "shop.paid_orders: paid_orders" in shown
    assert "does not run" in shown
    resent = twofold(lake.settings, "outputs", "resend", "paid_orders", "--from", "1")
    assert "shop.paid_orders: 212 rows were sent again." in resent

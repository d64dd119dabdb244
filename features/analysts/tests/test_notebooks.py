"""The example notebooks run over real tables, and the command opens them for those alone who have the token."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests import ROOT
from tests.batch.late_departure import TEN, late_departure_world
from tests.servers import wait_until
from twofold.features.analysts.analytics_file import open_analytics, write_analytics
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted((ROOT / "demo" / "notebooks").glob("*.py"))


def test_each_domain_has_a_notebook() -> None:
    assert [file.stem for file in NOTEBOOKS] == sorted(load().domains)


def test_the_hours_that_a_late_departure_changed_are_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Departures with 5 and 20 minutes of delay, then one with 35, days after the hour has closed."""
    settings = Settings(home=tmp_path / "home", shuffle_partitions=1)
    registry = load().restricted_to(["flights"])
    world = late_departure_world(spark, settings, registry, ["delays_by_hour"])
    world.reconcile(["delays_by_hour"])
    found = run("flights", settings, registry, monkeypatch)
    before = {"origin": "JFK", "hour": TEN, "flights_before": 2, "flights": 3, "mean_before": 12.5, "mean_now": 20.0}
    [change] = rows(found["changed"])
    assert {name: change[name] for name in before} == before
    assert change["_cause"] == "late"
    assert [row["corrected"] for row in rows(found["hours"])] == [True]
    assert "flights.delays_by_hour" in {row["table"] for row in rows(found["fresh"])}


def test_paid_orders_and_sold_lines_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path / "home", shuffle_partitions=1)
    declared, tables = load(), ["shop.paid_orders", "shop.sold_lines"]
    topics = {name: declared.topics[name] for name in ("shop.orders", "shop.payments")}
    registry = Registry(topics, {name: declared.tables[name] for name in tables}, descriptions=declared.descriptions)
    world = World(spark, settings, "shop", registry)
    orders = [order("1", "CH", 500, "4.50", "0.50"), order("2", "CH", 700, "7.00"), order("3", "FR", 100)]
    paid = {"payment_id": "p", "order_id": "1", "card": "c", "outcome": "accepted", "tried_at": stamp(9)}
    world.append({"orders": orders, "payments": [json.dumps(paid).encode()]})
    world.maintain(tables)
    found = run("shop", settings, registry, monkeypatch)
    assert rows(found["paid"]) == [
        {"country": "CH", "orders": 2, "paid": 1, "euros": 5.0},
        {"country": "FR", "orders": 1, "paid": 0, "euros": None},
    ]
    assert rows(found["minutes"]) == [{"minutes": 9, "payments": 1}]
    assert rows(found["sold"]) == [{"line": "lamp", "lines": 3, "euros": Decimal("12.00")}]


def order(order_id: str, country: str, cents: int, *prices: str) -> bytes:
    facts = {"order_id": order_id, "buyer": {"customer": "ann"}, "product": "lamp", "cents": cents, "country": country}
    lines = [{"product": "lamp", "price": price, "wishes": None} for price in prices]
    return json.dumps({**facts, "ordered_at": stamp(0), "lines": lines, "labels": None}).encode()


def stamp(minute: int) -> str:
    return (datetime(2026, 1, 1, 9, tzinfo=UTC) + timedelta(minutes=minute)).isoformat()


def test_what_to_do_is_said_if_there_are_no_views_yet(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"no views for analysts at .*analytics\.duckdb yet") as refused:
        open_analytics(Settings(home=tmp_path))
    assert refused.value.hint == "`./twofold up` writes them."


@pytest.mark.platform
@pytest.mark.timeout(180)
def test_the_command_answers_those_alone_who_have_the_token(tmp_path: Path) -> None:
    command = [str(ROOT / "twofold"), "notebook", str(tmp_path / "mine.py"), "--no-browser"]
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    )
    try:
        assert server.stdout
        said = (re.search(r"http://localhost:(\d+)/?\?access_token=(\S+)", line) for line in server.stdout)
        port, token = next(filter(None, said)).groups()
        wait_until(lambda: listening(server.pid), timeout_s=60)  # it says its address before it listens there
        assert listening(server.pid) == {("127.0.0.1", int(port))}
        address = f"http://127.0.0.1:{port}"
        assert status(f"{address}/?access_token={token}") == 200
        assert status(f"{address}/api/status") == status(f"{address}/api/status?access_token=other") == 401
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def listening(pid: int) -> set[tuple[str, int]]:
    """Where a process waits for connections."""
    return {tuple(c.laddr) for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def run(name: str, settings: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a notebook defines, run as a script."""
    write_analytics(settings, registry)
    for variable, value in settings.environment().items():
        monkeypatch.setenv(variable, value)
    _, defined = runpy.run_path(str(ROOT / "demo" / "notebooks" / f"{name}.py"))["app"].run()
    return dict(defined)


def rows(frame: Any) -> list[dict[str, Any]]:
    """Rows of a frame of polars, or of pandas where that is missing."""
    return [*frame.to_dicts()] if hasattr(frame, "to_dicts") else frame.to_dict("records")

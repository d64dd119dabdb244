"""The page in the frame of a real Airflow, in a browser; a plan from Airflow's form to its approval, and back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from tests.platform.airflow.running_airflow import ANSWER_AFTER_S, CLOSED_MS, HOURS, REASON, RUN_TIMEOUT_S, twofold
from tests.servers import wait_until
from twofold.batch.plan.plan import Plans
from twofold.features.page.tests.chromium import Browser, chromium
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.airflow.airflow_processes import passwords
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.timeout(1500)]

BACKFILL = f"flights.backfill.{HOURS.partition('.')[2]}"
FRAME = "document.querySelector('iframe')?.contentDocument"
PAGES = {
    "": "", "map": "What hangs on what", "tables": " tables", f"tables/{HOURS}": HOURS, "topics": " topics",
    "topics/flights.departures": "flights.departures", "plans": "plan", "proofs": "Proven when",
}  # fmt: skip
"""Path -> what its heading has, whatever the state."""
UI_S = 90.0
"""How long Airflow's own pages may take on a busy machine to show what they load."""


@pytest.fixture(scope="module")
def browser(platform: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser in which the administrator has logged in by Airflow's own form."""
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as browser:
        browser.look(1280, "light")
        log_in(browser, platform, "admin")
        yield browser


def log_in(browser: Browser, settings: Settings, user: str) -> None:
    browser.open(f"{settings.airflow_address}/plugin/twofold")
    browser.wait("document.querySelector('input[name=username]')", UI_S)
    for name, text in (("username", user), ("password", passwords(settings)[user])):
        browser.ask(f"document.querySelector('input[name={name}]').focus()")
        browser.write(text)
    press(browser, button("Sign in"))
    browser.wait("!location.pathname.includes('/auth/')", UI_S)


def show(browser: Browser, settings: Settings, path: str) -> str:
    """Opens a page in the frame by its address in Airflow, and returns its heading."""
    browser.open(f"{settings.airflow_address}/plugin/twofold/twofold/{path}")
    browser.wait(f"{FRAME}?.readyState === 'complete' && {FRAME}.querySelector('h1')", UI_S)
    return str(browser.ask(f"{FRAME}.querySelector('h1').textContent"))


def button(text: str) -> str:
    """The last button of Airflow's page that begins with this text, and can be pressed."""
    buttons = "[...document.querySelectorAll('button')]"
    return f"{buttons}.filter((one) => !one.disabled && one.innerText.trim().startsWith('{text}')).at(-1)"


def button_called(name: str) -> str:
    """The button that Airflow's own tests call so."""
    return f"document.querySelector('[data-testid={name}]:not([disabled])')"


def press(browser: Browser, found: str) -> None:
    browser.wait(found, UI_S)
    browser.ask(f"{found}.click()")


def follow(browser: Browser, link: str) -> None:
    """Follows the link of the page in the frame with this text."""
    found = f"[...{FRAME}.querySelectorAll('a')].find((one) => one.textContent === '{link}')"
    press(browser, found)


def ours(browser: Browser) -> list[str]:
    """What the console was told about the page, not about Airflow and the sandbox that it puts around."""
    return [error for error in browser.errors if "/twofold/" in error and "for its sandbox attribute" not in error]


def test_airflow_shows_every_page_in_its_own_theme(platform: Settings, browser: Browser) -> None:
    twofold(platform, "status")
    grounds = {}
    for theme in ("light", "dark"):
        browser.ask(f"localStorage.setItem('theme', '{theme}')")
        for width in (1280, 390):
            browser.look(width, "light")
            for path, heading in PAGES.items():
                assert heading in show(browser, platform, path)
                wide = f"{FRAME}.documentElement"
                assert browser.ask(f"{wide}.scrollWidth - {wide}.clientWidth") <= 0, (path, width)
                grounds[theme] = browser.ask(f"getComputedStyle({FRAME}.body).backgroundColor")
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}
    assert ours(browser) == []
    browser.ask("localStorage.setItem('theme', 'light')")


def test_links_lead_through_the_frame_and_out_of_it(platform: Settings, browser: Browser) -> None:
    twofold(platform, "status")
    browser.look(1280, "light")
    show(browser, platform, "")
    follow(browser, "Tables")
    browser.wait("location.pathname.endsWith('/plugin/twofold/twofold/tables')", UI_S)
    follow(browser, HOURS)
    browser.wait(f"location.pathname.endsWith('/twofold/tables/{HOURS}')", UI_S)
    follow(browser, "backfill")
    browser.wait(f"location.pathname === '/dags/{BACKFILL}'", UI_S)
    browser.open(f"{platform.airflow_address}/dags/{BACKFILL}/plugin/twofold_dag")
    browser.wait(f"{FRAME}?.querySelector('h1')?.textContent === '{HOURS}'", UI_S)
    assert ours(browser) == []


def test_the_frame_is_reached_by_keyboard(platform: Settings, browser: Browser) -> None:
    show(browser, platform, "tables")
    for _ in range(60):
        browser.press_tab()
        if browser.ask("document.activeElement?.tagName") == "IFRAME":
            break
    assert browser.ask(f"{FRAME}.activeElement.textContent") == "Skip to the content"
    for name in ("Home", "Map"):
        browser.press_tab()
        assert browser.ask(f"{FRAME}.activeElement.textContent") == name
    browser.press_enter()
    browser.wait("location.pathname.endsWith('/twofold/map')", UI_S)


@pytest.fixture
def damaged(platform: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """A row of the day that the form proposes, damaged by hand: where it is, and what it was and will be again."""
    client, lake = Client(platform), Lake(platform)
    checkpoint = Checkpoint.of_table(platform, load().find_table(HOURS))
    wait_until(lambda: (checkpoint.watermark_ms() or 0) > CLOSED_MS, RUN_TIMEOUT_S)
    wait_until(lambda: proposed(client), RUN_TIMEOUT_S)
    day = f"origin = 'JFK' AND date_trunc('day', hour) = '{proposed(client)[:10]}T00:00:00Z'"
    wait_until(lambda: len(pa.table(lake.open(HOURS).scan(predicate=day))), RUN_TIMEOUT_S)
    right = min(pa.table(lake.open(HOURS).scan(predicate=day)).to_pylist(), key=itemgetter("hour"))
    row = f"origin = 'JFK' AND hour = '{right['hour']:%Y-%m-%dT%H:%M:%SZ}'"
    lake.open(HOURS).update(updates={"flights": "flights + 1000"}, predicate=row)
    yield row, right
    twofold(platform, "backfill", HOURS)


def test_a_plan_goes_from_the_form_to_its_approval_and_back(
    platform: Settings, browser: Browser, damaged: tuple[str, dict[str, Any]]
) -> None:
    """Two real Spark jobs, which a person starts and answers in a browser."""
    client, lake, (row, right) = Client(platform), Lake(platform), damaged
    browser.look(1280, "light")

    show(browser, platform, f"tables/{HOURS}")
    follow(browser, "backfill")
    press(browser, button_called("trigger-dag-button"))
    press(browser, button_called("trigger-dag-submit"))
    wait_until(lambda: newest_run(client), RUN_TIMEOUT_S)
    run = newest_run(client)
    wait_until(lambda: client.question(BACKFILL, run), RUN_TIMEOUT_S)
    time.sleep(ANSWER_AFTER_S)
    [plan] = [plan for plan in Plans(platform).all() if plan.asked_in == f"{BACKFILL} {run}"]

    assert "waits" in shown_plan(browser, platform, plan.id)
    follow(browser, "Approve or reject it in Airflow")
    browser.wait("location.pathname.endsWith('/tasks/approve/required_actions')", UI_S)
    browser.wait("document.querySelector('#element_because')", UI_S)
    browser.ask("document.querySelector('#element_because').focus()")
    browser.write(REASON)
    press(browser, button("Approve"))
    assert client.wait(BACKFILL, run, RUN_TIMEOUT_S) == "success"
    assert pa.table(lake.open(HOURS).scan(predicate=row)).to_pylist() == [right]
    text = shown_plan(browser, platform, plan.id)
    assert "● published" in text
    assert f"approved by admin: {REASON}" in text
    assert f"./twofold rollback {HOURS} --run {plan.run}" in text

    twofold(platform, "rollback", HOURS, "--run", plan.run)
    [again] = pa.table(lake.open(HOURS).scan(predicate=row)).to_pylist()
    assert again["flights"] == right["flights"] + 1000
    ledger = pa.table(lake.open("ledger.corrections").scan(predicate="cause = 'rollback'")).to_pylist()
    assert [json.loads(one["after"])["flights"] for one in ledger if one["table"] == HOURS] == [again["flights"]]
    assert ours(browser) == []


def proposed(client: Client) -> str:
    """The day that the form proposes: the newest closed one."""
    return str(client._call("GET", f"/api/v2/dags/{BACKFILL}/details")["params"]["start"]["value"] or "")


def newest_run(client: Client) -> str:
    runs = client._call("GET", f"/api/v2/dags/{BACKFILL}/dagRuns?order_by=-run_after&limit=1")["dag_runs"]
    return str(runs[0]["dag_run_id"]) if runs else ""


def shown_plan(browser: Browser, settings: Settings, plan: str) -> str:
    """The text of the page of a plan, in the frame."""
    show(browser, settings, f"plans/{plan}")
    return " ".join(str(browser.ask(f"{FRAME}.body.innerText")).split())

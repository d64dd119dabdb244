"""The page in the frame of a real Airflow, in a browser: login, links in and out, deep links, keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.airflow.airflow_processes import passwords
from infra.settings import Settings
from tests.page.chromium import Browser, chromium
from tests.platform.airflow.running_airflow import HOURS, twofold

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.timeout(1500)]

BACKFILL = f"flights.backfill.{HOURS.partition('.')[2]}"
FRAME = "document.querySelector('iframe')?.contentDocument"
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


def test_links_lead_through_the_frame_and_out_of_it(platform: Settings, browser: Browser) -> None:
    browser.look(1280, "light")
    twofold(platform, "status")
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

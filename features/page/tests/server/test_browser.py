"""The page in a browser: at both widths and in both themes, without an error, by keyboard, with its slider.

axe-core, of npm, looks for what keeps people out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs import screenshots
from tests.status.test_window_life import HISTORY
from tests.support.npm_package import fetched, file_of
from twofold.features.page.platform_status import StatusCache
from twofold.features.page.row_story import Story
from twofold.features.page.server.app import application
from twofold.features.page.server.standalone import signed_in
from twofold.features.page.tests.chromium import Browser, chromium
from twofold.features.page.tests.server.test_app import PAGES, corrected
from twofold.features.page.tests.server.test_plan_pages import kept
from twofold.features.page.tests.small_platform import HOURS, saved
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.ports import free_port
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import plain

pytestmark = pytest.mark.prove


@pytest.fixture
def address(settings: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page, served as `twofold page` serves it."""
    settings = replace(settings, airflow_password="sesame", page_port=free_port())
    saved(settings)
    kept(settings)
    corrected(lake, ["a", "b"], ["x", "y"])
    monkeypatch.setattr("twofold.features.page.views.row_page.ask", lambda *_: Story(plain(HISTORY)))
    app = application(settings, signed_in(settings), cache=StatusCache(settings, advance=False))
    with screenshots.served(app, settings.page_port) as address:
        yield address


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with chromium(tmp_path / "profile") as browser:
        browser.sign_in("admin", "sesame")
        yield browser


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core."""
    return file_of(fetched("axe-core@4.14.1", tmp_path_factory.mktemp("npm") / "axe"), "axe.min.js")


EVERY = (*PAGES, f"/tables/{HOURS}/row?k.sensor=a", "/plans/backfill-20130105-abc")


def test_every_page_fits_both_widths_in_both_themes_without_an_error(address: str, browser: Browser, axe: str) -> None:
    """It takes a minute: some sixty pages are loaded."""
    grounds: dict[str, set[str]] = {}
    found: set[tuple[str, str]] = set()
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            browser.look(width, scheme)
            for path in EVERY:
                browser.open(f"{address}{path}")
                too_wide = browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert too_wide <= 0, (path, width)
                grounds.setdefault(scheme, set()).add(browser.ask("getComputedStyle(document.body).backgroundColor"))
                assert browser.ask("document.querySelectorAll('main h1').length") == 1
                found |= {(path, one) for one in browser.serious(axe)}
    assert found == set()
    assert browser.errors == []
    assert grounds == {"light": {"rgb(255, 255, 255)"}, "dark": {"rgb(20, 24, 30)"}}
    browser.ask("localStorage.setItem('theme', 'light')")
    browser.open(f"{address}/")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "as Airflow is"


def test_the_slider_says_what_another_delay_would_have_saved(address: str, browser: Browser) -> None:
    browser.look(1280, "light")
    browser.open(f"{address}/tables/{HOURS}")

    def moved(to: int) -> Any:
        return browser.ask(
            f"(() => {{ const slider = document.querySelector('input[type=range]'); slider.value = {to};"
            "slider.dispatchEvent(new Event('input')); return document.getElementById('say').textContent })()"
        )

    assert moved(0) == "The watermark waits 1 h; all 2 needed a correction."
    assert moved(1).startswith("If it waited 2 h, at least 0 of them"), "the records were two hours and a minute late"
    assert moved(2).startswith("If it waited 3 h, at least 2 of them")
    assert browser.ask("document.querySelector('input[type=range]').getAttribute('aria-valuetext')") == "3 h"
    assert browser.errors == []


def test_the_readme_has_its_pictures_from_a_home(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"light.png": (f"/tables/{HOURS}", 1), "dark.png": (f"/tables/{HOURS}", 0)}
    monkeypatch.setattr(screenshots, "PICTURES", pages)
    with pytest.raises(ProcessFailed, match="503"):
        screenshots.take(settings, tmp_path)
    saved(settings)
    screenshots.take(settings, tmp_path)
    light, dark = ((tmp_path / name).read_bytes() for name in pages)
    assert light[:8] == dark[:8] == b"\x89PNG\r\n\x1a\n"
    assert light != dark


def test_all_is_reached_by_keyboard_and_first_the_content(address: str, browser: Browser) -> None:
    browser.look(1280, "light")
    browser.open(f"{address}/map")
    wanted = browser.ask("document.querySelectorAll('a[href], input, summary, [tabindex=\"0\"]').length")
    name = "(e => (e.getAttribute('aria-label') || e.textContent || e.name).trim())(document.activeElement)"
    seen = set()
    for number in range(wanted):
        browser.press_tab()
        seen.add(" ".join(browser.ask(name).split()))
        if number == 0:
            assert browser.ask("document.activeElement.getBoundingClientRect().left") > 0, "it is seen"
    assert {"Skip to the content", f"{HOURS}, healthy", f"around it: {HOURS}"} <= seen
    assert len(seen) >= wanted - 5, "some links have the same text"

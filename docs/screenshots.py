"""Takes the pictures of the page that the README shows: `.venv/bin/python -m docs.screenshots`, while flights run."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI

from tests import ROOT
from twofold.features.page.platform_status import StatusCache
from twofold.features.page.server.app import application
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.ports import HOST, free_port
from twofold.infra.project.settings import Settings

FOLDER = ROOT / "docs" / "pictures"
PICTURES = {"table.png": ("/tables/flights.delays_by_hour", 1), "map.png": ("/map?word=flights.", 0)}
"""File -> its page, and the colours that the system prefers: 0 dark, 1 light."""
MOST_BYTES = 150_000
WIDTH, HEIGHT = 1280, 800
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WAIT_S = 60


def take(settings: Settings, folder: Path) -> None:
    """Takes the pictures of the home's page, as it is known now, into a folder.

    Raises:
        ProcessFailed: there is no browser, the home has no such page, or a picture is too large.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ProcessFailed("There is no browser.", hint="Install Debian's package chromium.")
    folder.mkdir(parents=True, exist_ok=True)
    everyone = application(settings, lambda: None, cache=StatusCache(settings, advance=False))
    with served(everyone, free_port()) as address, tempfile.TemporaryDirectory() as profile:
        for name, (path, scheme) in PICTURES.items():
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
            options += [f"--window-size={WIDTH},{HEIGHT}", f"--blink-settings=preferredColorScheme={scheme}"]
            _require(address + path)
            command = [browser, *options, f"--screenshot={folder / name}", address + path]
            subprocess.run(command, check=True, timeout=_WAIT_S, capture_output=True)
            if (size := (folder / name).stat().st_size) > MOST_BYTES:
                raise ProcessFailed(f"{name} has {size:,} bytes: expected at most {MOST_BYTES:,}.")


def _require(address: str) -> None:
    try:
        urllib.request.urlopen(address, timeout=_WAIT_S).close()
    except urllib.error.HTTPError as error:
        hint = "Start `./twofold demo`, and take the pictures while the platform runs."
        raise ProcessFailed(f"There is nothing to see at {address}: {error}.", hint=hint) from None


@contextmanager
def served(app: FastAPI, port: int) -> Iterator[str]:
    """Serves the page on 127.0.0.1 for as long as the block runs; yields its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://{HOST}:{port}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    take(Settings.from_environment(), FOLDER)

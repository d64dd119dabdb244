"""Drives a headless Chromium by its debugging protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from docs.screenshots import BROWSERS
from twofold.infra.process.ports import HOST, free_port

START_S, LOAD_S = 30.0, 30.0
ERRORS = ("Runtime.exceptionThrown", "Log.entryAdded")


class Browser:
    """One tab.

    Attributes:
        errors: what its console printed, and exceptions of scripts, since it was opened.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0
        self.errors: list[str] = []
        self._loaded = 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method of the protocol, and returns its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = self._take()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _take(self, timeout: float | None = None) -> Any:
        answer = json.loads(self._socket.recv(timeout))
        method, facts = answer.get("method"), answer.get("params", {})
        if method in ERRORS or (method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning")):
            self.errors.append(json.dumps(facts))
        self._loaded += method == "Page.loadEventFired"
        return answer

    def sign_in(self, user: str, password: str) -> None:
        """Sends this name and password from now on."""
        text = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {text}"})

    def look(self, width: int, scheme: str) -> None:
        """Makes the window so wide, and has the system prefer `dark` or `light`."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address: str) -> None:
        """Opens a page, and waits until it is loaded."""
        before, until = self._loaded, time.monotonic() + LOAD_S
        self.call("Page.navigate", url=address)
        while self._loaded == before and time.monotonic() < until:
            with suppress(TimeoutError):
                self._take(1.0)
        assert self._loaded > before, f"{address} does not load"

    def ask(self, expression: str) -> Any:
        """Returns the value of an expression of JavaScript in the page, or what its promise comes to."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (expression[:200], found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, expression: str, timeout_s: float = LOAD_S) -> None:
        """Waits until an expression is true in the page, also through loads of others."""
        until = time.monotonic() + timeout_s
        while not self.ask(f"!!({expression})"):
            if time.monotonic() > until:
                text = self.ask("document.body.innerText")
                pytest.fail(f"After {timeout_s:g} s not {expression} on {self.ask('location.href')}: {text[:2000]}")
            time.sleep(0.3)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses a key, by its name and its number."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def press_tab(self) -> None:
        self.press("Tab", 9)

    def press_enter(self) -> None:
        self.press("Enter", 13, "\r")

    def write(self, text: str) -> None:
        """Types a text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, file: Path) -> None:
        """Keeps what is seen."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def serious(self, axe: str) -> list[str]:
        """Lists what axe-core finds in the page that keeps people out of it, each with three places.

        Args:
            axe: the script of axe-core.
        """
        self.ask(f"{axe};0")
        found = self.ask(
            "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations"
            ".filter(({impact}) => impact === 'serious' || impact === 'critical')"
            ".map(({id, nodes}) => `${id}: ${nodes.slice(0, 3).map(({target}) => target.join(' ')).join(', ')}`))"
        )
        assert isinstance(found, list), found
        return found


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Starts a browser with an empty profile."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.fail("There is no Chromium: install Debian's package chromium.")
    port = free_port()
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command = [program, *options, f"--remote-debugging-port={port}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(_tab(port), max_size=None, ping_interval=None) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait(START_S)


def _tab(port: int) -> str:
    until = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/json", timeout=5) as answer:
                return str(next(tab for tab in json.load(answer) if tab["type"] == "page")["webSocketDebuggerUrl"])
        except (OSError, StopIteration):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)

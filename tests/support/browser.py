"""A headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from websockets.sync.client import connect

from tests.support.waiting import HANG_SECONDS

KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}


class Page:
    """One tab. ``problems``: exceptions of its scripts, and what its content policy has blocked."""

    def __init__(self, url: str) -> None:
        self._socket = connect(url, max_size=None, ping_interval=None)
        self._ids = itertools.count(1)
        self.problems: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(HANG_SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["source"] == "security":
                self.problems.append(params["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self._socket.send(
                    json.dumps(
                        {
                            "id": next(self._ids),
                            "method": "Page.handleJavaScriptDialog",
                            "params": {"accept": True},
                        }
                    )
                )

    def evaluate(self, expression: str) -> Any:
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + HANG_SECONDS
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < end, (expression, self.text(), self.problems)

    def wait_text(self, text: str) -> None:
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def text(self) -> str:
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def goto(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait(
            f"location.href.startsWith({json.dumps(url)}) && document.readyState == 'complete'"
        )

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {"key": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 * shift}
        common["code"] = "Space" if key == " " else key
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def open_browser() -> Iterator[Page]:
    """Start Chromium with one tab; the test is skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is not installed")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        subprocess.Popen(
            [
                program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-dev-shm-usage", "--disable-background-networking",
                "--remote-debugging-port=0", "--remote-allow-origins=*",
                f"--user-data-dir={profile}", "about:blank",
            ],
            stderr=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        try:
            assert process.stderr
            found = None
            for line in process.stderr:
                if found := re.search(r"DevTools listening on ws://([^/]+)/", line):
                    break
            assert found, "Chromium did not start"
            with urlopen(f"http://{found[1]}/json/list") as answer:
                tabs = json.load(answer)
            yield Page(next(t["webSocketDebuggerUrl"] for t in tabs if t["type"] == "page"))
        finally:
            process.kill()

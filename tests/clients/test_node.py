"""Clients of npm, each a program of its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.conftest import Run
from tests.clients.weather import OSLO, ROME


def test_openai_js(url: str, node: Path, run: Run) -> None:
    said = json.loads(run("node", node / "openai.mjs", BASE_URL=url, OSLO=OSLO, ROME=ROME))
    assert said["plain"].startswith("Hello")
    assert OSLO in said["oslo"] and ROME in said["rome"]
    assert isinstance(said["pet"]["tame"], bool)


def test_ai_sdk(url: str, node: Path, run: Run) -> None:
    said = json.loads(run("node", node / "ai.mjs", BASE_URL=url, OSLO=OSLO, ROME=ROME))
    assert said["plain"].startswith("Hello")
    assert OSLO in said["oslo"] and ROME in said["rome"]
    assert said["steps"] == 2

"""Clients of npm, each a program of its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.conftest import Run
from tests.clients.weather import OSLO, ROME


def test_openai_js_turns_and_tools(url: str, node: Path, run: Run) -> None:
    output = json.loads(run("node", node / "openai.mjs", BASE_URL=url, OSLO=OSLO, ROME=ROME))
    assert output["plain"].startswith("Hello")
    assert OSLO in output["oslo"] and ROME in output["rome"]
    assert isinstance(output["pet"]["tame"], bool)


def test_openai_js_conversation(url: str, node: Path, run: Run) -> None:
    output = json.loads(run("node", node / "conversations.mjs", BASE_URL=url))
    first, last = output["answers"]
    assert output["before"] == ["hello", "Hi!", "What is 12*34?", first, "thank you", last]
    assert output["after"] == output["before"][:-1] and output["named"]
    assert output["metadata"] == {"topic": "more"} and output["deleted"]
    assert output["code"] == "conversation_not_found"


def test_ai_sdk_turns_and_tools(url: str, node: Path, run: Run) -> None:
    output = json.loads(run("node", node / "ai.mjs", BASE_URL=url, OSLO=OSLO, ROME=ROME))
    assert output["plain"].startswith("Hello")
    assert OSLO in output["oslo"] and ROME in output["rome"]
    assert output["steps"] == 2

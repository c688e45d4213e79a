"""Clients of npm, each a program of its own."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from tests.clients.conftest import Run, Scripted
from tests.clients.weather import OSLO, ROME
from tests.support.pdf import pdf as make_pdf
from tests.support.scripts import final, hold


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


def test_agents_sdk_js_reasoning_summaries(url: str, node: Path, run: Run) -> None:
    if not (node / "node_modules" / "@openai" / "agents").is_dir():
        pytest.skip("the Agents SDK of npm is not installed: make test-clients")
    output = json.loads(run("node", node / "agents.mjs", BASE_URL=url, OSLO=OSLO, ROME=ROME))
    assert output["summary"] and "".join(output["shown"]) == output["summary"]
    assert output["encrypted"], "the item that goes back has its reasoning"
    assert OSLO in output["oslo"] and ROME in output["rome"]


def test_ai_sdk_files(url: str, node: Path, run: Run) -> None:
    words = "frog " * 100
    pdf = b64encode(make_pdf(words)).decode()
    output = json.loads(run("node", node / "file.mjs", BASE_URL=url, TEXT=words, PDF=pdf))
    for kind, name in (("text", "notes.txt"), ("pdf", "notes.pdf")):
        assert output[kind]["files"] == [name] and output[kind]["text"]
        assert output[kind]["tokens"] - output["none"]["tokens"] >= 100


@pytest.mark.parametrize("route", ["responses", "chat/completions", "completions"])
def test_fetch_of_node_survives_a_long_prefill(
    scripted: Scripted, node: Path, run: Run, tmp_path: Path, route: str
) -> None:
    """Its limit between two chunks is 3 s here, the server's silence 1 s."""
    go = tmp_path / "go"
    url = scripted(hold(final("It took long."), 0, go), frequent_keepalives=True)
    user = {"role": "user", "content": "x"}
    body = {"input": "x", "messages": [user], "prompt": "x", "stream": True}
    fields = {"responses": "input", "chat/completions": "messages", "completions": "prompt"}
    sent = {name: body[name] for name in (fields[route], "stream")}
    env = {"ROUTE": route, "BODY": json.dumps(sent), "GO": str(go), "SIGNS": "5"}
    output = json.loads(run("node", node / "silence.mjs", BASE_URL=url, **env))
    assert output["signs"] >= 5 and "took" in output["text"]
    assert output["text"].endswith("data: [DONE]\n\n")

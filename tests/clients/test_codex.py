"""Codex CLI: its shell and its MCP servers there and back, and a second turn that goes on.

The engine is scripted, since the embedded model does not follow Codex's long prompt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.codex import CONFIG, REPLIES
from tests.clients.conftest import ROOT, Run, Scripted
from tests.support.scripts import call, final, thought

PROVIDER = """
model = "default"
model_provider = "local"
model_providers.local = {{ name = "agent", base_url = "{url}", supports_websockets = {sockets} }}
mcp_servers.plain = {{ command = "{python}", args = ["{server}"], required = true }}
"""
PLAIN = ROOT / "tests" / "support" / "mcp_servers" / "plain.py"
FROGS = thought("I ask the server.") + call("mcp__plain__echo", text="frogs")


@pytest.mark.parametrize("sockets", ["false", "true"], ids=["http", "websocket"])
def test_codex_tools_and_second_turn(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run, sockets: str
) -> None:
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    url = scripted(*REPLIES[:2], FROGS, *REPLIES[1:])
    config.write_text(
        CONFIG + PROVIDER.format(url=url, sockets=sockets, python=sys.executable, server=PLAIN)
    )

    def codex(*arguments: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The items of a turn, and what it used."""
        out = run("codex", "exec", "--json", "--skip-git-repo-check", *arguments)
        events = [json.loads(line) for line in out.splitlines()]
        assert events[-1]["type"] == "turn.completed", out
        assert not [event for event in events if event["type"] == "error"], "it had to try again"
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return [item for item in items if item["type"] != "error"], events[-1]["usage"]

    items, first = codex("make the file")
    thoughts = [item["text"] for item in items if item["type"] == "reasoning"]
    assert thoughts.count("I ask the server.") == 1, "the summary, and not its text once more"
    command, mcp_call, answer = [item for item in items if item["type"] != "reasoning"]
    assert (command["type"], command["exit_code"]) == ("command_execution", 0)
    assert command["aggregated_output"] == "from the shell\n"
    assert (tmp_path / "made.txt").read_text() == "from the shell\n"
    assert (mcp_call["type"], mcp_call["server"], mcp_call["tool"]) == (
        "mcp_tool_call",
        "plain",
        "echo",
    )
    assert mcp_call["result"]["content"] == [{"type": "text", "text": "frogs"}]
    assert (answer["type"], answer["text"]) == ("agent_message", "The file is made.")
    items, both = codex("resume", "--last", "what is its name?")
    answer = items[-1]
    assert answer["text"] == "It is made.txt."
    # It goes on from the very tokens of before. Over a socket it lays its instructions ahead, and a
    # scripted engine remembers the latest prompt only.
    read = both["input_tokens"] - first["input_tokens"]
    cached = both["cached_input_tokens"] - first["cached_input_tokens"]
    assert read > 5000 and cached > (0.8 if sockets == "true" else 0.9) * read


def test_codex_known_model_name_extra_tools_ignored(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run
) -> None:
    """It then offers kinds of tools that are nowhere but at OpenAI."""
    models = tmp_path / "agent-home" / "config" / "models.toml"
    models.parent.mkdir(parents=True)
    models.write_text('[tiny]\naliases = ["gpt-5.5"]\n')
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    provider = PROVIDER.splitlines()[2:4]
    known = "\n".join(['model = "gpt-5.5"', *provider]).format(
        url=scripted(final("Hello.")), sockets="false"
    )
    config.write_text(CONFIG + known)
    out = run("codex", "exec", "--json", "--skip-git-repo-check", "hello")
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["type"] == "turn.completed", out
    assert [event["item"]["text"] for event in events if "item" in event][-1] == "Hello."
    log = (tmp_path / "agent-home" / "state" / "agent.log").read_text()
    assert "no tool of type 'tool_search'" in log, "it offers it no longer: look what it does offer"

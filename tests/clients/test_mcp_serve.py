"""`agent mcp serve` as a server of other programs: the MCP SDK of TypeScript, and Codex."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.codex import CONFIG
from tests.clients.conftest import AGENT, ROOT, Run, Scripted
from tests.support.scripts import DONE, call, final, thought

PYTHON = AGENT[0]
BOOKING = ROOT / "tests" / "support" / "mcp_servers" / "booking.py"
PROVIDER = """
model = "default"
model_provider = "local"
model_providers.local = {{ name = "agent", base_url = "{url}", supports_websockets = false }}
[mcp_servers.helper]
command = "{python}"
args = ["-P", "-m", "agent", "mcp", "serve", "--tools", "python"]
env = {{ AGENT_HOME = "{home}", PYTHONPATH = "{root}" }}
required = true
"""


def test_typescript_sdk_asks_and_answers_question(node: Path, run: Run, tmp_path: Path) -> None:
    if not (node / "node_modules" / "@modelcontextprotocol" / "client").is_dir():
        pytest.skip("the MCP SDK of npm is not installed: make test-clients")
    script = tmp_path / "script.jsonl"
    lines = ({"markup": call("booking__book")}, {"markup": DONE})
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ("--engine", f"script:{script}", "--mcp", f"booking={PYTHON} -I {BOOKING}")
    server = [*map(str, AGENT), "mcp", "serve", "--tools", "booking", *options]
    home = str(tmp_path / "home")
    out = run(
        "node", node / "mcp.mjs", SERVER=json.dumps(server), AGENT_HOME=home, PYTHONPATH=str(ROOT)
    )
    output = json.loads(out)
    assert output["tools"] == ["ask"] and output["answer"] == "It is **done**."
    assert output["questions"] == ["booking: Which table shall it be?"]
    assert "calling booking.book" in output["steps"]
    assert '"seats":3' in output["conversation"]


def test_codex_asks_embedded_model(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run
) -> None:
    ask = thought("I ask the helper.") + call("mcp__helper__ask", prompt="What is 12*34?")
    # More answers than are needed: while the helper works, another generation takes one.
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    home = tmp_path / "helper-home"
    config.write_text(
        CONFIG
        + PROVIDER.format(
            url=scripted(ask, *[final("It is 408.")] * 3), python=PYTHON, home=home, root=ROOT
        )
    )
    out = run("codex", "exec", "--json", "--skip-git-repo-check", "ask the helper")
    events = [json.loads(line) for line in out.splitlines()]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    (called,) = [item for item in items if item["type"] == "mcp_tool_call"]
    assert (called["server"], called["tool"], called["status"]) == ("helper", "ask", "completed")
    assert "408" in called["result"]["content"][0]["text"], called

"""The MCP panel: what a person learns there of their servers, and does to them."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_app import screen_text
from tests.support.hosts import SERVERS
from tests.tools.mcp.test_oauth import browse, guarded  # noqa: F401
from tests.tui.screens.test_screens import visit  # noqa: F401
from tools.types import Answer

LATE = "import runpy, sys; open(sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"


pytestmark = pytest.mark.slow


def configured(home: Path, **servers: Any) -> dict[str, Any]:
    path = home / "config/mcp.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return {"tools": "all"}


async def test_a_person_looks_at_servers_and_switches_tools(
    visit: Any,  # noqa: F811
    home: Path,
    tmp_path: Path,
) -> None:
    there, plain = tmp_path / "there", str(SERVERS / "plain.py")
    late = {"command": sys.executable, "args": ["-I", "-c", LATE, str(there), plain]}
    async with visit(shared=configured(home, late=late), size=(120, 40)) as someone:
        host = someone.app.session.runtime.host
        await someone.until(lambda: someone.app.session.runtime.loaded)
        await someone.press("f7", *"late")
        await someone.sees("✗ late", "failed · stdio", "No such file or directory", "stderr")
        there.touch()
        await someone.press("ctrl+r")
        await someone.sees("● late", "17 tools", "☑ echo", "tokens of every prompt.")
        (total,) = {line for line in screen_text(someone.app).split("\n") if "of every" in line}
        await someone.press("down", "enter")
        await someone.sees("16 of 17 tools", "☐ echo", "off: from the next turn on")
        assert "late.echo" not in [f"{tool.server}.{tool.name}" for tool in host.tools()]
        await someone.press("up")
        await someone.sees("tokens of every prompt.")
        assert total not in screen_text(someone.app), "the prompt is shorter"

        echo = next(tool for tool in host.all_tools() if tool.name == "echo")
        policy = someone.app.session.runtime.policy
        before, config = replace(echo, description="Say it."), host.config("late")
        policy.answered(before, config, Answer("session"), "{}", "the person")
        await someone.press("down", "enter")
        await someone.sees("☑ echo", "changed since you allowed it", "-description: Say it.")
        await someone.press("escape", *"hello", "enter")
        await someone.sees("Fine.")


@pytest.mark.parametrize("guarded", [3600], indirect=True)
async def test_a_person_logs_in(
    visit: Any,  # noqa: F811
    home: Path,
    guarded: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda page: asyncio.run(browse(page)))
    async with visit(shared=configured(home, guarded={"url": guarded.url})) as someone:
        await someone.press("f7", *"guarded")
        await someone.sees("✗ guarded", "wants a login")
        await someone.press("ctrl+l")
        await someone.sees("You are logged in.", "● guarded", "☑ secret")

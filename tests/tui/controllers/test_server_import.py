"""``/mcp-import``: other programs' servers are added and connected in the running app."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest


async def test_import_server_that_names_the_folder_is_connected(
    open_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    entry = {"command": sys.executable, "args": ["${workspaceFolder}/s.py"], "cwd": "${userHome}"}
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"fs": entry}}))
    async with open_app(size=(120, 40), launch={"root": folder}) as driver:
        await driver.type_text("/mcp-import", "enter")
        await driver.expect_text("Add these MCP servers to yours?", "Cursor")
        await driver.pilot.press("y")
        host = driver.app.session.runtime.host
        await driver.wait_for(lambda: host.server_config("fs") is not None)
        config = host.server_config("fs")
        assert config.problem is None
        assert (config.args, config.cwd) == ((f"{folder}/s.py",), str(tmp_path))

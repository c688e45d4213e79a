"""The screen of MCP servers: states, costs, switched tools and logins, in the real app."""

import asyncio
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.content import Content

from tests.support.fake_app import screen_text
from tests.support.hosts import SERVERS_FOLDER
from tests.support.oauth import open_page
from tests.support.oauth_server import run_oauth_server
from tools.config.servers import ServerConfig
from tools.types import Answer
from tui.screens.servers import _parameter_lines
from tui.widgets.login_card import LoginCard

LATE = "import runpy, sys; open(sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"


pytestmark = pytest.mark.slow


def configured(home: Path, **servers: Any) -> dict[str, Any]:
    """Write mcp.json; return the launch options that load its servers."""
    path = home / "config/mcp.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return {"tools": "all"}


@pytest.mark.long
async def test_servers_screen_tools_are_switched(open_app: Any, home: Path, tmp_path: Path) -> None:
    started, plain = tmp_path / "there", str(SERVERS_FOLDER / "plain.py")
    late = {"command": sys.executable, "args": ["-I", "-c", LATE, str(started), plain]}
    async with open_app(launch=configured(home, late=late), size=(120, 40)) as driver:
        host = driver.app.session.runtime.host
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await driver.pilot.press("f7", *"late")
        await driver.expect_text("✗ late", "failed · stdio", "No such file or directory", "stderr")
        started.touch()
        await driver.pilot.press("ctrl+r")
        await driver.expect_text("● late", "19 tools", "☑ echo", "tokens of every prompt.")
        (total,) = {line for line in screen_text(driver.app).split("\n") if "of every" in line}
        await driver.pilot.press("down", "enter")
        await driver.expect_text("18 of 19 tools", "☐ echo", "off from the next turn on")
        assert "late.echo" not in [f"{tool.server}.{tool.name}" for tool in host.tools()]
        await driver.pilot.press("up")
        await driver.expect_text("tokens of every prompt.")
        assert total not in screen_text(driver.app), "the prompt is shorter"

        echo = next(tool for tool in host.all_tools() if tool.name == "echo")
        policy = driver.app.session.runtime.policy
        before, config = replace(echo, description="Say it."), host.server_config("late")
        policy.record_answer(before, config, Answer("session"), "{}", "the person")
        await driver.pilot.press("down", "enter")
        await driver.expect_text("☑ echo", "changed since you allowed it", "-description: Say it.")
        await driver.pilot.press("escape", *"hello", "enter")
        await driver.expect_text("Fine.")


def open_in_thread(page: str) -> None:
    threading.Thread(target=lambda: asyncio.run(open_page(page))).start()


@pytest.mark.long
@pytest.mark.parametrize("oauth_server", [3600], indirect=True)
async def test_servers_screen_log_in_opens_browser(
    open_app: Any, home: Path, oauth_server: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.mcp.oauth.open_in_browser", open_in_thread)
    async with open_app(launch=configured(home, guarded={"url": oauth_server.url})) as driver:
        await driver.pilot.press("f7", *"guarded")
        await driver.expect_text("✗ guarded", "requires a login")
        await driver.pilot.press("ctrl+l")
        await driver.expect_text("Logged in.", "● guarded", "☑ secret")


@pytest.mark.parametrize(
    "schema",
    [{}, {"properties": []}, {"properties": {"a": None}, "required": True},
     {"properties": {"a": {"enum": 1, "anyOf": "x", "items": [], "type": None}}}],
)  # fmt: skip
def test_parameter_lines_odd_schema_never_fails(schema: dict[str, Any]) -> None:
    assert all(isinstance(line, Content) for line in _parameter_lines(schema))


@pytest.mark.long
async def test_login_is_offered_on_a_card(
    open_app: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.mcp.oauth.open_in_browser", open_in_thread)
    async with run_oauth_server() as oauth:
        launch = configured(home, guarded={"url": oauth.config.url})
        async with open_app(launch=launch) as driver:
            await driver.expect_text(
                "guarded wants a login", "The server guarded requires a login."
            )
            oauth.registers = False
            await driver.pilot.click("#login")
            await driver.expect_text("registers no clients", "Not now")
            oauth.registers = True
            # For a moment after a click a button takes no other.
            await driver.wait_for(lambda: not driver.app.query_one("#login").has_class("-active"))
            await driver.pilot.click("#login")
            await driver.wait_for(
                lambda: driver.app.session.runtime.host.server_states()[-1].status == "ready"
            )
            await driver.wait_for(lambda: not driver.app.query("LoginCard"))


async def test_login_card_leaves_letters_to_prompt(open_app: Any, home: Path) -> None:
    async with run_oauth_server() as oauth:
        launch = configured(home, guarded={"url": oauth.config.url})
        async with open_app(launch=launch) as driver:
            await driver.expect_text("guarded wants a login")
            card = driver.app.query_one(LoginCard)
            await driver.wait_for(lambda: card.has_focus_within)
            await driver.expect_text("Log in", gone="Tab to answer")
            await driver.pilot.press(*"read")
            assert driver.app.prompt.text == "read"
            await driver.expect_text("Tab to answer")
            await driver.pilot.press("enter")
            await driver.expect_text("❯ read", "Fine.")
            assert not card.began


@pytest.mark.long
async def test_login_offer_that_is_declined_or_gives_way_to_a_turn(
    open_app: Any, home: Path
) -> None:
    async with run_oauth_server() as oauth:
        launch = configured(home, guarded={"url": oauth.config.url})
        async with open_app(launch=launch) as driver:
            await driver.expect_text("guarded wants a login")
            driver.app.prompt.focus()
            await driver.pilot.pause()
            await driver.pilot.press(*"hello", "enter")
            await driver.expect_text("Fine.", "agent mcp login guarded", "(or F7, Ctrl-L)")
            assert not driver.app.query("LoginCard")
            # A turn that names the server asks again.
            await driver.pilot.press(*"guarded", "enter")
            await driver.expect_text("guarded wants a login")
            await driver.pilot.press("tab", "ctrl+d")
            await driver.wait_for(lambda: driver.app.turn is None)
            assert not driver.app.query("LoginCard")

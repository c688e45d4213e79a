"""The prompt of ``agent 'PROMPT'``."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.support.fake_app import AppDriver, FakeSession, make_app, screen_text
from tui.screens.history import HistoryScreen


async def test_screen_that_needs_the_session_opens_once_it_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, may_begin = FakeSession(), asyncio.Event()
    begin = session.begin

    async def begin_later() -> None:
        await may_begin.wait()
        await begin()

    monkeypatch.setattr(session, "begin", begin_later)
    app = make_app(session)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = AppDriver(app, session, pilot)
        await driver.expect_text("starting")
        await pilot.press("ctrl+r")
        await driver.wait_for(lambda: isinstance(app.screen, HistoryScreen))
        opened = AsyncMock()
        monkeypatch.setattr(app.navigator, "servers", opened)
        await pilot.press("escape", "f7")
        await driver.expect_text("/mcp")
        assert not opened.await_count
        may_begin.set()
        await driver.wait_for(lambda: opened.await_count)
        await driver.wait_for(lambda: app.queue.is_empty)


async def test_first_prompt_is_sent_with_its_files(open_app: Any, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("bread")
    async with open_app(launch={"root": tmp_path}, first_prompt="What is in @list.txt?") as driver:
        await driver.expect_text("❯ What is in @list.txt?", "Fine.")
        assert driver.app.own_turn.view.raw_prompt.endswith("bread\n</file>")
        await driver.pilot.press("up")
        assert driver.app.prompt.text == "What is in @list.txt?"


async def test_first_prompt_continues_conversation(open_app: Any) -> None:
    async with open_app(first_prompt="One?") as driver:
        await driver.expect_text("Fine.")
        name = driver.app.session.conversation.id
    async with open_app(continue_latest=True, first_prompt="Two?") as driver:
        await driver.expect_text("❯ One?", "❯ Two?")
        await driver.wait_for(lambda: driver.app.status.activity == "ready")
        assert driver.app.session.conversation.id == name
        assert len(await driver.app.session.storage.turns(name)) == 2


async def test_first_prompt_waits_in_input_while_conversation_is_chosen(open_app: Any) -> None:
    async with open_app(first_prompt="One?") as driver:
        await driver.expect_text("Fine.")
    async with open_app(resume="", first_prompt="Two?") as driver:
        await driver.expect_text("Conversations", "❯ One?")
        await driver.pilot.press("enter")
        await driver.expect_text("Fine.", "Two?")
        assert driver.app.prompt.text == "Two?"


async def test_first_prompt_command_is_run_and_unknown_one_returned(open_app: Any) -> None:
    async with open_app(first_prompt="/effort high") as driver:
        await driver.wait_for(lambda: driver.app.session.options.effort == "high")
    async with open_app(first_prompt="/nosuch command") as driver:
        await driver.wait_for(lambda: driver.app.prompt.text == "/nosuch command")


async def test_first_prompt_of_blanks_is_not_sent(open_app: Any) -> None:
    async with open_app(first_prompt="  \n") as driver:
        await driver.wait_for(lambda: driver.app.chat.idle)
        assert driver.app.turn is None


async def test_tools_of_model_whose_calls_cannot_be_parsed_are_off(
    open_app: Any, models_toml: Path
) -> None:
    models_toml.write_text('[words]\npath = "nowhere.gguf"\nformat = "plain"\n')
    off = "Tools are off: this program cannot parse the calls of words."
    async with open_app(launch={"model": "words", "tools": "python"}, size=(120, 40)) as driver:
        await driver.expect_text(off)
        await driver.wait_for(lambda: driver.app.session.runtime.loaded is not None)
        for command in ("/tools", "/status", "/context"):
            await driver.app.transcript.clear()
            await driver.type_text(command)
            await driver.pilot.press("enter")
            await driver.expect_text(off)
    async with open_app(launch={"model": "words", "tools": "none"}) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded is not None)
        assert "Tools are off" not in screen_text(driver.app)

"""Keys that are pressed while a question takes the focus."""

from __future__ import annotations

import asyncio

import pytest
from textual.widgets import Button

from tests.support.fake_app import drive_app
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tui.controllers import prompts

QUESTION = ElicitationRequest("plain", "Delete ALL your files?", {"properties": {}})


async def test_enter_right_after_question_took_focus_presses_no_button(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompts, "EARLY_KEY_SECONDS", 3600.0)
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.answerer(QUESTION))
        await driver.wait_for(lambda: isinstance(driver.app.focused, Button))
        await driver.pilot.press("enter", "enter")
        await driver.pilot.pause()
        assert not answer.done()
        monkeypatch.setattr(prompts, "EARLY_KEY_SECONDS", 0.0)
        await driver.pilot.press("enter")
        await driver.wait_for(answer.done)
        assert answer.result() == ElicitationResult("accept", {})
        turn.end()


async def test_enter_after_person_went_to_question_presses_its_button(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompts, "FOCUS_DELAY_SECONDS", 3600.0)
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.answerer(QUESTION))
        await driver.expect_text("Delete ALL your files?")
        await driver.pilot.press("tab", "enter")
        await driver.wait_for(answer.done)
        assert answer.result().action == "accept"
        turn.end()


async def test_letters_go_to_prompt_where_question_has_only_buttons() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.answerer(QUESTION))
        await driver.wait_for(lambda: isinstance(driver.app.focused, Button))
        await driver.pilot.press(*"so on")
        assert driver.app.prompt.has_focus and driver.app.prompt.text == "so on"
        assert not answer.done()
        answer.cancel()
        turn.end()

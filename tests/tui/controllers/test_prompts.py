"""Keys that are pressed while a question takes the focus."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from textual.widgets import Button, Input

from tests.support.fake_app import drive_app
from tools.mcp.client_requests import ElicitationRequest
from tui.screens.dialogs import ConfirmDialog
from tui.widgets.elicitation_form import ElicitationForm
from tui.widgets.search import SearchBar

QUESTION = ElicitationRequest("plain", "Delete ALL your files?", {"properties": {}})
WITH_DEFAULT = ElicitationRequest(
    "plain",
    "Which files?",
    {"type": "object", "properties": {"files": {"type": "string", "default": "all"}}},
)
CALL = SimpleNamespace(server="files", name="write")


@pytest.mark.parametrize("question", [QUESTION, WITH_DEFAULT, CALL], ids=["yes", "form", "call"])
async def test_enter_right_after_question_took_focus_answers_nothing(
    question: ElicitationRequest | SimpleNamespace,
) -> None:
    async with drive_app() as driver:
        cards = driver.app.chat.cards
        cards.early_key_delay = 3600.0
        turn = await driver.ask("hello")
        if isinstance(question, ElicitationRequest):
            answer = asyncio.ensure_future(driver.session.answerer(question))
        else:
            answer = asyncio.ensure_future(driver.session.approver(question, "{}"))
        await driver.wait_for(lambda: not driver.app.prompt.has_focus)
        assert cards.is_settling
        await driver.pilot.press("enter", "enter")
        await driver.pilot.press("down", "up", "enter")
        await driver.pilot.pause()
        assert not answer.done() and not driver.app.prompt.has_focus
        cards.early_key_delay = 0.0
        await driver.pilot.press("enter")
        await driver.wait_for(answer.done)
        result = answer.result()
        assert result.choice == "once" if question is CALL else result.action == "accept"
        turn.end()


async def test_enter_on_another_screen_is_not_for_the_question() -> None:
    async with drive_app() as driver:
        driver.app.chat.cards.early_key_delay = 3600.0
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.approver(CALL, "{}"))
        await driver.wait_for(lambda: not driver.app.prompt.has_focus)
        await driver.app.push_screen(ConfirmDialog("Delete it?", "delete"))
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.app.screen is driver.app.default_screen)
        assert not answer.done()
        answer.cancel()
        turn.end()


async def test_enter_after_person_went_to_question_presses_its_button() -> None:
    async with drive_app() as driver:
        driver.app.chat.cards.focus_delay = math.inf
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.answerer(QUESTION))
        await driver.expect_text("Delete ALL your files?")
        await driver.pilot.press("tab", "enter")
        await driver.wait_for(answer.done)
        assert answer.result().action == "accept"
        turn.end()


async def test_enter_behind_ctrl_z_answers_nothing_after_fg() -> None:
    """It was meant for the shell. The focus was in the question long before."""
    async with drive_app() as driver:
        cards = driver.app.chat.cards
        cards.early_key_delay = 3600.0
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.approver(CALL, "{}"))
        await driver.wait_for(lambda: not driver.app.prompt.has_focus)
        cards._took_focus_at = -math.inf
        driver.app.app_resume_signal.publish(driver.app)
        await driver.pilot.press("enter")
        assert not answer.done()
        cards.early_key_delay = 0.0
        await driver.pilot.press("enter")
        await driver.wait_for(answer.done)
        turn.end()


async def test_question_leaves_focus_to_prompt_right_after_fg() -> None:
    """The time in which the app was suspended does not count as a pause in typing."""
    async with drive_app() as driver:
        cards = driver.app.chat.cards
        cards.focus_delay = math.inf
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.approver(CALL, "{}"))
        await driver.expect_text("Allow files.write?")
        driver.app.prompt.last_input_at = -math.inf
        driver.app.app_resume_signal.publish(driver.app)
        cards.focus_delay = 3600.0
        cards.enter_when_idle()
        await driver.pilot.press("y")
        assert driver.app.prompt.text == "y" and not answer.done()
        answer.cancel()
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


@pytest.mark.parametrize("ends", ["withdrawn", "answered"])
async def test_question_that_ends_leaves_the_focus_where_the_person_types(ends: str) -> None:
    async with drive_app() as driver:
        driver.app.chat.cards.focus_delay = math.inf
        turn = await driver.ask("hello")
        answer = asyncio.ensure_future(driver.session.answerer(QUESTION))
        await driver.expect_text("Delete ALL your files?")
        await driver.pilot.press("ctrl+f", *"ab")
        card = driver.app.query_one(ElicitationForm)
        if ends == "withdrawn":
            answer.cancel()
        else:
            await driver.pilot.click(card.query(Button).first())
            await driver.wait_for(answer.done)
            assert driver.app.prompt.has_focus, "the question had it"
            await driver.pilot.press("ctrl+f")
        await driver.wait_for(lambda: not driver.app.query(ElicitationForm))
        await driver.pilot.press(*"cd")
        assert driver.app.prompt.text == ""
        assert driver.app.query_one(SearchBar).query_one(Input).value == (
            "abcd" if ends == "withdrawn" else "cd"
        )
        turn.end()

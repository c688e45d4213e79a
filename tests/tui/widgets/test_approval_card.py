"""What the card of a waiting call shows where rows are short."""

import asyncio
from types import SimpleNamespace

import pytest
from textual.geometry import Size
from textual.widgets import OptionList

from agent import events as ev
from tests.support.fake_app import AppDriver, drive_app, emit_call, screen_text
from tests.tui.scenes.approvals import command
from tui.widgets.approval_card import ApprovalCard
from tui.widgets.text_stream import TextStream

SIZES = [(30, 8), (40, 10), (60, 15), (80, 24)]
LABELS = ["Allow once", "Allow in this session", "Always allow", "Deny", "Deny and say why"]


def assert_call_and_answer_seen(driver: AppDriver) -> None:
    """The call's first row, the highlighted answer and the status line are on the screen."""
    screen = screen_text(driver.app)
    rows = screen.splitlines()
    highlighted = driver.app.query_one(ApprovalCard).query_one(OptionList).highlighted
    assert highlighted is not None
    assert "fox$" in screen, screen
    assert LABELS[highlighted] in screen, screen
    assert "waiting" in rows[-1], screen


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
async def test_approval_card_call_and_answer_are_seen_at_any_size(size: tuple[int, int]) -> None:
    async with drive_app(size=size) as driver:
        await command(driver)
        assert_call_and_answer_seen(driver)
        for key in ("down", "down", "down", "down", "tab", "shift+tab", "up", "up"):
            await driver.pilot.press(key)
            driver.app.query_one(ApprovalCard).enter()
            await driver.pilot.pause()
            assert_call_and_answer_seen(driver)
        for other in [*SIZES, *reversed(SIZES)]:
            await driver.resize(*other)
            assert_call_and_answer_seen(driver)


async def test_approval_card_beside_long_draft_keeps_its_rows() -> None:
    async with drive_app(size=(40, 10)) as driver:
        await command(driver)
        driver.app.prompt.insert("\n".join("draft" for _ in range(12)))
        await driver.pilot.pause()
        assert_call_and_answer_seen(driver)


async def test_approval_cards_that_come_together_show_one_by_one() -> None:
    async with drive_app(size=(40, 10)) as driver:
        turn = await driver.ask("hello")
        for name in ("write", "move"):
            call = emit_call(turn, "files", name, "{}")
            call.arguments_done("{}")
            turn.emit(
                ev.AgentApprovalRequested(
                    item_id=call.id, server="files", tool=name, arguments="{}", reason=""
                )
            )
        tools = [SimpleNamespace(server="files", name=name) for name in ("write", "move")]
        answers = [asyncio.ensure_future(driver.session.approver(tool, "{}")) for tool in tools]
        await driver.expect_text("Allow files.write?", gone="Allow files.move?")
        await driver.wait_for(lambda: driver.app.query(ApprovalCard).first().has_focus_within)
        await driver.pilot.press("n")
        await driver.wait_for(answers[0].done)
        await driver.wait_for(lambda: len(driver.app.query(ApprovalCard)) == 1)
        await driver.expect_text("Allow files.move?", gone="Allow files.write?")
        await driver.wait_for(lambda: driver.app.query(ApprovalCard).first().has_focus_within)
        await driver.pilot.press("n")
        await driver.wait_for(answers[1].done)
        turn.end()


async def test_text_stream_written_between_measure_and_layout_is_measured_again() -> None:
    async with drive_app() as driver:
        stream = TextStream(grows=True)
        stream.get_content_height(Size(20, 0), Size(80, 24), 20)
        await driver.app.transcript.mount(stream)
        stream._size = Size(0, 0)
        stream.write("one\ntwo")
        assert stream.get_content_height(Size(20, 0), Size(80, 24), 20) == 2

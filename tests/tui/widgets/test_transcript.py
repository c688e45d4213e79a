"""A long conversation: all of it can be reached, and only what is near is there as widgets."""

import gc
import json
import weakref
from unittest.mock import AsyncMock

import pytest
from textual._styles_cache import StylesCache
from textual.geometry import Size
from textual.widget import Widget

from agent.store.records import StoredTurn
from tests.support.fake_app import (
    AppDriver,
    FakeSession,
    FakeTurn,
    drive_app,
    emit_call,
    emit_message,
    emit_reasoning,
    screen_text,
)
from tui.widgets.panes import AnswerPane, TurnPanes, share_rows
from tui.widgets.text_stream import TextStream
from tui.widgets.tool_call_card import ToolCallCard
from tui.widgets.user_message import UserMessage
from tui.widgets.virtual_scroll import visible_range

TURNS = 16
CALLS = 60


def many_turns_session() -> FakeSession:
    session, stored = FakeSession(), []
    for number in range(TURNS):
        turn = FakeTurn(f"question {number}")
        lines = "\n\n".join(f"line {line} of answer {number}" for line in range(9))
        emit_message(turn, lines).close(True)
        turn.end()
        stored.append(StoredTurn(f"question {number}", turn.log.events[-1].response, number))  # type: ignore[union-attr]
    session.storage.turns = AsyncMock(return_value=stored)  # type: ignore[method-assign]
    return session


def emit_long_call(turn: FakeTurn, number: int) -> None:
    """Reasoning, and a call with a result that is longer than what is shown of it."""
    emit_reasoning(turn, f"thought {number}").close(True)
    arguments = json.dumps({"code": f"print('code {number}')"})
    writer = emit_call(turn, "code_interpreter", "python", arguments)
    writer.arguments_done(arguments)
    writer.completed("\n".join(f"line {line} of call {number}" for line in range(14)))


def visible_rows(driver: AppDriver) -> str:
    """What is read of the conversation, without its scroll bar."""
    lines = screen_text(driver.app).splitlines()[: driver.app.transcript.size.height]
    return "".join(f"{line[:70].rstrip()}\n" for line in lines)


async def test_running_turn_panes_as_high_as_text_fold_at_end() -> None:
    async with drive_app(many_turns_session(), size=(100, 30)) as driver:
        turn = await driver.ask("and now?")
        emit_reasoning(turn, "a short thought").close(True)
        await driver.expect_text("Reasoning", "a short thought")
        panes = driver.app.query_one(TurnPanes)
        assert panes.size.height == 2 and "Arguments" not in screen_text(driver.app)
        emit_reasoning(turn, "word " * 2000).close(True)
        emit_long_call(turn, 7)
        emit_message(turn, "the newest answer").close(True)
        earlier = f"line 8 of answer {TURNS - 1}"
        await driver.expect_text(earlier, "Reasoning", "Results", "the newest answer")
        await driver.wait_for(lambda: panes.size.height < driver.app.transcript.size.height * 0.7)
        turn.end()
        await driver.expect_text("▸ Thought", "done", "the newest answer")
        assert not driver.app.query(TurnPanes)


@pytest.mark.long
async def test_folded_turn_leaves_no_widget_nor_what_it_painted() -> None:
    async with drive_app(size=(100, 30)) as driver:
        painted: list[weakref.ref[StylesCache]] = []
        for number in range(4):
            turn = await driver.ask(f"question {number}")
            emit_reasoning(turn, "a short thought").close(True)
            emit_message(turn, f"answer {number}\n\n" * 40).close(True)
            await driver.expect_text("a short thought", f"answer {number}")
            for widget in driver.app.query(TurnPanes).first().walk_children(Widget, with_self=True):
                painted.append(weakref.ref(widget._styles_cache))
            turn.end()
            await driver.wait_for(lambda: not driver.app.query(TurnPanes))
        last = len(painted) // 4  # the pruning of the latest may go on
        gc.collect()
        assert last > 8 and not [each for each in painted[:-last] if each() is not None]


@pytest.mark.long
async def test_ended_turn_keeps_its_texts_once() -> None:
    async with drive_app(size=(100, 30)) as driver:
        turn = await driver.ask("the question")
        reasoning, messages = emit_reasoning(turn, "a b c"), []
        await driver.expect_text("a b c")
        reasoning.delta("d e f")
        reasoning.close(True)
        for number in range(9):
            messages.append(emit_message(turn, f"note {number}\n\n" * 30, "commentary"))
            await driver.expect_text(f"note {number}")
            messages[-1].delta(f"end {number}")
            messages[-1].close(True)
        turn.end()
        await driver.wait_for(lambda: not driver.app.query(TurnPanes))
        exchange, view = driver.app.transcript.newest_exchange, driver.app.own_turn.view
        assert exchange is not None and view is not None
        assert not exchange.rendered and not any(len(item.text) for item in view.items)
        assert not any(view._builder[item.id].deltas for item in view.items)
        await driver.pilot.press("ctrl+o", "ctrl+home")
        await driver.expect_text("a b c d e f", "note 0")
        await driver.pilot.press("ctrl+f", *"end 3")
        await driver.expect_text("1/1")
        await driver.expect_text("end 3")


async def test_ended_turn_panes_stay_while_person_reads_in_them() -> None:
    async with drive_app(size=(100, 30)) as driver:
        turn = await driver.ask("the question")
        emit_reasoning(turn, "\n".join(f"thought {n}" for n in range(60))).close(True)
        emit_message(turn, "the answer").close(True)
        await driver.expect_text("thought 59", "the answer")
        stream = driver.app.query_one("#reasoning TextStream", TextStream)
        stream.focus()
        await driver.pilot.pause()
        await driver.pilot.press("home")
        await driver.expect_text("thought 0")
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.expect_text("thought 0", "ready")
        driver.app.prompt.focus()
        await driver.pilot.pause()
        assert driver.app.query(TurnPanes)
        stream.scroll_end(animate=False)
        await driver.wait_for(lambda: not driver.app.query(TurnPanes))


async def test_folding_keeps_scrolled_transcript_in_place() -> None:
    async with drive_app(many_turns_session(), size=(80, 24)) as driver:
        turn = await driver.ask("and now?")
        emit_message(turn, "A long answer.\n\n" * 40).close(True)
        await driver.expect_text("A long answer.")
        await driver.pilot.press("pageup", "pageup", "pageup")
        await driver.wait_for(lambda: not driver.app.transcript.mount_lock.locked())
        read = visible_rows(driver)
        assert "of answer" in read
        turn.end()
        await driver.wait_for(lambda: not driver.app.query(TurnPanes))
        assert visible_rows(driver) == read


def test_share_rows_small_needs_are_met_first() -> None:
    assert share_rows(20, [3, 0, 5]) == [3, 0, 5]
    assert share_rows(20, [3, 40, 30]) == [3, 9, 8]
    assert share_rows(2, [4]) == [2]


def single_turn_session() -> FakeSession:
    """A conversation of a single turn that called many times."""
    session, turn = FakeSession(), FakeTurn("the question")
    for number in range(CALLS):
        emit_long_call(turn, number)
    emit_message(turn, "the answer").close(True)
    turn.end()
    stored = StoredTurn("the question", turn.log.events[-1].response, 0)  # type: ignore[union-attr]
    session.storage.turns = AsyncMock(return_value=[stored])  # type: ignore[method-assign]
    return session


@pytest.mark.parametrize(
    ("mounted", "top", "expected"),
    [
        (range(0), 500, range(50, 51)),  # from nothing: what is at the top
        (range(50, 51), 500, range(50, 52)),  # then what is below it
        (range(50, 54), 500, range(49, 54)),  # and above it
        (range(48, 54), 500, range(48, 54)),  # a screen each way is enough
        (range(48, 54), 540, range(48, 55)),
        (range(40, 58), 560, range(48, 59)),  # what is far goes
        (range(48, 54), 20, range(2, 3)),  # as does all after a leap
        (range(98, 100), 990, range(97, 100)),
    ],
)
def test_visible_range_grows_towards_viewport(mounted: range, top: int, expected: range) -> None:
    assert visible_range([10] * 100, mounted, top, 20) == expected


@pytest.mark.long
async def test_transcript_long_conversation_mounts_little() -> None:
    async with drive_app(many_turns_session(), size=(80, 24)) as driver:
        await driver.expect_text(f"line 8 of answer {TURNS - 1}")
        assert len(driver.app.query(UserMessage)) < 9
        seen, before = "", ""
        while "question 0" not in (now := screen_text(driver.app)):
            if now != before:
                await driver.pilot.press("pageup")
            before, seen = now, seen + now
            await driver.pilot.pause()
        missing = [n for n in range(TURNS) if f"line 6 of answer {n}" not in seen + now]
        assert not missing and len(driver.app.query(UserMessage)) < 9
        await driver.pilot.press("ctrl+end")
        await driver.expect_text(f"line 8 of answer {TURNS - 1}")
        await driver.pilot.press("ctrl+home")
        await driver.expect_text("question 0")


async def test_transcript_scrolled_away_stays_while_streaming() -> None:
    async with drive_app(many_turns_session(), size=(80, 24)) as driver:
        turn = await driver.ask("and now?")
        await driver.wait_for(lambda: driver.app.transcript.newest_exchange)
        for _ in range(8):
            await driver.pilot.press("pageup")
        await driver.wait_for(lambda: "of answer" in screen_text(driver.app))
        await driver.wait_for(lambda: not driver.app.transcript.mount_lock.locked())
        read = visible_rows(driver)
        writer = emit_message(turn, "A long answer.\n\n" * 40)
        await driver.wait_for(lambda: driver.app.own_turn.view and driver.app.own_turn.view.answer)
        assert "of answer" in read and visible_rows(driver) == read
        writer.close(True)
        turn.end()


async def test_transcript_new_prompt_scrolls_to_end() -> None:
    async with drive_app(many_turns_session(), size=(80, 24)) as driver:
        await driver.pilot.press("ctrl+home")
        await driver.expect_text("question 0")
        turn = await driver.ask("and now?")
        emit_message(turn, "the newest answer").close(True)
        await driver.expect_text("the newest answer", f"line 8 of answer {TURNS - 1}")
        turn.end()
        await driver.expect_text("the newest answer", gone="─Answer")


async def test_transcript_queued_turn_keeps_scrolled_transcript_in_place() -> None:
    async with drive_app(many_turns_session(), size=(80, 24)) as driver:
        app = driver.app
        turn = await driver.ask("and now?")
        writer = emit_message(turn, "A long answer.\n\n" * 40)
        await driver.expect_text("A long answer.")
        await driver.type_text("the queued question", "enter")
        await driver.pilot.press("pageup", "pageup")
        await driver.wait_for(lambda: not app.transcript.mount_lock.locked())
        read = visible_rows(driver)
        assert "of answer" in read
        writer.close(True)
        turn.end()
        await driver.wait_for(lambda: len(app.transcript.own_turns) == TURNS + 2)
        queued = driver.session.turns[-1]
        emit_message(queued, "the newest answer").close(True)
        queued.end()
        await driver.wait_for(lambda: app.chat.idle and not app.query(TurnPanes))
        assert visible_rows(driver).startswith(read)  # a row more: the queue is empty
        await driver.ask("sent now")
        await driver.expect_text("the queued question", "❯ sent now")


async def test_transcript_without_turns_follows_notices() -> None:
    async with drive_app(size=(80, 24)) as driver:
        for number in range(8):
            text = f"notice {number}\n" + "more\n" * 5 + f"end {number}"
            driver.app.transcript.add_notice(text)
            await driver.expect_text(f"end {number}")


@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_transcript_key_without_effect_leaves_end_followed(key: str) -> None:
    async with drive_app(size=(80, 24)) as driver:
        driver.app.transcript.add_notice("the first")
        await driver.expect_text("the first")
        await driver.pilot.press(key)
        for number in range(30):
            driver.app.transcript.add_notice(f"notice {number}")
        await driver.expect_text("notice 29")
        await driver.pilot.press("pagedown")
        driver.app.transcript.add_notice("the last")
        await driver.expect_text("the last")


async def test_new_conversation_follows_notices_after_scrolling() -> None:
    async with drive_app(many_turns_session(), size=(80, 24)) as driver:
        await driver.pilot.press("ctrl+home")
        await driver.expect_text("question 0")
        await driver.app.transcript.clear()
        for number in range(30):
            driver.app.transcript.add_notice(f"notice {number}")
        await driver.expect_text("notice 29")


# --- the focus ---


async def test_tab_focuses_live_panes_before_older_items() -> None:
    session = single_turn_session()
    async with drive_app(session, size=(80, 24)) as driver:
        await driver.expect_text("the answer")
        turn = await driver.ask("and now?")
        emit_reasoning(turn, "a short thought")
        emit_message(turn, "the newest answer")
        await driver.expect_text("a short thought", "the newest answer")
        focused = []
        for keys in (["tab"], ["tab"], ["tab"], ["tab", "shift+tab", "shift+tab"]):
            await driver.pilot.press(*keys)
            assert driver.app.focused is not None
            focused.append(driver.app.focused)
        reasoning, answer, prompt, older = focused
        assert reasoning is driver.app.query_one("#reasoning TextStream")
        assert answer is driver.app.query_one(AnswerPane)
        assert prompt is driver.app.prompt
        card = next(node for node in older.ancestors if isinstance(node, ToolCallCard))
        assert (
            card.styles.border_left[1]
            != driver.app.query(ToolCallCard).first().styles.border_left[1]
        )
        turn.end()


async def test_ctrl_end_returns_focused_pane_to_live_end() -> None:
    async with drive_app(many_turns_session(), size=(80, 24)) as driver:
        turn = await driver.ask("and now?")
        writer = emit_message(turn, "".join(f"line {n}\n\n" for n in range(40)))
        await driver.expect_text("line 39")
        await driver.pilot.press("tab", *["up"] * 6)
        await driver.wait_for(lambda: "line 39" not in screen_text(driver.app))
        driver.app.transcript.scroll_home(animate=False)
        await driver.expect_text("question 0")
        await driver.pilot.press("ctrl+end")
        await driver.expect_text("line 39")
        writer.delta("".join(f"\n\nline {n}" for n in range(40, 60)))
        await driver.expect_text("line 59")
        turn.end()


async def test_ctrl_end_leads_to_end_from_focused_item() -> None:
    async with drive_app(single_turn_session(), size=(80, 24)) as driver:
        last = f"print('code {CALLS - 1}')"
        await driver.expect_text(last)
        await driver.pilot.press("ctrl+home", "tab")
        await driver.expect_text("❯ the question", gone=last)
        assert not driver.app.prompt.has_focus
        await driver.pilot.press("ctrl+end")
        await driver.expect_text(last)


# --- one turn of many calls ---


@pytest.mark.long
async def test_transcript_turn_of_many_calls_mounts_few() -> None:
    async with drive_app(single_turn_session(), size=(80, 24)) as driver:
        await driver.expect_text("the answer")
        seen, before = "", ""
        while "❯ the question" not in (now := visible_rows(driver)):
            if now != before:
                await driver.pilot.press("pageup")
            before, seen = now, seen + now
            assert len(driver.app.query(ToolCallCard)) < CALLS / 2
            await driver.pilot.pause()
        assert not [n for n in range(CALLS) if f"line 3 of call {n}\n" not in seen + now]
        await driver.pilot.press("ctrl+end")
        await driver.expect_text("the answer")


async def test_transcript_running_turn_is_followed_then_read() -> None:
    async with drive_app(size=(80, 24)) as driver:
        await driver.pilot.press("f2")
        turn = await driver.ask("the question")
        for number in range(CALLS):
            emit_long_call(turn, number)
            await driver.expect_text(f"line 11 of call {number}")
        assert len(driver.app.query(ToolCallCard)) < CALLS / 2
        for _ in range(9):
            await driver.pilot.press("pageup")
        await driver.wait_for(lambda: not driver.app.transcript.mount_lock.locked())
        read = visible_rows(driver)
        assert "of call" in read
        for number in range(CALLS, CALLS + 20):
            emit_long_call(turn, number)
        await driver.wait_for(lambda: len(driver.app.own_turn.view.items) == 2 * (CALLS + 20))  # type: ignore[union-attr]
        assert visible_rows(driver) == read
        await driver.pilot.press("ctrl+end")
        await driver.expect_text(f"line 11 of call {CALLS + 19}")
        turn.end()


async def test_transcript_search_reaches_and_expands_far_item() -> None:
    async with drive_app(single_turn_session(), size=(80, 24)) as driver:
        await driver.expect_text("the answer")
        await driver.pilot.press("ctrl+f", *"13 of call 7")
        await driver.expect_text("1/1")
        await driver.expect_text("line 13 of call 7")
        await driver.pilot.press("escape", "ctrl+home")
        await driver.expect_text("❯ the question")
        assert "line 13 of call 0" not in screen_text(driver.app)
        await driver.pilot.press("ctrl+o")
        await driver.expect_text("thought 0")
        await driver.pilot.press("pagedown")
        await driver.expect_text("line 13 of call 0")
        await driver.pilot.press("ctrl+end")
        await driver.expect_text(f"line 13 of call {CALLS - 1}")


@pytest.mark.long
async def test_transcript_expanded_item_stays_expanded() -> None:
    async with drive_app(single_turn_session(), size=(80, 40)) as driver:
        await driver.expect_text("the answer")
        await driver.pilot.press("ctrl+f", *"13 of call 7")
        await driver.expect_text("line 13 of call 7")
        await driver.pilot.press("escape", "ctrl+end")
        await driver.expect_text("the answer")
        far = [card.item for card in driver.app.query(ToolCallCard)]
        assert "of call 7" not in "".join(part.result or "" for part in far)
        await driver.pilot.press("ctrl+f", *"code 7")
        await driver.expect_text("1/1")
        await driver.expect_text("line 13 of call 7")


async def test_transcript_many_calls_switch_panes_and_back() -> None:
    async with drive_app(size=(80, 24)) as driver:
        turn = await driver.ask("the question")
        for number in range(CALLS):
            emit_long_call(turn, number)
        await driver.expect_text(f"line 13 of call {CALLS - 1}")
        await driver.pilot.press("f2")
        await driver.expect_text(f"line 11 of call {CALLS - 1}")
        assert 0 < len(driver.app.query(ToolCallCard)) < CALLS / 2
        await driver.pilot.press("f2")
        await driver.wait_for(lambda: not driver.app.query(ToolCallCard))
        await driver.expect_text(f"line 13 of call {CALLS - 1}")
        emit_message(turn, "the answer").close(True)
        turn.end()
        await driver.ask("and now?")
        await driver.pilot.press("ctrl+home")
        await driver.expect_text("❯ the question")


async def test_turn_panes_leave_room_for_notices() -> None:
    async with drive_app(size=(80, 24)) as driver:
        turn = await driver.ask("the question")
        emit_message(turn, "the answer").close(True)
        turn.end()
        await driver.expect_text("the answer")
        for number in range(3):
            driver.app.transcript.add_notice(f"line {number} of the app")
            await driver.expect_text(f"line {number} of the app")
            await driver.expect_text("❯ the question")


async def test_fill_that_comes_after_the_end_does_nothing() -> None:
    """It was scheduled before the app ended, by a turn that ended just then."""
    async with drive_app(many_turns_session(), size=(100, 30)) as driver:
        transcript = driver.app.transcript
    for entry in transcript.virtual_entries[0]:
        entry.widget = None
    await transcript._run_scheduled_fill()
    await transcript._mount_entries(transcript.virtual_entries[0], None)
    assert all(entry.widget is None for entry in transcript.virtual_entries[0])


async def test_transcript_page_up_is_not_the_end_of_the_layout_before() -> None:
    """Forced: the height is still that of the layout before, in which the page up was the end."""
    async with drive_app() as driver:
        first = await driver.ask("first question")
        emit_message(first, "\n\n".join(f"row {n}" for n in range(40))).close(True)
        first.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        turn = await driver.ask("second question")
        emit_message(turn, "\n\n".join(f"line {n}" for n in range(40)))
        await driver.expect_text("line 39")
        transcript = driver.app.transcript
        up = transcript.scroll_y - transcript.size.height
        height = Size(transcript.virtual_size.width, int(up) + transcript.size.height)
        transcript.set_reactive(Widget.virtual_size, height)
        transcript.scroll_to(y=up, animate=False, immediate=True)
        assert transcript.is_scrolled_away
        turn.end()

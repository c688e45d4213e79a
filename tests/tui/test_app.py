"""The app with a fake session: keys in, the screen's text out."""

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from textual._compositor import LayoutUpdate
from textual.events import Key, Paste
from textual.widgets import Input

from agent import events as ev
from agent.store.records import StoredTurn
from tests.support.fake_app import (
    FakeSession,
    FakeTurn,
    drive_app,
    emit_call,
    emit_message,
    emit_reasoning,
    screen_text,
)
from tools.types import ServerState
from tui.widgets.approval_card import ApprovalCard
from tui.widgets.panes import AnswerPane, Pane
from tui.widgets.reasoning_block import FoldToggle
from tui.widgets.search import SearchBar
from tui.widgets.tabs import TabBar
from tui.widgets.text_stream import TextStream
from tui.widgets.user_message import UserMessage


def pane(app: Any, name: str) -> str:
    """The text of a pane of the newest exchange."""
    return str(app.query(f"#{name}").last(Pane).query_one(TextStream).text)


async def test_prompt_accepts_text_before_model_is_loaded() -> None:
    async with drive_app(FakeSession(model_loaded=False)) as driver:
        driver.session.progress(0.45)
        await driver.expect_text("loading the model 45%")
        await driver.pilot.press(*"hello")
        assert driver.app.prompt.text == "hello"
        driver.session.loaded.set()
        await driver.expect_text("ready")


async def test_panes_stream_reasoning_call_result_and_answer() -> None:
    async with drive_app() as driver:
        app = driver.app
        turn = await driver.ask("What is 123*456?")
        reasoning = emit_reasoning(turn, "I should compute this.")
        await driver.wait_for(lambda: "compute this" in pane(app, "reasoning"))
        reasoning.close(True)
        call = emit_call(turn, "code_interpreter", "python", '{"code":"print(123')
        await driver.wait_for(lambda: pane(app, "arguments").endswith("\nprint(123"))
        call.delta('*456)"}')
        call.arguments_done('{"code":"print(123*456)"}')
        await driver.expect_text("running python")
        turn.emit(ev.AgentToolOutputDelta(item_id=call.id, stream="stdout", delta="half"))
        await driver.wait_for(lambda: "half" in pane(app, "results"))
        call.completed("56088")
        await driver.wait_for(lambda: "56088" in pane(app, "results"))
        await driver.wait_for(lambda: "half" not in pane(app, "results"))
        answer = emit_message(turn, "It is **56088**.")
        await driver.expect_text("It is")
        answer.close(True)
        turn.end()
        await driver.wait_for(lambda: app.turn is None)
        await driver.expect_text("It is 56088.")
        await driver.expect_text("608/33k")


async def test_answer_stays_painted_at_the_end_of_its_turn() -> None:
    """The panes leave, and a message takes their place."""
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        emit_message(turn, "Hello there.").close(True)
        await driver.expect_text("Hello there.")
        turn.end()
        while driver.app.turn is not None or driver.app.query(AnswerPane):
            assert "Hello there." in screen_text(driver.app)
            await asyncio.sleep(0)
        await driver.expect_text("Hello there.")


@pytest.mark.long
@pytest.mark.parametrize(("size", "rows_left"), [((60, 15), 2), ((80, 24), 4), ((200, 50), 15)])
async def test_panes_reasoning_gives_room_to_answer(size: tuple[int, int], rows_left: int) -> None:
    async with drive_app(size=size) as driver:
        turn = await driver.ask("Why?")
        reasoning = emit_reasoning(turn, "\n".join(f"thought {n}" for n in range(60)))
        await driver.expect_text("thought 59")
        panes = {name: driver.app.query_one(f"#{name}", Pane) for name in ("reasoning", "answer")}
        before = panes["reasoning"].size.height
        assert before > 3
        reasoning.close(True)
        answer = emit_message(turn, "Because")
        await driver.expect_text("Because")
        assert panes["reasoning"].size.height == before
        for n in range(20):
            answer.delta(f"\n\nof {n}")
        await driver.expect_text("of 19")
        await driver.wait_for(lambda: panes["reasoning"].size.height <= rows_left)
        assert panes["answer"].size.height > before
        panes["reasoning"].query_one(TextStream).focus()
        answer.delta("\n\nof 20")
        await driver.wait_for(lambda: panes["reasoning"].size.height == before)
        turn.end()


@pytest.mark.long
async def test_scrolled_away_hint_names_key_back_to_end() -> None:
    hint = "scrolled up · Ctrl-End returns to the end"
    async with drive_app() as driver:
        first = await driver.ask("first question")
        emit_message(first, "\n\n".join(f"row {n}" for n in range(40))).close(True)
        first.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        turn = await driver.ask("second question")
        answer = emit_message(turn, "\n\n".join(f"line {n}" for n in range(40)))
        await driver.expect_text("line 39", "Enter queues")
        await driver.pilot.press("pageup")
        await driver.expect_text(hint, gone="line 39")
        await driver.pilot.press("ctrl+end")
        await driver.expect_text("line 39", "Enter queues")
        driver.app.query_one(AnswerPane).focus()
        await driver.pilot.pause()
        await driver.pilot.press("pageup")
        await driver.expect_text(hint, gone="line 39")
        answer.delta("\n\nline 40")
        await driver.pilot.press("end")
        await driver.expect_text("line 40", "Enter queues")
        await driver.pilot.press("pageup")
        await driver.expect_text(hint)
        await driver.pilot.press("ctrl+end")
        await driver.expect_text("line 40", "Enter queues")
        turn.end()


async def test_earlier_turn_folds_to_prompt_and_answer() -> None:
    async with drive_app(size=(100, 40)) as driver:
        first = await driver.ask("first question")
        emit_reasoning(first, "a secret thought").close(True)
        emit_message(first, "first answer").close(True)
        first.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        second = await driver.ask("second question")
        await driver.pilot.press("pageup")
        await driver.expect_text(
            "first question", "▸ Thought", "first answer", gone="a secret thought"
        )
        second.end()


async def test_f2_switches_running_turn_to_conversation_view() -> None:
    async with drive_app(size=(100, 40)) as driver:
        turn = await driver.ask("question")
        reasoning = emit_reasoning(turn, "thinking aloud")
        await driver.pilot.press("f2")
        await driver.expect_text("▾ Thinking")
        await driver.expect_text("thinking aloud")
        reasoning.delta("and on")
        await driver.expect_text("and on")
        reasoning.close(True)
        await driver.wait_for(lambda: "thinking aloud" not in screen_text(driver.app))
        await driver.pilot.press("ctrl+o")
        await driver.expect_text("thinking aloud and on")
        await driver.pilot.press("f2")
        await driver.wait_for(lambda: driver.app.query(Pane))
        turn.end()


async def test_escape_stops_turn_and_keeps_its_text() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("a long story")
        emit_message(turn, "Once upon a time").close(False)
        await driver.expect_text("Once upon")
        await driver.pilot.press("escape")
        await driver.expect_text("Interrupted; the partial answer is kept.")
        assert turn.stopped and "Once upon a time" in screen_text(driver.app)


async def test_prompt_sent_during_turn_is_queued() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("first")
        await driver.pilot.press(*"second", "enter", *"third", "enter")
        await driver.expect_text("queued: second")
        assert len(driver.session.turns) == 1
        turn.end()
        await driver.wait_for(lambda: len(driver.session.turns) == 2)
        assert driver.session.turns[1].prompt_text == "second"
        await driver.expect_text("queued: third")


async def test_up_recalls_queued_prompt_then_history() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("first")
        await driver.pilot.press(*"second", "enter")
        await driver.expect_text("queued: second")
        await driver.pilot.press("up")
        await driver.wait_for(lambda: driver.app.prompt.text == "second")
        assert not driver.app.queue.prompts
        await driver.pilot.press("up", "up")
        await driver.wait_for(lambda: driver.app.prompt.text == "first")
        turn.end()


async def test_steering_message_is_read_by_running_turn() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("first")
        await driver.pilot.press(*"later", "enter", *"to the left", "ctrl+s")
        await driver.expect_text("to this turn: to the left")
        assert turn.steering == ["to the left"]
        turn.emit(ev.AgentSteered(text=turn.steering.pop()))
        await driver.expect_text("❯ to the left")
        await driver.wait_for(lambda: "now:" not in screen_text(driver.app))
        await driver.pilot.press(*"too late", "ctrl+s")
        turn.end()
        await driver.wait_for(lambda: len(driver.session.turns) == 2)
        assert driver.session.turns[1].prompt_text == "too late"
        await driver.expect_text("queued: later")


async def test_key_ends_the_reasoning_of_the_running_turn() -> None:
    async with drive_app() as driver:
        await driver.pilot.press("ctrl+n")
        await driver.expect_text("No turn is reasoning here.")
        turn = await driver.ask("first")
        await driver.expect_text("Ctrl-N answers now")
        await driver.pilot.press(*"draft", "ctrl+n")
        await driver.expect_text("Answering without further reasoning.")
        assert turn.answered_now == 1 and driver.app.prompt.text == "draft"
        turn.reasons = False
        await driver.pilot.press("ctrl+u", *"/answer", "enter")
        await driver.expect_text("No turn is reasoning here.")
        turn.end()


async def test_stop_returns_queued_prompts_to_prompt() -> None:
    async with drive_app() as driver:
        await driver.ask("first")
        await driver.pilot.press(*"second", "enter", *"draft", "escape")
        await driver.wait_for(lambda: driver.app.prompt.text == "second\n\ndraft")
        assert len(driver.session.turns) == 1


async def test_fast_keys_stay_in_order() -> None:
    async with drive_app() as driver:
        await driver.pilot.press(*"ac", "left", "b", "end", "d", "backspace", "ctrl+j", "e")
        await driver.wait_for(lambda: driver.app.prompt.text == "abc\ne")
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.session.turns)
        assert driver.session.turns[0].prompt_text == "abc\ne"


async def test_failed_turn_ends_with_its_error() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        turn.end("failed", "The engine ran out of memory: ask for a shorter context.")
        await driver.expect_text("The engine ran out of memory")
        await driver.expect_text("ready")


async def test_approval_card_waits_while_prompt_is_unsent() -> None:
    async with drive_app() as driver:
        driver.app.chat.cards.focus_delay = 0.0
        turn = await driver.ask("hello")
        tool = SimpleNamespace(server="files", name="write")
        call = emit_call(turn, "files", "write", '{"path":"a"}')
        call.arguments_done('{"path":"a"}')
        turn.emit(
            ev.AgentApprovalRequested(
                item_id=call.id, server="files", tool="write", arguments='{"path":"a"}', reason="",
                preview="--- a/x\n+++ b/x\n-old\n+new",
            )
        )  # fmt: skip
        answer = asyncio.ensure_future(driver.session.approver(tool, '{"path":"a"}'))
        await driver.expect_text("Allow files.write?")
        await driver.expect_text("+new")
        card = driver.app.query_one(ApprovalCard)
        await driver.wait_for(lambda: card.has_focus_within)
        await driver.pilot.press(*"a new")  # text: no shortcut is followed by a key at once
        await driver.wait_for(lambda: driver.app.prompt.text == "a new")
        driver.app.chat.cards.enter_when_idle()
        assert driver.app.prompt.has_focus
        await driver.expect_text("Tab to answer")
        await driver.pilot.press("tab", "a")
        await driver.wait_for(answer.done)
        assert answer.result().choice == "session"
        assert driver.app.prompt.text == "a new"


async def test_paste_beside_the_prompt_goes_into_it() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        tool = SimpleNamespace(server="files", name="write")
        answer = asyncio.ensure_future(driver.session.approver(tool, "{}"))
        await driver.wait_for(lambda: driver.app.query(ApprovalCard))
        await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)
        driver.app.post_message(Paste("the next prompt"))
        await driver.wait_for(lambda: driver.app.prompt.text == "the next prompt")
        driver.app.prompt.focus()
        driver.app.post_message(Paste(", once"))
        await driver.wait_for(lambda: driver.app.prompt.text.endswith("once"))
        assert driver.app.prompt.text == "the next prompt, once" and not answer.done()
        turn.end()
        answer.cancel()


async def test_approval_card_takes_highlighted_answer() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        tool = SimpleNamespace(server="files", name="write")
        answer = asyncio.ensure_future(driver.session.approver(tool, "{}"))
        await driver.wait_for(lambda: driver.app.query(ApprovalCard))
        await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)
        await driver.wait_for(lambda: not driver.app.chat.cards.is_settling)
        await driver.pilot.press("down", "down", "down", "enter")
        await driver.wait_for(answer.done)
        assert answer.result().choice == "no"
        turn.end()


async def test_approval_card_closes_on_refusal_and_on_cancel() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        tool = SimpleNamespace(server="files", name="write")
        answer = asyncio.ensure_future(driver.session.approver(tool, "{}"))
        await driver.wait_for(lambda: driver.app.query(ApprovalCard))
        await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)
        await driver.pilot.press("n")
        await driver.wait_for(answer.done)
        assert answer.result().choice == "no"
        again = asyncio.ensure_future(driver.session.approver(tool, "{}"))
        await driver.wait_for(lambda: driver.app.query(ApprovalCard))
        again.cancel()
        await driver.wait_for(lambda: not driver.app.query(ApprovalCard))
        await driver.wait_for(lambda: driver.app.prompt.has_focus)
        turn.end()


@pytest.mark.long
@pytest.mark.parametrize("key", ["A", "r"])
async def test_approval_card_answers_always_and_no_with_reason(key: str) -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        call = emit_call(turn, "git", "push", "{}")
        call.arguments_done("{}")
        change = ev.AgentApprovalRequested(
            item_id=call.id, server="git", tool="push", arguments="{}", reason="it has changed",
            diff="-description: First.",
        )  # fmt: skip
        turn.emit(change)
        tool = SimpleNamespace(server="git", name="push")
        answer = asyncio.ensure_future(driver.session.approver(tool, "{}"))
        await driver.expect_text("-description: First.")
        await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)
        await driver.pilot.press(key)
        if key == "r":
            await driver.expect_text("Why not?")
            await driver.pilot.press("escape")
            await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)
            assert not turn.stopped
            await driver.pilot.press("r")
            await driver.expect_text("Why not?")
            await driver.wait_for(lambda: not driver.app.chat.cards.is_settling)
            await driver.pilot.press(*"not y", "enter")
        await driver.wait_for(answer.done)
        expected = ("always", "") if key == "A" else ("no", "not y")
        assert (answer.result().choice, answer.result().reason) == expected
        assert driver.app.prompt.text == ""
        turn.end()


async def test_approval_card_once_only_ignores_longer_answers() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        call = emit_call(turn, "shell", "exec", "{}")
        call.arguments_done("{}")
        turn.emit(
            ev.AgentApprovalRequested(
                item_id=call.id, server="shell", tool="exec", arguments="{}", rules=[],
                reason="it can only be allowed once: it uses eval",
            )
        )  # fmt: skip
        tool = SimpleNamespace(server="shell", name="exec")
        answer = asyncio.ensure_future(driver.session.approver(tool, "{}"))
        await driver.expect_text("it uses eval", "Allow once", gone="this session")
        await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)
        await driver.pilot.press("A")
        await driver.wait_for(lambda: driver.app.prompt.text == "A")
        assert not answer.done()
        await driver.pilot.press("tab", "y")
        await driver.wait_for(answer.done)
        assert answer.result().choice == "once"
        turn.end()


async def test_unknown_theme_is_a_notice() -> None:
    async with drive_app(theme="nosuch") as driver:
        await driver.expect_text("There is no theme 'nosuch'.")
        assert driver.app.theme == "dark"


async def test_failed_mcp_server_adds_notice() -> None:
    broken = ServerState("search", "failed", [], error="no such command: serch")
    builtin = ServerState("files", "ready", ["read"], transport="built in")
    async with drive_app(FakeSession(servers=[broken, builtin])) as driver:
        await driver.expect_text("The MCP server search is not available: no such command: serch")
        await driver.expect_text("MCP 0/1")


async def test_http_turn_streams_on_its_tab() -> None:
    async with drive_app() as driver:
        turn = FakeTurn("What is the capital of France?", "http").start()
        driver.session.runtime.hub.publish(turn)
        await driver.expect_text("1 ● What is the capital of France?")
        await driver.pilot.press("f3")
        emit_reasoning(turn, "Paris, of course.")
        await driver.expect_text("http ❯ What is the capital of France?")
        await driver.expect_text("Paris, of course.")
        await driver.pilot.press("escape")
        assert turn.stopped is None, "another program's turn is not ours to stop"
        emit_message(turn, "Paris.").close(True)
        turn.end()
        await driver.expect_text("1 ✓ What is the capital of France?")
        await driver.pilot.press("f3")
        await driver.wait_for(lambda: "http ❯" not in screen_text(driver.app))


async def test_markup_and_escapes_of_model_and_tools_are_inert() -> None:
    hostile = "[red]x[/red] [/nope] [@click=app.bell]y[/] \x1b[31mz\x1b]0;t\x07 \x9b2J"
    async with drive_app(size=(120, 40)) as driver:
        turn = await driver.ask("[bold]me[/bold] [/]")
        emit_reasoning(turn, hostile).close(True)
        call = emit_call(turn, "[u]s[/u]", "[/t]", "{}")
        call.arguments_done("{}")
        call.completed(hostile)
        emit_message(turn, hostile + "\n\n| [/a] | b |\n|---|---|\n| [/c] | [red] |\n").close(True)
        turn.emit(ev.AgentNotice(level="info", message=hostile))
        turn.end("failed", hostile)
        await driver.wait_for(lambda: driver.app.turn is None)
        for _ in range(2):
            await driver.expect_text("[red]x[/red] [/nope]")
            await driver.expect_text("[bold]me[/bold] [/]")
            text = screen_text(driver.app)
            assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)
            await driver.pilot.press("f2")


async def test_ctrl_c_stops_then_clears_then_leaves() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        await driver.pilot.press(*"draft", "ctrl+c")
        await driver.wait_for(lambda: turn.stopped)
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("ctrl+c")
        await driver.wait_for(lambda: driver.app.prompt.text == "")
        await driver.pilot.press("ctrl+c")
        await driver.expect_text("Press Ctrl-C again to quit.")
        await driver.pilot.press("ctrl+c")
        await driver.wait_for(lambda: not driver.app.is_running)
        assert driver.app.return_code == 0


async def test_ctrl_d_twice_in_an_empty_prompt_leaves() -> None:
    async with drive_app() as driver:
        app = driver.app
        await driver.pilot.press(*"ab", "home", "ctrl+d", "ctrl+d")
        assert app.prompt.text == "", "it deletes the character behind the cursor"
        await driver.pilot.press("ctrl+c", "ctrl+d")
        await driver.expect_text("Press Ctrl-D again to quit.")
        assert app.is_running, "another key does not count"
        await driver.pilot.press("ctrl+d")
        await driver.wait_for(lambda: not app.is_running)
        assert app.return_code == 0


async def test_ctrl_r_searches_the_earlier_prompts() -> None:
    async with drive_app() as driver:
        prompt = driver.app.prompt
        for text in ("count the lines\nof a.txt", "hello", "count to ten", "hello"):
            prompt.prompt_history.add(text)
        await driver.pilot.press(*"draft", "ctrl+r")
        await driver.expect_text("Earlier prompts")
        ids = [row.id for row in driver.app.screen.option_list.options]
        assert len(ids) == 3, "the latest first, each once"
        await driver.pilot.press(*"COUNT of", "enter")
        await driver.wait_for(lambda: prompt.text == "count the lines\nof a.txt")
        await driver.pilot.press("ctrl+underscore")
        assert prompt.text == "draft"
        await driver.pilot.press("ctrl+r", "escape")
        assert prompt.text == "draft" and prompt.has_focus


async def test_ctrl_y_copies_answer_as_markdown() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        emit_message(turn, "The **answer**.").close(True)
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("ctrl+y")
        await driver.wait_for(lambda: driver.app.clipboard.strip() == "The **answer**.")


@pytest.mark.parametrize("indent", ["", "   "])
async def test_copied_answer_and_code_keep_their_tabs(indent: str) -> None:
    code = "all:\n\techo hi\n"
    fence = "".join(f"{indent}{line}\n" for line in ["```make", *code.splitlines(), "```"])
    answer = f"1. So:\n\n{fence}"
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        writer = emit_message(turn, answer)
        await driver.expect_text("echo hi")
        await driver.pilot.press("ctrl+y")
        await driver.wait_for(lambda: driver.app.clipboard.rstrip(" ") == answer)
        writer.close(True)
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("alt+y")
        await driver.wait_for(lambda: driver.app.clipboard == code)
        await driver.pilot.press("ctrl+y")
        await driver.wait_for(lambda: driver.app.clipboard.rstrip(" ") == answer)


async def test_copied_answer_holds_nothing_that_steers_a_terminal() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        emit_message(turn, "a\x1b[201~b\u202e\tc\r\n").close(True)
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("ctrl+y")
        await driver.wait_for(lambda: driver.app.clipboard.rstrip(" ") == "ab\ufffd\tc\n")


async def test_printable_key_goes_to_prompt_from_any_focus() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        emit_reasoning(turn, "so")
        await driver.wait_for(lambda: "so" in pane(driver.app, "reasoning"))
        driver.app.screen.focus_previous()
        await driver.wait_for(lambda: not driver.app.prompt.has_focus)
        await driver.pilot.press("x")
        await driver.wait_for(lambda: driver.app.prompt.text == "x")
        turn.end()


async def test_long_paste_is_sent_complete_and_displayed_short() -> None:
    async with drive_app() as driver:
        page = "\n".join(f"line {n}" for n in range(10_000))
        driver.app.prompt.insert(page)
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.session.turns)
        assert driver.session.turns[0].prompt_text == page
        await driver.expect_text("… 9995 more lines")
        driver.session.turns[0].end()


async def test_f1_and_question_mark_open_help() -> None:
    async with drive_app() as driver:
        for key in ("f1", "?"):
            await driver.pilot.press(key)
            await driver.expect_text("Ctrl-J           new line")
            await driver.pilot.press("escape")
            await driver.wait_for(lambda: not driver.app.screen_stack[1:])
        await driver.pilot.press(*"why?")
        assert driver.app.prompt.text == "why?"


async def test_chosen_theme_is_saved() -> None:
    saved: list[str] = []
    async with drive_app(save_setting=lambda key, value: saved.append(value)) as driver:
        await driver.pilot.press("f4", "f4", "f4", "f4", *"/theme nord ", "enter")
        await driver.wait_for(lambda: driver.app.theme == "nord")
        assert saved == ["light", "high-contrast", "ansi", "dark", "nord"]
        await driver.pilot.press(*"/theme no", "escape", "enter")
        await driver.expect_text("There is no theme no")


async def test_palette_entry_runs_command() -> None:
    async with drive_app(size=(100, 30)) as driver:
        await driver.pilot.press("ctrl+p")
        await driver.wait_for(lambda: len(driver.app.screen_stack) == 2)
        await driver.pilot.press(*"how long the model")
        await driver.expect_text("/effort")
        await driver.pilot.press("enter")
        await driver.expect_text("answers sooner")


async def test_chosen_view_is_saved_and_taken() -> None:
    saved: list[tuple[str, str]] = []
    async with drive_app(save_setting=lambda key, value: saved.append((key, value))) as driver:
        await driver.pilot.press("f2")
        await driver.wait_for(lambda: saved == [("view", "conversation")])
        turn = await driver.ask("hello")
        emit_message(turn, "Hello there.").close(True)
        await driver.expect_text("Hello there.", gone="Answer")
        await driver.pilot.press("f2")
        await driver.expect_text("Answer")
        assert saved[1:] == [("view", "panes")]
        turn.end()


async def test_questions_that_come_together_are_entered_one_by_one() -> None:
    async with drive_app() as driver:
        driver.app.chat.cards.focus_delay = math.inf
        turn = await driver.ask("hello")
        tools = [SimpleNamespace(server="files", name=name) for name in ("write", "move")]
        answers = [asyncio.ensure_future(driver.session.approver(tool, "{}")) for tool in tools]
        await driver.wait_for(lambda: len(driver.app.query(ApprovalCard)) == 2)
        for answer in answers:
            await driver.pilot.press("tab", "n")
            await driver.wait_for(answer.done)
            assert answer.result().choice == "no"
            await driver.wait_for(lambda: driver.app.prompt.has_focus)
        turn.end()


async def test_resumed_conversation_shows_stored_turns(tmp_path: Path) -> None:
    turn = FakeTurn("earlier question")
    emit_reasoning(turn, "hm").close(True)
    call = emit_call(turn, "files", "read", '{"path":"a"}')
    call.arguments_done('{"path":"a"}')
    call.completed("\n".join(f"row {n}" for n in range(40)))
    emit_message(turn, "earlier answer").close(True)
    turn.end()
    terminal = turn.log.events[-1]
    assert isinstance(terminal, ev.ResponseCompleted)
    session, stored = FakeSession(), [StoredTurn("earlier question", terminal.response, 0)]
    session.storage.turns = AsyncMock(return_value=stored)  # type: ignore[method-assign]
    async with drive_app(session, size=(80, 50)) as driver:
        seen = ("❯ earlier question", "● files · read", "row 11", "… 28 more lines")
        await driver.expect_text(*seen, "earlier answer", gone="row 12")
        assert driver.app.query_one(TabBar).display is False


@pytest.mark.long
async def test_search_finds_text_in_folded_items() -> None:
    async with drive_app(size=(100, 40)) as driver:
        app = driver.app
        first = await driver.ask("Where is the Needle?")
        emit_reasoning(
            first, "\n".join(f"thought {n}" for n in range(60)) + "\na needle, maybe"
        ).close(True)
        call = emit_call(first, "files", "read", '{"path":"hay"}')
        call.arguments_done('{"path":"hay"}')
        call.completed("\n".join(f"hay {n}" for n in range(60)) + "\nneedle in it")
        emit_message(first, "The **needle** is in the hay.").close(True)
        first.end()
        await driver.wait_for(lambda: app.turn is None)
        second = await driver.ask("Thank you.")
        await driver.pilot.press("ctrl+f", *"NEEDLE")
        await driver.expect_text("4/4")
        await driver.expect_text("The needle is in the hay.")
        await driver.wait_for(lambda: app.screen.get_selected_text() == "needle")
        await driver.pilot.press("up")
        await driver.expect_text("needle in it")
        await driver.pilot.press("enter")
        await driver.expect_text("a needle, maybe")
        await driver.pilot.press("up", *" zzz")
        await driver.expect_text("nowhere")
        await driver.pilot.press("escape")
        await driver.wait_for(lambda: app.prompt.has_focus)
        assert not app.screen.get_selected_text()
        second.end()


async def test_search_selects_hits_behind_letters_that_are_longer_folded() -> None:
    async with drive_app(size=(100, 40)) as driver:
        app = driver.app
        turn = await driver.ask("Hello")
        emit_reasoning(turn, "Straße und Fuß, İzmir: a Needle, thought").close(True)
        emit_message(turn, "**Straße** und Fuß, İzmir: a neeDle, answered, a STRASSE").close(True)
        turn.end()
        await driver.wait_for(lambda: app.turn is None)
        await driver.pilot.press("ctrl+f", *"needle,")
        await driver.expect_text("2/2")
        await driver.wait_for(lambda: app.screen.get_selected_text() == "neeDle,")
        await driver.pilot.press("up")
        await driver.wait_for(lambda: app.screen.get_selected_text() == "Needle,")
        await driver.pilot.press("ctrl+u", *"strasse")
        await driver.expect_text("3/3")
        await driver.wait_for(lambda: app.screen.get_selected_text() == "STRASSE")
        await driver.pilot.press("up")
        await driver.wait_for(lambda: app.screen.get_selected_text() == "Straße")


MARKED = """**Note**: use `a_b` and un**bold**ed &amp; see [docs](http://docs.example/docs) ok docs.

The sum is **42**, and the words of this *line* go on until it has to be wrapped somewhere.

- item **one**

  ```python
  def f():
      return 1
  ```
"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("query", "count", "selected"),
    [
        ("note: use", 1, "Note: use"),
        ("is 42", 1, "is 42"),
        ("docs", 2, "docs"),
        ("**", 0, ""),
        ("example", 0, ""),
        ("use a_b and", 1, "use a_b and"),
        ("unbolded & see", 1, "unbolded & see"),
        ("the words of this line go on until it has to be wrapped somewhere", 1, None),
        ("item one", 1, "item one"),
        ("def f():", 1, "def f():"),
    ],
)
@pytest.mark.parametrize("columns", [40, 100])
async def test_search_finds_what_is_displayed(
    query: str, count: int, selected: str | None, columns: int
) -> None:
    async with drive_app(size=(columns, 40)) as driver:
        turn = await driver.ask("hello")
        emit_message(turn, MARKED).close(True)
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("ctrl+f")
        driver.app.query_one(SearchBar).query_one(Input).value = query
        await driver.expect_text(f"{count}/{count}" if count else "nowhere")
        expected = query if selected is None else selected
        await driver.wait_for(lambda: (driver.app.screen.get_selected_text() or "") == expected)


async def test_search_unfolds_long_prompts_and_leaves_out_attached_texts() -> None:
    prompt = "\n".join(f"row {number}" for number in range(30))
    attached = '\n\n<file path="a.py" lines="1">\nrow 29\n</file>'
    async with drive_app(size=(80, 24)) as driver:
        turn = await driver.ask(prompt + attached)
        emit_message(turn, "\n\n".join(f"line {n}" for n in range(40))).close(True)
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("ctrl+f", *"row 29")
        await driver.expect_text("1/1", "row 29")
        await driver.wait_for(lambda: driver.app.screen.get_selected_text() == "row 29")


async def test_prompt_of_one_long_line_is_folded() -> None:
    async with drive_app(size=(80, 24)) as driver:
        turn = await driver.ask("x" * 30_000)
        await driver.expect_text("… 28,000 more characters")
        emit_message(turn, "the answer").close(True)
        turn.end()
        await driver.pilot.press("ctrl+o")
        await driver.wait_for(lambda: driver.app.query_one(UserMessage).size.height > 300)


async def test_escape_returns_to_the_prompt_from_a_folded_block() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        emit_reasoning(turn, "so").close(True)
        turn.end()
        await driver.wait_for(lambda: driver.app.query(FoldToggle))
        driver.app.query_one(FoldToggle).focus()
        await driver.wait_for(lambda: not driver.app.prompt.has_focus)
        await driver.pilot.press("escape")
        assert driver.app.prompt.has_focus


@pytest.mark.parametrize("in_search", [False, True])
async def test_alt_key_without_a_meaning_writes_nothing(in_search: bool) -> None:
    async with drive_app() as driver:
        (await driver.ask("hello")).end()
        await driver.pilot.press(*(["ctrl+f"] if in_search else []))
        for key in "xz":
            driver.app.post_message(Key(f"alt+{key}", key))
        await driver.pilot.press("e")
        text = driver.app.query_one(Input).value if in_search else driver.app.prompt.text
        assert text == "e"


async def test_alt_d_deletes_the_next_word() -> None:
    async with drive_app() as driver:
        await driver.type_text("two words", "home", "alt+d")
        assert driver.app.prompt.text == " words"


async def test_ctrl_l_paints_all_of_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[object] = []
    async with drive_app() as driver:
        await driver.expect_text("Ask something")
        monkeypatch.setattr(driver.app, "_display", lambda screen, update: painted.append(update))
        await driver.pilot.press("ctrl+l")
        assert any(isinstance(update, LayoutUpdate) for update in painted)


async def test_there_is_one_search_and_escape_closes_it_from_the_prompt() -> None:
    async with drive_app() as driver:
        app = driver.app
        turn = await driver.ask("hello")
        await driver.pilot.press("ctrl+f", *"hel")
        await driver.pilot.click(app.prompt)
        await driver.pilot.press(*"draft", "ctrl+f", *"lo")
        await driver.expect_text("1/1")
        assert len(app.query(SearchBar)) == 1 and app.prompt.text == "draft"
        assert app.query_one(SearchBar).query_one(Input).value == "lo", "typed over"
        await driver.pilot.click(app.prompt)
        bar = app.query_one(SearchBar)
        await driver.pilot.press("escape")
        await driver.wait_for(lambda: not app.query(SearchBar))
        bar._select_hit([app.query_one(UserMessage)], "lo", 0)  # as after a refresh
        assert app.prompt.has_focus and not turn.stopped
        await driver.pilot.press("escape")
        await driver.wait_for(lambda: turn.stopped)


async def test_panic_sets_exit_message_and_logs_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with drive_app() as driver:
        driver.app.panic("KeyError: [red]")  # as Textual does when its reading of keys ends
    assert driver.app.exit_message == (
        "Something went wrong inside the app; the log file has the details"
    )
    assert "KeyError: [red]" in caplog.text

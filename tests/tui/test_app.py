"""What a person does with the app, and what they see."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import events as ev
from agent.store.records import KeptTurn
from tests.support.fake_app import Played, PlayedTurn, calls, person, says, screen_text, thinks
from tools.types import ServerState
from tui.widgets import approval_card
from tui.widgets.approval_card import Approval
from tui.widgets.pane import Pane
from tui.widgets.tabs import Tabs
from tui.widgets.text_stream import Stream


def pane(app: Any, name: str) -> str:
    """The text of a pane of the newest exchange."""
    return str(app.query(f"#{name}").last(Pane).query_one(Stream).text)


async def test_the_prompt_is_there_before_the_model_is() -> None:
    async with person(Played(loads=False)) as someone:
        someone.session.progress(0.45)
        await someone.sees("loading the model 45%")
        await someone.pilot.press(*"hello")
        assert someone.app.prompt.text == "hello"
        someone.session.loaded.set()
        await someone.sees("ready")


async def test_the_four_panes_show_a_turn_as_it_comes() -> None:
    async with person() as someone:
        app = someone.app
        turn = await someone.ask("What is 123*456?")
        reasoning = thinks(turn, "I should compute this.")
        await someone.see(lambda: "compute this" in pane(app, "reasoning"))
        reasoning.close(True)
        call = calls(turn, "code_interpreter", "python", '{"code":"print(123')
        await someone.see(lambda: pane(app, "arguments").endswith("\nprint(123"))
        call.delta('*456)"}')
        call.arguments_done('{"code":"print(123*456)"}')
        await someone.sees("running python")
        turn.emit(ev.AgentToolOutputDelta(item_id=call.id, stream="stdout", delta="half"))
        await someone.see(lambda: "half" in pane(app, "results"))
        call.completed("56088")
        await someone.see(lambda: "56088" in pane(app, "results"))
        await someone.see(lambda: "half" not in pane(app, "results"))
        answer = says(turn, "It is **56088**.")
        await someone.sees("It is")
        answer.close(True)
        turn.end()
        await someone.see(lambda: app.turn is None)
        await someone.sees("It is 56088.")
        await someone.sees("608/33k")


async def test_earlier_exchanges_stay_above_and_fold_to_what_was_said() -> None:
    async with person(size=(100, 40)) as someone:
        first = await someone.ask("first question")
        thinks(first, "a secret thought").close(True)
        says(first, "first answer").close(True)
        first.end()
        await someone.see(lambda: someone.app.turn is None)
        second = await someone.ask("second question")
        await someone.pilot.press("pageup")
        await someone.sees("first question", "▸ Thought", "first answer", gone="a secret thought")
        second.end()


async def test_f2_shows_the_same_turn_as_a_conversation_while_it_runs() -> None:
    async with person(size=(100, 40)) as someone:
        turn = await someone.ask("question")
        reasoning = thinks(turn, "thinking aloud")
        await someone.pilot.press("f2")
        await someone.sees("▾ Thinking")
        await someone.sees("thinking aloud")
        reasoning.delta("and on")
        await someone.sees("and on")
        reasoning.close(True)
        await someone.see(lambda: "thinking aloud" not in screen_text(someone.app))
        await someone.pilot.press("ctrl+o")
        await someone.sees("thinking aloud and on")
        await someone.pilot.press("f2")
        await someone.see(lambda: someone.app.query(Pane))
        turn.end()


async def test_escape_stops_and_keeps_what_was_said() -> None:
    async with person() as someone:
        turn = await someone.ask("a long story")
        says(turn, "Once upon a time").close(False)
        await someone.sees("Once upon")
        await someone.pilot.press("escape")
        await someone.sees("Stopped; what was said until then is kept.")
        assert turn.stopped and "Once upon a time" in screen_text(someone.app)


async def test_a_prompt_sent_while_a_turn_runs_waits_for_it() -> None:
    async with person() as someone:
        turn = await someone.ask("first")
        await someone.pilot.press(*"second", "enter", *"third", "enter")
        await someone.sees("next: second")
        assert len(someone.session.turns) == 1
        turn.end()
        await someone.see(lambda: len(someone.session.turns) == 2)
        assert someone.session.turns[1].prompt[0].text == "second"
        await someone.sees("next: third")


async def test_up_takes_the_queued_prompt_back_and_then_what_was_sent_before() -> None:
    async with person() as someone:
        turn = await someone.ask("first")
        await someone.pilot.press(*"second", "enter")
        await someone.sees("next: second")
        await someone.pilot.press("up")
        await someone.see(lambda: someone.app.prompt.text == "second")
        assert not someone.app.queued.prompts
        await someone.pilot.press("up", "up")
        await someone.see(lambda: someone.app.prompt.text == "first")
        turn.end()


async def test_a_message_for_the_turn_that_runs_is_read_in_its_middle() -> None:
    async with person() as someone:
        turn = await someone.ask("first")
        await someone.pilot.press(*"later", "enter", *"to the left", "ctrl+s")
        await someone.sees("now: to the left")
        assert turn.steering == ["to the left"]
        turn.emit(ev.AgentSteered(text=turn.steering.pop()))
        await someone.sees("❯ to the left")
        await someone.see(lambda: "now:" not in screen_text(someone.app))
        await someone.pilot.press(*"too late", "ctrl+s")
        turn.end()
        await someone.see(lambda: len(someone.session.turns) == 2)
        assert someone.session.turns[1].prompt[0].text == "too late"
        await someone.sees("next: later")


async def test_stopping_gives_the_queued_prompts_back_instead_of_sending_them() -> None:
    async with person() as someone:
        await someone.ask("first")
        await someone.pilot.press(*"second", "enter", *"draft", "escape")
        await someone.see(lambda: someone.app.prompt.text == "second\n\ndraft")
        assert len(someone.session.turns) == 1


async def test_keys_pressed_in_one_go_stay_in_order() -> None:
    async with person() as someone:
        await someone.pilot.press(*"ac", "left", "b", "end", "d", "backspace", "ctrl+j", "e")
        await someone.see(lambda: someone.app.prompt.text == "abc\ne")
        await someone.pilot.press("enter")
        await someone.see(lambda: someone.session.turns)
        assert someone.session.turns[0].prompt[0].text == "abc\ne"


async def test_the_end_of_a_failed_turn_is_one_sentence() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        turn.end("failed", "The engine ran out of memory: ask for a shorter context.")
        await someone.sees("The engine ran out of memory")
        await someone.sees("ready")


async def test_a_tool_waits_for_the_persons_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_card, "GRACE", 3600.0)
    async with person() as someone:
        turn = await someone.ask("hello")
        tool = SimpleNamespace(server="files", name="write")
        call = calls(turn, "files", "write", '{"path":"a"}')
        call.arguments_done('{"path":"a"}')
        turn.emit(
            ev.AgentApprovalRequested(
                item_id=call.id, server="files", tool="write", arguments='{"path":"a"}', reason="",
                preview="--- a/x\n+++ b/x\n-old\n+new",
            )
        )  # fmt: skip
        asked = asyncio.ensure_future(someone.session.approver(tool, '{"path":"a"}'))
        await someone.sees("Run files · write?")
        await someone.sees("+new")
        await someone.pilot.press("y")  # still meant for the prompt
        await someone.see(lambda: someone.app.prompt.text == "y")
        monkeypatch.setattr(approval_card, "GRACE", 0.0)
        someone.app.query_one(Approval).take_focus()
        await someone.see(lambda: someone.app.query_one(Approval).has_focus)
        await someone.pilot.press("a")
        await someone.see(asked.done)
        assert asked.result().choice == "session"
        assert someone.app.prompt.text == "y"


async def test_a_refusal_and_a_stop_both_close_the_question() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        tool = SimpleNamespace(server="files", name="write")
        asked = asyncio.ensure_future(someone.session.approver(tool, "{}"))
        await someone.see(lambda: someone.app.query(Approval))
        await someone.see(lambda: someone.app.query_one(Approval).has_focus)
        await someone.pilot.press("n")
        await someone.see(asked.done)
        assert asked.result().choice == "no"
        again = asyncio.ensure_future(someone.session.approver(tool, "{}"))
        await someone.see(lambda: someone.app.query(Approval))
        again.cancel()
        await someone.see(lambda: not someone.app.query(Approval))
        await someone.see(lambda: someone.app.prompt.has_focus)
        turn.end()


@pytest.mark.parametrize("key", ["A", "r"])
async def test_for_good_and_no_because(key: str) -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        call = calls(turn, "git", "push", "{}")
        call.arguments_done("{}")
        change = ev.AgentApprovalRequested(
            item_id=call.id, server="git", tool="push", arguments="{}", reason="it has changed",
            diff="-description: First.",
        )  # fmt: skip
        turn.emit(change)
        tool = SimpleNamespace(server="git", name="push")
        asked = asyncio.ensure_future(someone.session.approver(tool, "{}"))
        await someone.sees("-description: First.")
        await someone.see(lambda: someone.app.query_one(Approval).has_focus)
        await someone.pilot.press(key)
        if key == "r":
            await someone.sees("Why not?")
            await someone.pilot.press("escape")
            await someone.see(lambda: someone.app.query_one(Approval).has_focus)
            assert not turn.stopped
            await someone.pilot.press("r")
            await someone.sees("Why not?")
            await someone.pilot.press(*"not y", "enter")
        await someone.see(asked.done)
        answer = asked.result()
        expected = ("always", "") if key == "A" else ("no", "not y")
        assert (answer.choice, answer.reason) == expected
        assert someone.app.prompt.text == ""
        turn.end()


async def test_a_server_that_is_missing_is_told() -> None:
    broken = ServerState("search", "failed", [], error="no such command: serch")
    async with person(Played(servers=[broken])) as someone:
        await someone.sees("The MCP server search is not available: no such command: serch")
        await someone.sees("MCP 0/1")


async def test_a_turn_that_came_over_http_is_watched_live() -> None:
    async with person() as someone:
        turn = PlayedTurn("What is the capital of France?", "http").start()
        someone.session.runtime.hub.announce(turn)  # type: ignore[arg-type]
        await someone.sees("1 ● What is the capital of France?")
        await someone.pilot.press("f3")
        thinks(turn, "Paris, of course.")
        await someone.sees("http ❯ What is the capital of France?")
        await someone.sees("Paris, of course.")
        await someone.pilot.press("escape")
        assert turn.stopped is None, "another program's turn is not ours to stop"
        says(turn, "Paris.").close(True)
        turn.end()
        await someone.sees("1 ✓ What is the capital of France?")
        await someone.pilot.press("f3")
        await someone.see(lambda: "http ❯" not in screen_text(someone.app))


async def test_nothing_of_model_or_tools_is_markup_or_an_escape() -> None:
    hostile = "[red]x[/red] [/nope] [@click=app.bell]y[/] \x1b[31mz\x1b]0;t\x07 \x9b2J"
    async with person(size=(120, 40)) as someone:
        turn = await someone.ask("[bold]me[/bold] [/]")
        thinks(turn, hostile).close(True)
        call = calls(turn, "[u]s[/u]", "[/t]", "{}")
        call.arguments_done("{}")
        call.completed(hostile)
        says(turn, hostile + "\n\n| [/a] | b |\n|---|---|\n| [/c] | [red] |\n").close(True)
        turn.emit(ev.AgentNotice(level="info", message=hostile))
        turn.end("failed", hostile)
        await someone.see(lambda: someone.app.turn is None)
        for _ in range(2):
            await someone.sees("[red]x[/red] [/nope]")
            await someone.sees("[bold]me[/bold] [/]")
            text = screen_text(someone.app)
            assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)
            await someone.pilot.press("f2")


async def test_ctrl_c_stops_then_clears_then_leaves() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        await someone.pilot.press(*"draft", "ctrl+c")
        await someone.see(lambda: turn.stopped)
        await someone.see(lambda: someone.app.turn is None)
        await someone.pilot.press("ctrl+c")
        await someone.see(lambda: someone.app.prompt.text == "")
        await someone.pilot.press("ctrl+c")
        await someone.sees("Ctrl-C once more leaves.")
        await someone.pilot.press("ctrl+c")
        await someone.see(lambda: not someone.app.is_running)
        assert someone.app.return_code == 0


async def test_the_answer_is_copied() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        says(turn, "The **answer**.").close(True)
        turn.end()
        await someone.see(lambda: someone.app.turn is None)
        await someone.pilot.press("ctrl+y")
        await someone.see(lambda: someone.app.clipboard.strip() == "The **answer**.")


async def test_whoever_writes_writes_into_the_prompt() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        thinks(turn, "so")
        await someone.see(lambda: "so" in pane(someone.app, "reasoning"))
        await someone.pilot.press("shift+tab")
        await someone.see(lambda: not someone.app.prompt.has_focus)
        await someone.pilot.press("x")
        await someone.see(lambda: someone.app.prompt.text == "x")
        turn.end()


async def test_a_pasted_page_is_one_prompt_and_a_few_lines_on_the_screen() -> None:
    async with person() as someone:
        page = "\n".join(f"line {n}" for n in range(10_000))
        someone.app.prompt.insert(page)
        await someone.pilot.press("enter")
        await someone.see(lambda: someone.session.turns)
        assert someone.session.turns[0].prompt[0].text == page
        await someone.sees("… 9995 more lines")
        someone.session.turns[0].end()


async def test_the_keys_are_one_key_away() -> None:
    async with person() as someone:
        for key in ("f1", "?"):
            await someone.pilot.press(key)
            await someone.sees("Ctrl-J           new line")
            await someone.pilot.press("escape")
            await someone.see(lambda: "Writing" not in screen_text(someone.app))
        await someone.pilot.press(*"why?")
        assert someone.app.prompt.text == "why?"


async def test_the_theme_that_was_chosen_is_kept() -> None:
    async with person() as someone:
        kept: list[str] = []
        someone.app._keep_theme = kept.append
        await someone.pilot.press("f4", "f4", "f4", "f4", *"/theme nord ", "enter")
        await someone.see(lambda: someone.app.theme == "nord")
        assert kept == ["light", "high-contrast", "ansi", "dark", "nord"]
        await someone.pilot.press(*"/theme no", "escape", "enter")
        await someone.sees("There is no theme no")


async def test_the_palette_runs_commands() -> None:
    async with person(size=(100, 30)) as someone:
        await someone.pilot.press("ctrl+p")
        await someone.see(lambda: len(someone.app.screen_stack) == 2)
        await someone.pilot.press(*"how long the model")
        await someone.sees("/effort")
        await someone.pilot.press("enter")
        await someone.see(lambda: someone.app.prompt.text == "/effort ")


async def test_a_conversation_is_there_again_when_it_goes_on(tmp_path: Path) -> None:
    turn = PlayedTurn("earlier question")
    thinks(turn, "hm").close(True)
    call = calls(turn, "files", "read", '{"path":"a"}')
    call.arguments_done('{"path":"a"}')
    call.completed("\n".join(f"row {n}" for n in range(40)))
    says(turn, "earlier answer").close(True)
    turn.end()
    terminal = turn.log.events[-1]
    assert isinstance(terminal, ev.ResponseCompleted)
    session = Played()
    session.earlier = lambda: [KeptTurn("earlier question", terminal.response, 0)]  # type: ignore[method-assign]
    async with person(session, size=(80, 50)) as someone:
        seen = ("❯ earlier question", "● files · read", "row 11", "… 28 more lines")
        await someone.sees(*seen, "earlier answer", gone="row 12")
        assert someone.app.query_one(Tabs).display is False


async def test_what_was_said_is_searched_also_where_it_is_folded() -> None:
    async with person(size=(100, 40)) as someone:
        app = someone.app
        first = await someone.ask("Where is the Needle?")
        thinks(first, "\n".join(f"thought {n}" for n in range(60)) + "\na needle, maybe").close(
            True
        )
        call = calls(first, "files", "read", '{"path":"hay"}')
        call.arguments_done('{"path":"hay"}')
        call.completed("\n".join(f"hay {n}" for n in range(60)) + "\nneedle in it")
        says(first, "The **needle** is in the hay.").close(True)
        first.end()
        await someone.see(lambda: app.turn is None)
        second = await someone.ask("Thank you.")
        await someone.pilot.press("ctrl+f", *"NEEDLE")
        await someone.sees("4/4")
        await someone.sees("The needle is in the hay.")
        await someone.see(lambda: app.screen.get_selected_text() == "needle")
        await someone.pilot.press("up")
        await someone.sees("needle in it")
        await someone.pilot.press("enter")
        await someone.sees("a needle, maybe")
        await someone.pilot.press("up", *" zzz")
        await someone.sees("nowhere")
        await someone.pilot.press("escape")
        await someone.see(lambda: app.prompt.has_focus)
        assert not app.screen.get_selected_text()
        second.end()


async def test_what_breaks_the_app_is_a_sentence_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with person() as someone:
        someone.app.panic("KeyError: [red]")  # as Textual does when its reading of keys ends
    assert someone.app.trouble == (
        "Something went wrong inside the app; the log file has the details"
    )
    assert "KeyError: [red]" in caplog.text

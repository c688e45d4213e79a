"""Going through the tokens of real turns of the embedded model: probabilities, branches, colours."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual import events

from agent import events as ev
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Sampling
from agent.errors import UserError
from agent.formats.harmony.token_ids import CHANNEL_ID, RETURN_ID
from agent.turn import token_choices
from agent.turn.loop import Turn
from agent.turn.options import HTTP, TurnOptions
from tests.support.fake_app import FakeSession, ScreenDriver, drive_app, screen_text
from tests.support.scripts import call, final, hold, python, thought
from tests.support.turns import write_script
from tui.widgets.assistant_message import AssistantMessage
from tui.widgets.exchange import ColouredMessage
from tui.widgets.token_browser import TokenBrowser
from tui.widgets.token_panel import TokenPanel
from tui.widgets.token_view import TokenPosition, TokenSearchBar, TokenView

PROMPT = "Multiply 123*456 using the mcp.code_interpreter tool."


@pytest.fixture(autouse=True)
def welcomed(home: Path) -> None:
    """The app has greeted the person before."""
    marker = home / "state/welcomed"
    marker.parent.mkdir(exist_ok=True)
    marker.touch()


async def ask(driver: ScreenDriver, text: str = PROMPT) -> None:
    """Ask and wait for the end of the answer."""
    app = driver.app
    await driver.wait_for(lambda: app.session_ready and app.session.runtime.loaded)
    before = app.session.next_prompt.first_entry
    await driver.type_text(text, "enter")
    await driver.wait_for(lambda: app.turn is None and app.session.next_prompt.first_entry > before)


def tokens_written(driver: ScreenDriver) -> list[list[int]]:
    """The ids of each generation of the latest turn."""
    turn = driver.app.own_turn.latest
    assert turn is not None
    generations: list[list[int]] = []
    for event in turn.log.events:
        if isinstance(event, ev.AgentPrompt):
            generations.append([])
        elif isinstance(event, ev.AgentTokens):
            generations[-1] += event.ids
    return generations


async def open_tokens(driver: ScreenDriver) -> TokenView:
    """Open the token view and put the cursor on the last token."""
    await driver.pilot.press("f8")
    await driver.wait_for(lambda: driver.app.live.token_view)
    view = driver.app.live.token_view
    assert view is not None
    await driver.wait_for(lambda: view.query_one(TokenBrowser).token_count)
    await driver.pilot.press("tab")
    await driver.wait_for(lambda: view.query_one(TokenBrowser).cursor is not None)
    return view


async def choose_alternative(driver: ScreenDriver, view: TokenView) -> tuple[int, int]:
    """Take the second alternative at the cursor; returns the cursor's number and the token."""
    browser, panel = view.query_one(TokenBrowser), view.query_one(TokenPanel)
    await driver.wait_for(lambda: panel.has_alternatives)
    number = view.cursor_number
    assert number is not None and panel.choices is not None
    token = panel.choices.alternatives[1].token
    await driver.pilot.press("enter", "down", "enter")
    await driver.wait_for(lambda: "‹2/2›" in screen_text(driver.app))
    await driver.wait_for(lambda: driver.app.turn is None)
    assert browser.display
    return number, token


async def test_branch_begins_with_the_ids_before_and_the_other_token(open_app: Any) -> None:
    async with open_app(size=(120, 50), launch={"engine": None, "tools": "python"}) as driver:
        await ask(driver)
        before = tokens_written(driver)
        view = await open_tokens(driver)
        await driver.expect_text("Token", "generated", "sampled", "rank")
        for _ in range(4):  # within the answer, after the call and its result
            await driver.pilot.press("left")
        generation = view.writer.log.generations[-1]
        number, token = await choose_alternative(driver, view)
        index = number - generation.start
        after = tokens_written(driver)
        assert after[0][: index + 1] == [*before[-1][:index], token]
        turn = driver.app.transcript.own_turns[-1]
        calls = [item for item in turn.items if item.kind == "call"]
        events = driver.app.own_turn.latest.log.events
        assert len(calls) == 1 and calls[0].result == "56088"
        assert not any(isinstance(event, ev.AgentApprovalRequested) for event in events)
        assert view.query_one(TokenBrowser).has_focus and view.cursor_number == number
        await driver.pilot.press("escape", "ctrl+up", "left")
        await driver.expect_text("‹1/2›", "= 56088")


@pytest.mark.long
async def test_stored_answer_goes_on_from_another_token(open_app: Any) -> None:
    async with open_app(size=(120, 50), launch={"engine": None, "tools": "python"}) as driver:
        app = driver.app
        await ask(driver)
        before = tokens_written(driver)
        await app.session.open(app.session.conversation.id)
        await app.startup.show_conversation()
        view = await open_tokens(driver)
        await driver.pilot.press("ctrl+end", *["left"] * 5)
        entry = app.session.conversation.entries[-1]
        offset = len(entry.ids) - 6 - len(app.session.next_prompt.require_format().open_assistant())
        _, token = await choose_alternative(driver, view)
        assert tokens_written(driver)[0][: offset + 1] == [*before[-1][:offset], token]


@pytest.mark.long
async def test_token_of_prompt_is_explained_but_not_taken(open_app: Any) -> None:
    async with open_app(size=(100, 40), launch={"engine": None, "tools": "none"}) as driver:
        app = driver.app
        await ask(driver, "hello")
        view = await open_tokens(driver)
        await driver.pilot.press("ctrl+home")
        await driver.expect_text("Token 1 · prompt", "follows nothing")
        await driver.pilot.press("right", "right", "enter")
        await driver.wait_for(lambda: view.query_one(TokenPanel).has_alternatives)
        await driver.pilot.press("enter", "enter")
        await driver.expect_text("Only what the model wrote")
        assert len(app.transcript.own_turns) == 1 and app.turn is None
        await driver.pilot.press("escape", "escape")
        assert app.prompt.has_focus and view.query_one(TokenBrowser).cursor is None


@pytest.mark.long
async def test_token_is_not_taken_while_a_turn_runs(open_app: Any, tmp_path: Path) -> None:
    more, yet_more = tmp_path / "more", tmp_path / "yet_more"
    text = " ".join(map(str, range(200)))
    replies = (
        hold(thought(text) + call("nothing"), 12, more),
        hold(thought(text) + call("nothing"), 12, yet_more),
        hold(final(text), 12),
    )
    script = write_script(tmp_path / "held.jsonl", *replies)
    async with open_app(size=(80, 24), launch={"engine": f"script:{script}"}) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session.runtime.loaded)
        await driver.type_text("count", "enter")
        await driver.wait_for(lambda: app.turn is not None)
        view = await open_tokens(driver)
        await driver.wait_for(
            lambda: view.writer.log.generations and view.writer.log.generations[0].count > 9
        )
        await driver.pilot.press("left")
        cursor = view.query_one(TokenBrowser).cursor
        position = view.position
        assert position is not None and cursor is not None
        with pytest.raises(UserError, match="A turn is running: stop it or wait"):
            await app.tokens.take(position, 0)
        more.touch()
        await driver.wait_for(lambda: view.query_one(TokenBrowser).token_count > cursor + 20)
        assert view.query_one(TokenBrowser).cursor == cursor, "it stays while others come"
        await driver.pilot.press("ctrl+end")
        last = view.query_one(TokenBrowser).cursor
        yet_more.touch()
        await driver.wait_for(lambda: (view.query_one(TokenBrowser).cursor or 0) > (last or 0) + 5)
        await driver.pilot.press("escape", "escape")
        await driver.wait_for(lambda: app.turn is None)


@pytest.mark.long
async def test_colours_show_the_text_and_are_undone(open_app: Any) -> None:
    async with open_app(size=(80, 30), launch={"engine": None, "tools": "none"}) as driver:
        app = driver.app
        await ask(driver, "hello")
        app.prompt.cursor_blink = False
        picture = app.export_screenshot()
        await driver.pilot.press("ctrl+up", "p")
        await driver.expect_text("% surprising")
        (message,) = app.query(ColouredMessage)
        view = app.transcript.own_turns[-1]
        assert message.text == view.answer
        await driver.pilot.press("ctrl+up", "p")
        await driver.wait_for(lambda: app.query(AssistantMessage))
        await driver.wait_for(lambda: app.export_screenshot() == picture)
        assert not app.query(ColouredMessage)
        await open_tokens(driver)
        await driver.pilot.press("p")
        await driver.expect_text("% surprising")
        assert (
            app.live.token_view is not None
            and app.live.token_view.writer.log.generations[0].probabilities
        )
        await driver.pilot.press("p")
        await driver.wait_for(lambda: "surprising" not in screen_text(app))


async def test_keys_pressed_too_early_do_no_harm() -> None:
    async with drive_app(FakeSession(model_loaded=False), size=(100, 30)) as driver:
        app = driver.app
        await driver.pilot.press("f8")
        await driver.expect_text("the model is not loaded yet")
        await driver.pilot.press("tab", "p", "enter")
        assert (
            app.live.token_view is not None
            and app.live.token_view.query_one(TokenBrowser).cursor is None
        )
        await driver.pilot.press("f8")
        await app.action_command("probs")
        app.prompt.focus()
        await driver.expect_text("There are no messages yet.")
        turn = await driver.ask("hello")
        await driver.pilot.press("ctrl+up", "p")
        await driver.expect_text("queued: /probs 1")
        turn.end()
        await driver.expect_text("The model is not loaded.")


async def test_keys_outside_the_prompt_put_collections_off(open_app: Any) -> None:
    async with open_app(size=(100, 30)) as driver:
        await driver.pilot.press("f1")
        await driver.expect_text("Keys and commands")
        pressed = time.monotonic()
        await driver.pilot.press("down")
        assert driver.app.last_input_at > pressed > driver.app.prompt.last_input_at


@pytest.mark.long
async def test_answer_of_a_branch_goes_on_from_its_own_token(open_app: Any, tmp_path: Path) -> None:
    script = tmp_path / "s.jsonl"
    replies = (
        thought("One.") + python("print(1)"), thought("So.") + final("Two three."),
        " Six.<|return|>", " Ten.<|return|>",
    )  # fmt: skip
    script.write_text("".join(json.dumps({"markup": each}) + "\n" for each in replies))
    launch = {"engine": f"script:{script}", "tools": "python", "approve": "all"}
    async with open_app(size=(120, 50), launch=launch) as driver:
        app = driver.app
        await ask(driver, "go")
        view = await open_tokens(driver)
        form = app.session.next_prompt.require_format()
        (token,) = form.encode_text(" and")
        written = tokens_written(driver)[-1]
        answer = written[written.index(CHANNEL_ID, 1) :]
        # As of a turn that was stopped before its next generation wrote anything.
        view.writer.log.begin_generation([])
        for shown in ("Two three. and Six.", "Two three. and Six. and Ten."):
            count = view.writer.log.generations[-1].start
            position = TokenPosition(app.own_turn.latest, None, count - 1, view.writer.log)
            await app.tokens.take(position, token)
            await driver.expect_text(shown)
            await driver.wait_for(lambda: app.turn is None)
            (written,) = tokens_written(driver)
            answer = [*answer[:-1], token, *form.encode_text(shown[-5:]), RETURN_ID]
            assert written == answer
            kinds = [item.kind for item in app.transcript.own_turns[-1].items]
            assert kinds == ["reasoning", "call", "reasoning", "answer"]
            await driver.wait_for(lambda: view.writer.turn is app.own_turn.latest)
            await driver.wait_for(lambda n=len(answer): view.writer.log.generations[-1].count == n)
            view.writer.log.begin_generation([])


@pytest.mark.long
async def test_token_behind_reasoning_in_a_log_is_not_taken_for_another(
    open_app: Any, tmp_path: Path
) -> None:
    """The conversation's prompt has no reasoning, so its tokens have other numbers than the log's."""
    script = tmp_path / "s.jsonl"
    replies = (
        thought("One is a thought of some length.") + python("print(12345)"),
        thought("So.") + final("Two three four five."),
        " Six.<|return|>",
    )
    script.write_text("".join(json.dumps({"markup": each}) + "\n" for each in replies))
    launch = {"engine": f"script:{script}", "tools": "python", "approve": "all"}
    async with open_app(size=(120, 50), launch=launch) as driver:
        app = driver.app
        await ask(driver, "go")
        view = await open_tokens(driver)
        form = app.session.next_prompt.require_format()

        async def written_at(numbers: range) -> list[int]:
            turn, log, conversation = view.writer.turn, view.writer.log, app.session.conversation
            positions = (TokenPosition(turn, conversation, number, log) for number in numbers)
            return [each.number for each in positions if await app.tokens._find_written(each)]

        first, second = view.writer.log.generations
        assert await written_at(range(second.start)) == list(
            range(first.start, first.start + first.count)
        )
        position = view.position
        assert position is not None and position.generation == 1
        await app.tokens.take(position, form.encode_text(" and")[0])
        await driver.expect_text("Six.")
        await driver.wait_for(lambda: app.turn is None)
        await driver.wait_for(lambda: view.writer.turn is app.own_turn.latest)
        (branch,) = view.writer.log.generations
        assert branch.start > second.start and not await written_at(range(branch.start))


@pytest.mark.long
async def test_colours_of_a_turn_that_is_gone_are_dropped(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, calls = asyncio.Event(), []

    async def logprobs(engine: Any, ids: list[int], start: int, stop: int) -> list[float]:
        calls.append(stop)
        await gate.wait()
        calls.append(-stop)
        return [-1.0] * (stop - start)

    monkeypatch.setattr(token_choices, "token_logprobs", logprobs)
    async with open_app(size=(80, 30), launch={"engine": None, "tools": "none"}) as driver:
        app = driver.app
        await ask(driver, "hello")
        (view,) = app.transcript.own_turns
        await driver.pilot.press("ctrl+up", "p")
        await driver.wait_for(lambda: len(calls) == 1)
        await driver.pilot.press("ctrl+up", "p")
        await driver.wait_for(lambda: not view.probability_note)
        await driver.pilot.press("ctrl+up", "p")
        await driver.wait_for(lambda: len(calls) == 2)
        app.prompt.focus()
        await driver.type_text("/new", "enter")
        await driver.wait_for(lambda: not app.transcript.own_turns)
        gate.set()
        await driver.wait_for(lambda: not view.probability_note)
        assert len(calls) == 3, "the first one was cancelled"
        await app.transcript.show_colours(view)
        assert app.is_running and not app.query(ColouredMessage)


async def test_unexpected_error_of_probabilities_is_a_sentence(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: Any, **options: Any) -> Any:
        raise ValueError("no such index")

    monkeypatch.setattr(token_choices, "token_logprobs", fail)
    monkeypatch.setattr(token_choices, "token_choices", fail)
    async with open_app(size=(120, 50), launch={"engine": None, "tools": "none"}) as driver:
        await ask(driver, "hello")
        view = await open_tokens(driver)
        await driver.expect_text("The probabilities", "details.")
        await driver.pilot.press("p")
        await driver.wait_for(lambda: driver.app._notifications)
        assert (
            view.query_one(TokenBrowser).has_focus
            and not driver.app.transcript.own_turns[-1].probability_note
        )


@pytest.mark.long
async def test_turn_of_another_program_has_its_own_sampling_and_no_colours(open_app: Any) -> None:
    async with open_app(size=(120, 50), launch={"engine": None, "tools": "none"}) as driver:
        app = driver.app
        await ask(driver, "hello")
        runtime = app.session.runtime
        app.served_tabs.subscribe()
        options = TurnOptions(tools=(), sampling=Sampling(temperature=0))
        conversation = Conversation("conv_other")
        turn = Turn(runtime, conversation, [User("2+2")], options, interface=HTTP).start()
        await turn.done()
        await driver.wait_for(lambda: app.served_tabs.tabs)
        await app.served_tabs.show_next(1)
        view = await open_tokens(driver)
        await driver.pilot.press("left")
        await driver.wait_for(lambda: view.query_one(TokenPanel).has_alternatives)
        position, choices = view.position, view.query_one(TokenPanel).choices
        assert position is not None and position.turn is turn and choices is not None
        assert choices.chosen.probability == 1, "greedy"
        unknown = await app.tokens.choices(
            TokenPosition(None, conversation, position.number, position.log)
        )
        assert unknown.chosen.probability is None and unknown.alternatives[0].probability is None
        assert unknown.chosen.logprob == pytest.approx(choices.chosen.logprob, abs=0.01)
        await driver.pilot.press("p")
        await driver.expect_text("Only your own conversation can be coloured.")
        assert not app.transcript.own_turns[-1].probability_note


async def test_cursor_after_a_token_of_an_earlier_turn_is_on_the_new_token(
    open_app: Any, tmp_path: Path
) -> None:
    script = tmp_path / "s.jsonl"
    replies = (
        thought("One is a thought of some length.") + final("Two three four."),
        thought("So.") + final("Five."),
        " Six seven eight.<|return|>",
    )
    script.write_text("".join(json.dumps({"markup": each}) + "\n" for each in replies))
    async with open_app(size=(120, 50), launch={"engine": f"script:{script}"}) as driver:
        app = driver.app
        await ask(driver, "go")
        await ask(driver, "more")
        view = await open_tokens(driver)
        encode = app.session.next_prompt.require_format().encode_text
        (token,), (three,) = encode(" and"), encode(" three")
        view.query_one(TokenBrowser).move_cursor_to(view.writer.log.ids.index(three))
        position = view.position
        assert position is not None and position.generation is None
        view.post_message(TokenView.Taken(position, token))
        await driver.expect_text("Two and Six seven eight.")
        await driver.wait_for(lambda: app.turn is None and view.writer.turn is app.own_turn.latest)
        await driver.wait_for(lambda: view.cursor_number == view.writer.log.ids.index(token))


async def test_turn_after_a_branch_that_never_began_moves_no_cursor(
    open_app: Any, tmp_path: Path
) -> None:
    script = tmp_path / "s.jsonl"
    replies = final("One."), thought("Two.") + final("Three four five six.")
    script.write_text("".join(json.dumps({"markup": each}) + "\n" for each in replies))
    async with open_app(size=(120, 50), launch={"engine": f"script:{script}"}) as driver:
        await ask(driver, "go")
        view = await open_tokens(driver)
        await driver.pilot.press("escape")
        view.await_turn(driver.app.session.next_prompt.require_format().encode_text("Seven eight"))
        await ask(driver, "more")
        await driver.wait_for(lambda: view._awaited is None)
        assert view.cursor_number is None


@pytest.mark.long
async def test_letters_on_the_tokens_all_reach_the_prompt(open_app: Any) -> None:
    async with open_app(size=(120, 50), launch={"engine": None, "tools": "none"}) as driver:
        await ask(driver, "hello")
        await open_tokens(driver)
        for letter in "help me please":
            key = "space" if letter == " " else letter
            driver.app.post_message(events.Key(key, letter))
        await driver.wait_for(lambda: driver.app.prompt.text == "help me please")


@pytest.mark.long
async def test_closing_the_token_view_gives_the_focus_back(open_app: Any) -> None:
    async with open_app(size=(120, 50), launch={"engine": None, "tools": "none"}) as driver:
        app = driver.app
        await ask(driver, "hello")
        view = await open_tokens(driver)
        await driver.pilot.press("ctrl+f")
        await driver.wait_for(lambda: view.query(TokenSearchBar))
        await driver.pilot.press("f8")
        await driver.wait_for(lambda: app.prompt.has_focus and not view.query(TokenSearchBar))


@pytest.mark.long
async def test_turns_are_read_once_however_often_the_cursor_rests(open_app: Any) -> None:
    async with open_app(size=(120, 50), launch={"engine": None, "tools": "none"}) as driver:
        app = driver.app
        await ask(driver, "hello")
        await ask(driver, "again")
        view, reads = await open_tokens(driver), []
        storage = app.session.storage
        read = storage.turns
        storage.turns = lambda name: [reads.append(1), read(name)][1]
        storage._turns_read = ("", {})
        for _ in range(3):
            await driver.pilot.press("left")
            await driver.wait_for(lambda: reads and view.query_one(TokenPanel).has_alternatives)
        position = view.position
        assert position is not None and len(reads) == 1
        numbers = range(position.number - position.log.generations[-1].count)
        positions = (replace(position, number=number) for number in numbers)
        every = [await app.tokens._find_written(each) for each in positions]
        written = [each for each in every if each is not None]
        assert {view for view, *_ in written} == {app.transcript.own_turns[0]} and len(reads) == 1
        await driver.pilot.press("escape")
        await ask(driver, "more")
        assert (
            await app.session.storage.turn(
                app.session.conversation.id, app.transcript.own_turns[-1].response_id
            )
            is not None
        )
        assert (
            len(reads) == 2
            and await app.session.storage.turn(app.session.conversation.id, "resp_none") is None
        )

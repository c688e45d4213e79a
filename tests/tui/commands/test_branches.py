"""Editing and retrying messages, and switching between the branches that this creates."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from textual import events

from agent.config.launch import LaunchOptions
from agent.engine.protocol import EngineBusyError
from tests.support.fake_app import drive_app, emit_message, screen_text, wait_until
from tui.app import AgentApp
from tui.screens.dialogs import EditorArea, TextEditor
from tui.session import Session
from tui.widgets.user_message import UserMessage


def script_lines(*lines: str) -> str:
    """A script of final messages with these texts."""
    markup = ({"markup": f"<|channel|>final<|message|>{line}<|return|>"} for line in lines)
    return "".join(json.dumps(line) + "\n" for line in markup)


@pytest.mark.long
async def test_edit_and_retry_keep_all_branches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> None:
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    script.write_text(script_lines("one", "two", "three\n```py\nx = 1\n```", "four", "five"))
    session = Session(LaunchOptions(engine=f"script:{script}", tools="none", root=tmp_path))
    app = AgentApp(session)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:

        async def send(*keys: str, answer: str) -> None:
            await pilot.press(*keys, "enter")
            await wait_until(pilot, lambda: app.turn is None and answer in screen_text(app))

        async def expect_text(*texts: str, gone: str = "nothing") -> None:
            await wait_until(
                pilot,
                lambda: (
                    all(text in screen_text(app) for text in texts) and gone not in screen_text(app)
                ),
            )

        await wait_until(pilot, lambda: app.session_ready)
        await send(*"first", answer="one")
        await send(*"second", answer="two")
        await pilot.press("ctrl+up", "up")
        await expect_text("message 1 of 2")
        await pilot.press("e")
        await wait_until(pilot, lambda: app.prompt.text == "first")
        await send(*" again", answer="three")
        await expect_text("❯ first again  ‹2/2›", "Enter sends", gone="second")
        await send(*"/copy code", answer="is copied")
        assert app.clipboard == "x = 1\n"
        await send(*"/retry", answer="four")
        await expect_text("❯ first again  ‹3/3›", gone="three")
        await pilot.press("ctrl+up", "right")
        await expect_text("❯ first  ‹1/3›", "❯ second", "two", gone="four")
        await wait_until(pilot, lambda: isinstance(app.focused, UserMessage))
        await pilot.press("left")
        await expect_text("❯ first again  ‹3/3›", "four", gone="second")
        await pilot.press("escape", *"/edit", "enter")
        await expect_text("editing")
        await pilot.press("escape")
        await expect_text("ready", gone="editing")
        await send(*"third", answer="five")
        assert app.prompt.text == ""
        assert len(session.storage.store.summaries()) == 3
        await send(*"/export talk.md", answer="talk.md")
        assert "first again" in (tmp_path / "talk.md").read_text()
        assert stat.S_IMODE((tmp_path / "talk.md").stat().st_mode) == 0o600
        await send(*"/rename A talk", answer="A talk")
        await send(*"/export html", answer="a-talk.html")
        await send(*"/new", answer="ready")
        assert not app.transcript.own_turns
    await session.close()


async def test_picked_message_stays_picked_in_other_view() -> None:
    async with drive_app(size=(80, 24)) as driver:
        for question in ("first", "second"):
            turn = await driver.ask(question)
            emit_message(turn, f"answer to the {question}").close(True)
            turn.end()
            await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("ctrl+up")
        for number in ("2 of 2", "1 of 2"):
            for _ in range(2):
                await driver.expect_text(f"message {number}")
                await driver.pilot.press("f2")
            await driver.expect_text(f"message {number}")
            assert isinstance(driver.app.focused, UserMessage)
            await driver.pilot.press("up")


async def test_picked_message_keys_of_one_burst_all_count() -> None:
    """A slow terminal or a key that is held down delivers several keys in one read."""
    async with drive_app() as driver:
        for question in ("first", "second", "third", "fourth"):
            turn = await driver.ask(question)
            emit_message(turn, f"answer to the {question}").close(True)
            turn.end()
            await driver.wait_for(lambda: driver.app.turn is None)

        def burst(*keys: str) -> None:
            for key in keys:
                driver.app.post_message(events.Key(key, key if len(key) == 1 else None))

        burst("ctrl+up", "up", "ctrl+up", "up")
        await driver.expect_text("message 1 of 4")
        burst("down", "down", "up", "e", *"rebec")
        await driver.expect_text("editing")
        await driver.wait_for(lambda: driver.app.prompt.text == "secondrebec")
        assert driver.app.prompt.has_focus


async def test_branch_that_failed_before_it_began_is_left_for_the_first(
    open_app: Any, tmp_path: Path
) -> None:
    script = tmp_path / "replies.jsonl"
    script.write_text(script_lines("one", "two", "three"))
    options = {"engine": f"script:{script}", "context": 2048}
    async with open_app(size=(100, 30), launch=options) as driver:
        app, screen = driver.app, lambda: screen_text(driver.app)
        await driver.type_text("first", "enter")
        await driver.wait_for(lambda: app.turn is None and "❯ first" in screen())
        first = app.session.conversation.id
        await driver.pilot.press("ctrl+up", "e")
        await driver.wait_for(lambda: app.prompt.text == "first")
        app.prompt.text = "word " * 20_000
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: app.turn is None and app.session.conversation.id != first)
        await driver.expect_text("editing", "pasted")
        assert app.prompt.full_text == "word " * 20_000 and len(app.transcript.own_turns) == 1
        await driver.pilot.press("escape")
        assert not app.prompt.text
        await driver.type_text("/compare effort=high", "enter")
        await driver.expect_text("until then there is nothing to compare")
        await driver.pilot.press("ctrl+up")
        await driver.expect_text("← → 2/2")
        await driver.pilot.press("left")
        await driver.wait_for(lambda: app.session.conversation.id == first and "one" in screen())
        await driver.pilot.press("escape", *"/branch 1", "enter")
        await driver.wait_for(lambda: app.session.conversation.id != first)
        app.session.branch(0)
        await driver.type_text("other", "enter")
        await driver.expect_text("two", "‹2/2›")


async def test_branch_that_failed_before_it_began_is_sent_again_with_its_text(
    open_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "replies.jsonl"
    script.write_text(script_lines("one", "two"))
    async with open_app(size=(100, 30), launch={"engine": f"script:{script}"}) as driver:
        app, screen = driver.app, lambda: screen_text(driver.app)
        await driver.type_text("first", "enter")
        await driver.wait_for(lambda: app.turn is None and "❯ first" in screen())
        first = app.session.conversation.id
        await driver.pilot.press("ctrl+up", "e")
        await driver.wait_for(lambda: app.prompt.text == "first")

        def refuse(*arguments: Any, **options: Any) -> Any:
            raise EngineBusyError("The engine is busy.")

        with monkeypatch.context() as busy:
            busy.setattr(app.session.runtime, "generate", refuse)
            for text in ("first, but longer", "first, but longer, again"):
                app.prompt.text = text
                await driver.pilot.press("enter")
                await driver.expect_text("The engine is busy.", "editing")
                await driver.wait_for(lambda text=text: app.prompt.text == text)
                assert [turn.prompt for turn in app.transcript.own_turns] == [text]

            def refuse_while_typing(*arguments: Any, **options: Any) -> Any:
                app.prompt.insert("next")
                raise EngineBusyError("The engine is busy.")

            busy.setattr(app.session.runtime, "generate", refuse_while_typing)
            app.prompt.text = "third"
            await driver.pilot.press("enter")
            await driver.wait_for(lambda: app.turn is None and "❯ third" in screen())
            assert app.prompt.text == "next"
        app.prompt.clear()
        await driver.type_text("/retry", "enter")
        await driver.expect_text("❯ third  ‹2/2›", "two")
        assert app.session.conversation.id != first and app.chat.editing is None
        await driver.wait_for(lambda: len(app.session.storage.store.summaries()) == 2)


async def test_edited_thought_is_in_the_editor_again_after_its_branch_failed(
    open_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "replies.jsonl"
    script.write_text(script_lines("one", "two"))
    async with open_app(size=(100, 30), launch={"engine": f"script:{script}"}) as driver:
        app, screen = driver.app, lambda: screen_text(driver.app)
        await driver.type_text("first", "enter")
        await driver.wait_for(lambda: app.turn is None and "❯ first" in screen())

        def refuse(*arguments: Any, **options: Any) -> Any:
            raise EngineBusyError("The engine is busy.")

        async def edit(text: str, *keys: str) -> None:
            await driver.pilot.press("ctrl+up", "t")
            await driver.wait_for(lambda: isinstance(app.screen, TextEditor))
            assert app.screen.query_one(EditorArea).text == text
            await driver.pilot.press(*keys, "enter")

        with monkeypatch.context() as busy:
            busy.setattr(app.session.runtime, "generate", refuse)
            await edit("one", *" and")
            await driver.expect_text("The engine is busy.", "editing")
        assert app.prompt.text == "first"
        await driver.pilot.press("ctrl+up", "left")
        await driver.expect_text("one", "message 1 of 1", gone="editing")
        await edit("one and", *" so")
        await driver.wait_for(lambda: app.turn is None and "one and so" in screen())
        await driver.pilot.press("ctrl+up", "left")
        await driver.expect_text("message 1 of 1", gone="one and so")
        await edit("one", *"ly")
        await driver.wait_for(lambda: app.turn is None and "only" not in screen())

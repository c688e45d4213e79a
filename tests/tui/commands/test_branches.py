"""Editing and retrying what was said, and going through the branches that this makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.cli.shared import Shared
from tests.support.fake_app import person, says, screen_text, wait_until
from tui.app import AgentApp
from tui.session import Session
from tui.widgets.user_message import Asked


def said(*lines: str) -> str:
    markup = ({"markup": f"<|channel|>final<|message|>{line}<|return|>"} for line in lines)
    return "".join(json.dumps(line) + "\n" for line in markup)


async def test_messages_are_edited_and_retried_and_all_versions_stay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_logging: None,
) -> None:
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    script.write_text(said("one", "two", "three\n```py\nx = 1\n```", "four", "five"))
    session = Session(Shared(engine=f"script:{script}", tools="none", root=tmp_path))
    app = AgentApp(session)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:

        async def send(*keys: str, answer: str) -> None:
            await pilot.press(*keys, "enter")
            await wait_until(pilot, lambda: app.turn is None and answer in screen_text(app))

        async def sees(*texts: str, gone: str = "nothing") -> None:
            await wait_until(
                pilot,
                lambda: (
                    all(text in screen_text(app) for text in texts) and gone not in screen_text(app)
                ),
            )

        await wait_until(pilot, lambda: app.begun)
        await send(*"first", answer="one")
        await send(*"second", answer="two")
        await pilot.press("ctrl+up", "up")
        await sees("message 1 of 2")
        await pilot.press("e")
        await wait_until(pilot, lambda: app.prompt.text == "first")
        await send(*" again", answer="three")
        await sees("❯ first again  ‹2/2›", "Enter sends", gone="second")
        await send(*"/copy code", answer="is copied")
        assert app.clipboard == "x = 1\n"
        await send(*"/retry", answer="four")
        await sees("❯ first again  ‹3/3›", gone="three")
        await pilot.press("ctrl+up", "right")
        await sees("❯ first  ‹1/3›", "❯ second", "two", gone="four")
        await wait_until(pilot, lambda: isinstance(app.focused, Asked))
        await pilot.press("left")
        await sees("❯ first again  ‹3/3›", "four", gone="second")
        await pilot.press("escape", *"/edit", "enter")
        await sees("editing")
        await pilot.press("escape")
        await sees("ready", gone="editing")
        await send(*"third", answer="five")
        assert app.prompt.text == ""
        assert len(session.store.summaries()) == 3
        await send(*"/export talk.md", answer="talk.md")
        assert "first again" in (tmp_path / "talk.md").read_text()
        await send(*"/new", answer="ready")
        assert not app.chat.messages
    await session.close()


async def test_what_is_picked_stays_picked_in_the_other_view() -> None:
    async with person(size=(80, 24)) as someone:
        for question in ("first", "second"):
            turn = await someone.ask(question)
            says(turn, f"answer to the {question}").close(True)
            turn.end()
            await someone.see(lambda: someone.app.turn is None)
        await someone.pilot.press("ctrl+up")
        for picked in ("2 of 2", "1 of 2"):
            for _ in range(2):
                await someone.sees(f"message {picked}")
                await someone.pilot.press("f2")
            await someone.sees(f"message {picked}")
            assert isinstance(someone.app.focused, Asked)
            await someone.pilot.press("up")

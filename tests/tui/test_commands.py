"""What a person asks for with a slash."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.tui.played import person, says, screen_text
from tui.commands.registry import known, parse


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("/new", ("new", "")),
        ("/effort  high ", ("effort", "high")),
        ("/git:review a=1\nb=2", ("git:review", "a=1\nb=2")),
        ("/usr/bin/python is what?", None),
        (" /new", None),
        ("what is /new?", None),
        ("/", None),
    ],
)
def test_what_is_a_command(text: str, asked: tuple[str, str] | None) -> None:
    assert parse(text) == asked


@pytest.mark.parametrize(("name", "meant"), [("quti", "quit"), ("comp", "compact"), ("xyz", None)])
def test_the_command_that_was_meant(name: str, meant: str | None) -> None:
    assert known().nearest(name) == meant


async def test_an_unknown_command_comes_back_with_a_sentence() -> None:
    async with person() as someone:
        await someone.pilot.press(*"/efort low", "enter")
        await someone.sees("There is no command /efort;")
        assert someone.app.prompt.text == "/efort low" and not someone.session.turns


@dataclass(frozen=True)
class Told:
    effort: str = "medium"
    instructions: str | None = None


async def test_effort_and_system_hold_from_the_next_turn_on() -> None:
    async with person() as someone:
        someone.session.options = Told()  # type: ignore[assignment]
        turn = await someone.ask("hello")
        await someone.pilot.press(*"/effort high", "enter")
        await someone.sees("Effort: high")
        await someone.pilot.press(*"/system Be brief.", "enter")
        await someone.sees("The model is told: Be brief.")
        await someone.pilot.press(*"/effort lots", "enter")
        await someone.sees("/effort takes low, medium, high, not lots.")
        assert someone.session.options == Told("high", "Be brief.")  # type: ignore[comparison-overlap]
        assert len(someone.session.turns) == 1
        turn.end()


async def test_what_changes_the_conversation_waits_for_the_turn_that_runs() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        says(turn, "Hello there.").close(True)
        await someone.sees("Hello there.")
        await someone.pilot.press(*"/new", "enter")
        await someone.sees("next: /new")
        turn.end()
        await someone.see(lambda: "Hello there." not in screen_text(someone.app))
        assert someone.app.turn is None

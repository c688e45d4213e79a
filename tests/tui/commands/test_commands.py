"""What a person asks for with a slash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.fake_app import Played, person, says, screen_text
from tools.types import Prompt, ServerState
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


async def test_what_a_command_does_has_a_column_of_its_own() -> None:
    async with person(size=(80, 60)) as someone:
        await someone.pilot.press("f1", "end")
        await someone.sees("/new")
        rows = screen_text(someone.app).splitlines()
        at = next(n for n, row in enumerate(rows) if "/new" in row)
        assert rows[at + 1].index("kept") == rows[at].index("begin another")


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


async def test_a_prompt_of_a_server_is_a_command() -> None:
    git = ServerState("git", "ready", ["log", "push"])
    async with person(Played(servers=[git, ServerState("web", "ready", ["open"])])) as someone:
        await someone.see(lambda: someone.app.talk.commands.find("git:review"))
        await someone.pilot.press(*"/git:re")
        await someone.sees("Look at a change.")
        await someone.pilot.press("enter", "enter")
        await someone.sees("It needs file behind its name.")
        await someone.pilot.press(*"/git:review 'a b.py' very closely", "enter")
        await someone.see(lambda: someone.session.turns)
        asked = "git review {'file': 'a b.py', 'how': 'very closely'}"
        assert someone.session.turns[0].prompt[0].text == asked
        someone.session.turns[0].end()


async def test_a_servers_prompts_are_learned_again() -> None:
    git = ServerState("git", "ready", [])
    async with person(Played(servers=[git])) as someone:
        host: Any = someone.session.runtime.host
        commands = someone.app.talk.commands
        await someone.see(lambda: commands.find("git:review"))
        host.review = Prompt("explain", "Tell what it does.", ())
        host.heard("git")
        await someone.see(lambda: commands.find("git:explain"))
        assert not commands.find("git:review") and commands.find("help")


async def test_tools_are_chosen_for_the_turns_to_come() -> None:
    git = ServerState("git", "ready", ["log", "push"])
    async with person(Played(servers=[git, ServerState("web", "ready", ["open"])])) as someone:
        session = someone.session
        offered = session.runtime.host.tools()
        assert session.toolset.of(offered) is None, "whatever there is"
        await someone.pilot.press(*"/tools git.log,web", "enter")
        await someone.sees("The model has: git.log, web.open.")
        await someone.sees("Not offered: git.push.")
        assert [tool.name for tool in session.toolset.of(offered) or ()] == ["log", "open"]
        await someone.pilot.press(*"/tools shell", "enter")
        await someone.sees("There is no tool shell here")
        await someone.pilot.press(*"/tools none", "enter")
        await someone.sees("The model has: no tools.")
        assert session.toolset.of(offered) == ()


async def test_what_is_being_written_is_laid_ahead_when_the_person_pauses() -> None:
    async with person() as someone:
        laid = someone.session.laid
        await someone.writes("hello there")  # key by key, a busy machine would pause in between
        await someone.see(lambda: laid == ["hello there"])
        turn = await someone.ask("")
        await someone.writes("and then")
        assert laid == ["hello there"]
        turn.end()
        await someone.see(lambda: someone.app.turn is None)
        await someone.writes("!")
        await someone.see(lambda: laid[-1] == "and then!")


async def test_who_looks_elsewhere_is_called_back() -> None:
    async with person() as someone:
        app, written = someone.app, list[str]()
        assert app._driver is not None
        app._driver.write = written.append  # type: ignore[method-assign, assignment]
        turn = await someone.ask("hello")
        app.app_focus = False
        says(turn, "The answer.").close(True)
        turn.end()
        await someone.see(lambda: "\x1b]9;agent: The answer.\x07" in "".join(written))

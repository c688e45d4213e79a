"""The slash commands, run in the app."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.project_instructions import ProjectInstructions
from agent.engine.protocol import Sampling
from agent.formats.detect import byte_format
from tests.support.fake_app import FakeSession, drive_app, emit_message, make_app, screen_text
from tools.types import Prompt, ServerState
from tui.state.command import parse_command
from tui.theme import THEMES


@pytest.mark.parametrize(
    ("text", "parsed"),
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
def test_parse_command_splits_name_and_argument(text: str, parsed: tuple[str, str] | None) -> None:
    assert parse_command(text) == parsed


@pytest.mark.parametrize(
    ("name", "nearest"), [("quti", "quit"), ("comp", "compact"), ("nosuch", None), ("xyz", None)]
)
async def test_unknown_command_suggests_nearest(name: str, nearest: str | None) -> None:
    assert make_app(FakeSession()).commands.nearest(name) == nearest


async def test_unknown_command_returns_to_prompt_with_notice() -> None:
    async with drive_app() as driver:
        await driver.pilot.press(*"/efort low", "enter")
        await driver.expect_text("There is no command /efort.")
        assert driver.app.prompt.text == "/efort low" and not driver.session.turns


@dataclass(frozen=True)
class FakeOptions:
    effort: str = "medium"
    instructions: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    project: ProjectInstructions = field(default_factory=ProjectInstructions)
    mode: str = "ask"


@pytest.mark.long
async def test_effort_and_system_apply_to_later_turns() -> None:
    async with drive_app() as driver:
        driver.session.options = FakeOptions()  # type: ignore[assignment]
        turn = await driver.ask("hello")
        await driver.pilot.press(*"/effort high", "enter")
        await driver.expect_text("Effort: high")
        await driver.pilot.press(*"/system Be brief.", "enter")
        await driver.expect_text("System instructions: Be brief.")
        await driver.pilot.press(*"/effort lots", "enter")
        await driver.expect_text("/effort takes low, medium, high, not lots.")
        assert driver.session.options == FakeOptions("high", "Be brief.")  # type: ignore[comparison-overlap]
        assert len(driver.session.turns) == 1
        turn.end()


async def test_effort_of_a_model_without_one_is_refused() -> None:
    async with drive_app() as driver:
        driver.session.options = FakeOptions()  # type: ignore[assignment]
        driver.session.runtime.format = byte_format("llama3")
        await driver.pilot.press(*"/effort high", "enter")
        await driver.expect_text(" has no reasoning effort that can be set.")
        assert driver.session.options == FakeOptions()  # type: ignore[comparison-overlap]


async def test_help_page_wraps_summaries_in_their_column() -> None:
    async with drive_app(size=(80, 60)) as driver:
        await driver.pilot.press("f1", "end")
        await driver.expect_text("/sampling")
        rows = screen_text(driver.app).splitlines()
        at = next(n for n, row in enumerate(rows) if "/sampling" in row)
        assert rows[at + 1].index("seed") == rows[at].index("set temperature")


async def test_new_conversation_waits_for_running_turn() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        emit_message(turn, "Hello there.").close(True)
        await driver.expect_text("Hello there.")
        await driver.pilot.press(*"/new", "enter")
        await driver.expect_text("queued: /new")
        turn.end()
        await driver.wait_for(lambda: "Hello there." not in screen_text(driver.app))
        assert driver.app.turn is None


async def test_server_prompt_runs_as_command() -> None:
    git = ServerState("git", "ready", ["log", "push"])
    async with drive_app(
        FakeSession(servers=[git, ServerState("web", "ready", ["open"])])
    ) as driver:
        await driver.wait_for(lambda: driver.app.commands.find("git:review"))
        await driver.pilot.press(*"/git:re")
        await driver.expect_text("Look at a change.")
        await driver.pilot.press("enter", "enter")
        await driver.expect_text("It needs file after its name.")
        await driver.pilot.press(*"/git:review 'a b.py' very closely", "enter")
        await driver.wait_for(lambda: driver.session.turns)
        command = "/git:review 'a b.py' very closely"
        text = "git review {'file': 'a b.py', 'how': 'very closely'}"
        block = f'<prompt name="git:review" lines="1">\n{text}\n</prompt>'
        assert driver.session.turns[0].prompt_text == f"{command}\n\n{block}"
        driver.session.turns[0].end()


async def test_server_resource_is_completed_and_attached() -> None:
    async with drive_app(FakeSession(servers=[ServerState("git", "ready", [])])) as driver:
        await driver.wait_for(lambda: driver.app.commands.resources)
        await driver.pilot.press(*"see @gi")
        await driver.expect_text("@git:")
        await driver.pilot.press("enter")
        await driver.expect_text("1,200 bytes", "git://blob/{path}")
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.app.prompt.text == "see @git:git://log/HEAD ")
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.session.turns)
        text = "[resource git://log/HEAD]\nfirst commit"
        block = f'<prompt name="git:git://log/HEAD" lines="2">\n{text}\n</prompt>'
        assert driver.session.turns[0].prompt_text == f"see @git:git://log/HEAD \n\n{block}"
        await driver.expect_text("git:git://log/HEAD · 2 lines")
        driver.session.turns[0].end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.type_text("see @git:git://other.", "enter")
        await driver.expect_text("Cannot read the resource")
        assert driver.app.prompt.text == "see @git:git://other."


async def test_server_prompt_edited_replaces_turn() -> None:
    async with drive_app(FakeSession(servers=[ServerState("git", "ready", [])])) as driver:
        await driver.wait_for(lambda: driver.app.commands.find("git:review"))
        (await driver.ask("/git:review a.py")).end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press(*"/edit", "enter")
        await driver.expect_text("editing")
        assert driver.app.prompt.text == "/git:review a.py"
        turn = await driver.ask(" closely")
        assert "/git:review a.py closely" in turn.prompt_text
        assert "{'file': 'a.py', 'how': 'closely'}" in turn.prompt_text
        await driver.expect_text("❯ /git:review a.py closely", gone="editing")
        assert len(driver.app.transcript.own_turns) == 1
        turn.end()


async def test_server_prompts_change_replaces_commands() -> None:
    git = ServerState("git", "ready", [])
    async with drive_app(FakeSession(servers=[git])) as driver:
        host: Any = driver.session.runtime.host
        commands = driver.app.commands
        await driver.wait_for(lambda: commands.find("git:review"))
        host.review = Prompt("explain", "Tell what it does.", ())
        host.on_change("git")
        await driver.wait_for(lambda: commands.find("git:explain"))
        assert not commands.find("git:review") and commands.find("help")


async def test_tools_command_selects_tools_of_later_turns() -> None:
    git = ServerState("git", "ready", ["log", "push"])
    async with drive_app(
        FakeSession(servers=[git, ServerState("web", "ready", ["open"])])
    ) as driver:
        session = driver.session
        offered = session.runtime.host.tools()
        assert session.next_prompt.tool_selection.selected(offered) is None, "whatever there is"
        await driver.pilot.press(*"/tools git.log,web", "enter")
        await driver.expect_text("Tools on: git.log, web.open.")
        await driver.expect_text("Off: git.push.")
        assert [
            tool.name for tool in session.next_prompt.tool_selection.selected(offered) or ()
        ] == ["log", "open"]
        await driver.pilot.press(*"/tools shell", "enter")
        await driver.expect_text("There is no tool shell here")
        await driver.pilot.press(*"/tools none", "enter")
        await driver.expect_text("Tools on: no tools.")
        assert session.next_prompt.tool_selection.selected(offered) == ()


async def test_draft_is_prefetched_after_pause_in_typing() -> None:
    async with drive_app() as driver:
        prefetched = driver.session.next_prompt.prefetched
        await driver.type_text("hello there")  # key by key, a busy machine would pause in between
        await driver.wait_for(lambda: prefetched == ["hello there"])
        turn = await driver.ask("")
        await driver.type_text("and then")
        assert prefetched == ["hello there"]
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.type_text("!")
        await driver.wait_for(lambda: prefetched[-1] == "and then!")


async def test_answer_in_unfocused_terminal_sends_notification() -> None:
    async with drive_app() as driver:
        app, output = driver.app, list[str]()
        assert app._driver is not None
        app._driver.write = output.append  # type: ignore[method-assign, assignment]
        turn = await driver.ask("hello")
        app.app_focus = False
        emit_message(turn, "The answer.").close(True)
        turn.end()
        await driver.wait_for(lambda: "\x1b]9;agent: The answer.\x07" in "".join(output))


async def test_export_unknown_format_writes_nothing(tmp_path: Path) -> None:
    async with drive_app(FakeSession(root=tmp_path)) as driver:
        for argument in ("pdf", "talk.pdf", "notes"):
            await driver.pilot.press(*f"/export {argument}", "enter")
            await driver.expect_text("is not an export format; use one of md, html, json, tokens.")
            await driver.app.transcript.clear()
        assert not list(tmp_path.iterdir())


async def test_export_through_link_of_folder_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "talk.md").symlink_to(tmp_path / "mine")
    async with drive_app(FakeSession(root=tmp_path), size=(250, 30)) as driver:
        (await driver.ask("hello")).end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press(*"/export talk.md", "enter")
        await driver.expect_text("is a link to")
        assert not (tmp_path / "mine").exists()


async def test_effort_and_theme_without_value_offer_them() -> None:
    async with drive_app() as driver:
        driver.session.options = FakeOptions()
        await driver.pilot.press(*"/effort", "enter")
        await driver.expect_text("answers sooner", "thinks longer")
        await driver.pilot.press("down", "enter")
        await driver.wait_for(lambda: driver.session.options.effort == "high")
        await driver.pilot.press(*"/theme", "enter")
        await driver.expect_text("high-contrast")
        await driver.pilot.press("escape")
        await driver.pilot.press(*"/theme", "enter", "down", "enter")
        await driver.wait_for(lambda: driver.app.theme == THEMES[1].name)


async def test_sampling_changes_later_turns() -> None:
    async with drive_app() as driver:
        driver.session.options = FakeOptions()
        await driver.pilot.press(*"/sampling temperature=0.5 top_k=40", "enter")
        await driver.expect_text("Sampling: temperature 0.5")
        sampling = driver.session.options.sampling
        assert (sampling.temperature, sampling.top_k) == (0.5, 40)
        await driver.pilot.press(*"/sampling temperature=", "escape", "enter")
        await driver.expect_text("temperature needs a number")
        await driver.pilot.press(*"/sampling temperature 0.5 top_k= 40", "enter")
        assert driver.session.options.sampling == sampling
        await driver.pilot.press(*"/sampling top_p=9", "enter")
        await driver.expect_text("top_p must be a number from 0 to 1")
        await driver.pilot.press(*"/sampling heat=1", "enter")
        await driver.expect_text("has no value heat")
        assert driver.session.options.sampling == sampling


async def test_mode_by_command_and_key_and_accepting_a_plan(open_app: Any) -> None:
    async with open_app() as driver:
        app = driver.app
        await driver.pilot.press("shift+tab")
        await driver.wait_for(lambda: app.session.options.mode == "plan")
        await driver.expect_text("plan")
        await driver.pilot.press(*"go", "enter")
        await driver.expect_text("/accept leaves plan mode and has this plan carried out.")
        await driver.pilot.press(*"/accept", "enter")
        await driver.expect_text("Carry out the plan.")
        await driver.wait_for(lambda: app.session.options.mode == "ask" and app.turn is None)
        roles = [entry.role for entry in app.session.conversation.entries]
        assert roles == ["developer", "user", "assistant", "user", "assistant"]
        await driver.pilot.press(*"/mode accept-edits", "enter")
        await driver.expect_text("accept-edits")
        await driver.pilot.press("shift+tab")
        await driver.wait_for(lambda: app.session.options.mode == "ask")
        await driver.pilot.press(*"/mode wild", "enter")
        await driver.expect_text("/mode takes ask, plan, accept-edits, not wild.")
        await driver.pilot.press("ctrl+u", *"/accept", "enter")
        await driver.expect_text("There is no plan to accept")

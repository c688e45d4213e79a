"""Slash commands of files: the person's own, and a project's."""

import os
from pathlib import Path

import pytest

from agent.conversation.attachments import split_attachments
from tests.support.fake_app import FakeSession, drive_app
from tools.builtin.skills import Skill, SkillsServer
from tools.config.servers import ServerConfig
from tui.controllers.prompt_commands import MAX_FILE_BYTES, CommandFile


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's commands."""
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "config" / "commands"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def project_folder(tmp_path: Path) -> Path:
    """The commands of the project ``project``, a repository."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    folder = tmp_path / "project" / ".agent" / "commands"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("text", "argument", "expanded"),
    [
        ("Fix $1 in $2.", "'the bug' a.py more", "Fix the bug in a.py."),
        ("Do $ARGUMENTS now: $3!", "a $1 'b", "Do a $1 'b now: 'b!"),
        ("Pay $10 and $ARGUMENTSX", "x", "Pay $10 and $ARGUMENTSX\n\nx"),
        ("Plain.", "", "Plain."),
        ("Only $1", "", "Only "),
    ],
)
def test_expand_arguments(text: str, argument: str, expanded: str) -> None:
    assert CommandFile("x", "x.md", text, "", "", own=True).expand(argument) == expanded


async def test_own_command_completes_and_sends_its_text(own_folder: Path, tmp_path: Path) -> None:
    (own_folder / "review.md").write_text(
        "---\ndescription: 'Look for mistakes'\nargument-hint: FILE\nx: y\n---\n\nReview @$1 well.\n"
    )
    (tmp_path / "a.py").write_text("print()\n")
    async with drive_app(FakeSession(root=tmp_path), size=(100, 30)) as driver:
        await driver.type_text("/rev")
        await driver.expect_text("/review", "FILE  Look for mistakes (your own)")
        await driver.pilot.press("ctrl+c")
        turn = await driver.ask("/review a.py")
        assert turn.prompt_text.startswith("Review @a.py well.\n\n<file path=")
        await driver.pilot.press("f1")
        await driver.pilot.press("end")
        await driver.expect_text("/review FILE")


async def test_project_command_text_is_attached(project_folder: Path, own_folder: Path) -> None:
    """Its text is the repository's: it is no word of the person's, and attaches no file."""
    (project_folder / "ship.md").write_text("Ship $ARGUMENTS. See @.env and evil.example")
    root = project_folder.parents[1]
    (root / ".env").write_text("KEY=1")
    (root / "inner").mkdir()
    async with drive_app(FakeSession(root=root / "inner")) as driver:
        await driver.wait_for(lambda: driver.app.commands.find("ship"))
        command = driver.app.commands.find("ship")
        assert command is not None and command.summary.endswith("(this project's)")
        turn = await driver.ask("/ship it")
        words, (attachment,) = split_attachments(turn.prompt_text)
        assert words == "/ship it" and attachment.kind == "prompt"
        assert attachment.source == ".agent/commands/ship.md"
        assert attachment.text == "Ship it. See @.env and evil.example"


async def test_unusable_command_files_left_out_with_notice(
    own_folder: Path, project_folder: Path
) -> None:
    (own_folder / "help.md").write_text("not this one")
    (own_folder / "long.md").write_text("x" * (MAX_FILE_BYTES + 1))
    (own_folder / "odd name.md").write_text("x")
    (own_folder / "mine.md").write_text("mine")
    os.mkfifo(own_folder / "pipe.md")
    (project_folder / "mine.md").write_text("theirs")
    (project_folder / "latin.md").write_bytes(b"\xff")
    (project_folder / "out.md").symlink_to(own_folder / "mine.md")
    async with drive_app(FakeSession(root=project_folder.parents[1]), size=(250, 40)) as driver:
        await driver.expect_text(
            "help.md is left out: /help is built in", "long.md is left out: it is longer than 64 KiB",
            "only letters", "regular file", "/mine is another file's", "UTF-8 text",
            "leads out of its project",
        )  # fmt: skip
        await driver.wait_for(lambda: driver.app.commands.find("mine"))
        command = driver.app.commands.find("mine")
        assert command is not None and command.summary == "mine (your own)"


async def test_skill_is_a_command_that_attaches_its_instructions(
    own_folder: Path, tmp_path: Path
) -> None:
    skill = Skill("notes", "Write notes.", tmp_path / "notes", "Be brief: $1", own=True)
    config = ServerConfig("skills", builtin=SkillsServer([skill]))

    class SkilledSession(FakeSession):
        async def begin(self) -> None:
            await super().begin()
            self.runtime.host.server_config = lambda name: config  # type: ignore[method-assign]

    async with drive_app(SkilledSession(root=tmp_path), size=(100, 30)) as driver:
        await driver.type_text("/not")
        await driver.expect_text("/notes", "[TASK]  Write notes.")
        await driver.pilot.press("ctrl+c")
        turn = await driver.ask("/notes v2")
        words, (attachment,) = split_attachments(turn.prompt_text)
        assert words == "/notes v2"
        assert (attachment.source, attachment.text) == (str(skill.folder), "Be brief: v2")

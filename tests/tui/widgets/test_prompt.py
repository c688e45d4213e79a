"""Writing a prompt: what it can go on with, files, long pastes, the person's own editor."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from textual import events

from agent.errors import UserError
from tests.support.fake_app import Person, Played, person, screen_text
from tui.util.attachments import LARGEST, attach, attached, folded
from tui.util.file_index import Files


def sent(someone: Person) -> str:
    return str(someone.session.turns[-1].prompt[0].text)


async def test_a_command_is_completed_and_run() -> None:
    async with person() as someone:
        await someone.pilot.press("/")
        await someone.sees("how long the model thinks")
        await someone.pilot.press(*"ef", "tab")
        await someone.see(lambda: someone.app.prompt.text == "/effort ")
        await someone.sees("thinks long")
        await someone.pilot.press("down", "escape")
        await someone.see(lambda: "thinks long" not in screen_text(someone.app))
        await someone.pilot.press("ctrl+c")
        await someone.see(lambda: someone.app.prompt.text == "")
        await someone.pilot.press(*"/hel", "enter")
        await someone.sees("Writing")


async def test_what_is_offered_hides_nothing_that_is_written() -> None:
    async with person(size=(60, 15)) as someone:
        await someone.pilot.press("/")
        await someone.sees("/branch")
        rows = screen_text(someone.app).splitlines()
        assert [row.strip(" │") for row in rows[-3:-2]] == ["/"]
        assert len([row for row in rows if row.startswith("│ /")]) == 8 + 1


async def test_a_file_is_found_named_and_sent_with_its_text(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "my notes.txt").write_text("one\ntwo\n")
    async with person(Played(root=tmp_path)) as someone:
        await someone.pilot.press(*"see @not")
        await someone.sees('@"src/my notes.txt"')
        await someone.pilot.press("enter")
        await someone.see(lambda: someone.app.prompt.text == 'see @"src/my notes.txt" ')
        await someone.pilot.press("enter")
        await someone.see(lambda: someone.session.turns)
        assert "one\ntwo\n</file>" in sent(someone)
        await someone.sees("⎘ src/my notes.txt · 2 lines")
        assert "one" not in screen_text(someone.app)
        someone.session.turns[-1].end()


async def test_a_file_that_cannot_be_attached_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"\x89PNG\0")
    async with person(Played(root=tmp_path)) as someone:
        someone.app.prompt.insert("what is @x.png?")
        await someone.pilot.press("enter")
        await someone.sees("@x.png cannot be attached")
        assert someone.app.prompt.text == "what is @x.png?" and not someone.session.turns


def test_only_what_is_a_file_is_attached(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("text with </file> in it")
    (tmp_path / "long").write_text("x" * (LARGEST + 1))
    text = "ask @anna, me@a.py and (see @a.py), @a.py."
    whole = attach(text, tmp_path)
    assert whole.count("text with </file> in it") == 1
    assert folded(whole) == text and attached(whole) == [("a.py", 1)]
    with pytest.raises(UserError, match="@long is too long to attach"):
        attach("@long", tmp_path)


def test_what_git_ignores_is_not_offered(tmp_path: Path) -> None:
    for name in ("app.py", "test_app.py", "app.pyc", ".gitignore"):
        (tmp_path / name).write_text("*.pyc\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "app.js").touch()
    files = Files(tmp_path)
    files.look()
    assert files.best("app", 9) == ["app.py", "app.pyc", "test_app.py"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    files.look()
    assert files.best("app.p", 9) == ["app.py", "test_app.py"]
    assert files.best("tap", 9) == ["test_app.py"], "letters in order"
    assert files.best(f"{tmp_path}/no", 9) == [f"{tmp_path}/node_modules/"]


async def test_a_long_paste_is_a_word_until_it_is_sent() -> None:
    page = "\n".join(f"line\t{n}" for n in range(10_000))
    async with person() as someone:
        await someone.pilot.press(*"read ")
        someone.app.post_message(events.Paste(page))
        await someone.sees("read [pasted #1: 10,000 lines]")
        someone.app.post_message(events.Paste("x" * 5000))
        await someone.sees("[pasted #2: 5,000 characters]")
        await someone.pilot.press("backspace")
        await someone.see(lambda: someone.app.prompt.text == "read [pasted #1: 10,000 lines]")
        await someone.pilot.press("enter")
        await someone.see(lambda: someone.session.turns)
        assert sent(someone) == f"read {page}"
        someone.session.turns[-1].end()
        await someone.pilot.press("up")
        await someone.see(lambda: someone.app.prompt.whole == f"read {page}")
        assert len(someone.app.prompt.text) < 50

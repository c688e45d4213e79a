"""/undo, /redo, /rewind and /diff take back what tools have changed in files, in the real app."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_app import ScreenDriver, screen_text
from tests.support.scripts import call, final
from tools.sandbox.isolation import best_isolation
from tui.screens.changes import ChangesScreen

LINES = "".join(f"line {number}\n" for number in range(1, 41))
EDITED = LINES.replace("line 2\n", "second\n").replace("line 30\n", "thirtieth\n")
CREATED = "def add(a, b):\n    return a + b\n"


def launch(folder: Path, *replies: str) -> dict[str, Any]:
    script = folder / "replies.jsonl"
    script.write_text("".join(json.dumps({"markup": reply}) + "\n" for reply in replies))
    (folder / "root").mkdir()
    (folder / "root" / "a.txt").write_text(LINES)
    root = folder / "root"
    return {"engine": f"script:{script}", "tools": "files,shell", "approve": "all", "root": root}


async def ask(driver: ScreenDriver, text: str, answer: str) -> None:
    app: Any = driver.app
    await driver.pilot.press(*text, "enter")
    await driver.wait_for(lambda: app.turn is None and answer in screen_text(app))


async def command(driver: ScreenDriver, text: str, *expected: str) -> None:
    await driver.pilot.press(*text, "enter")
    await driver.expect_text(*expected)


WRITES = (
    call("files__write", path="a.txt", content=EDITED),
    call("files__write", path="sub/add.py", content=CREATED),
    final("Edited."),
    call("files__write", path="a.txt", content="all new\n"),
    final("Replaced."),
    final("Thanks."),
)


async def test_undo_and_redo_by_turn(open_app: Callable[..., Any], tmp_path: Path) -> None:
    file, new = tmp_path / "root" / "a.txt", tmp_path / "root" / "sub" / "add.py"
    async with open_app(size=(100, 40), launch=launch(tmp_path, *WRITES)) as driver:
        app: Any = driver.app
        await driver.wait_for(lambda: app.session_ready)
        await command(driver, "/undo", "There is nothing to undo")
        await ask(driver, "edit", "Edited.")
        await ask(driver, "replace", "Replaced.")
        await command(driver, "/undo", "You took back changes: changed a.txt.")
        assert file.read_text() == EDITED
        await command(driver, "/undo", "changed a.txt; deleted sub; deleted sub/add.py")
        assert file.read_text() == LINES and not new.parent.exists()
        await command(driver, "/redo", "made again changes: changed a.txt; created sub")
        assert file.read_text() == EDITED and new.read_text() == CREATED
        file.write_text("mine\n")
        await command(driver, "/redo", "a.txt stays as it is: it was changed since")
        assert file.read_text() == "mine\n"
        await ask(driver, "thanks", "Thanks.")
        prompt = app.transcript.own_turns[-1].raw_prompt
        assert prompt.startswith("thanks\n\n[The user took back changes of files: changed a.txt.]")


async def test_rewind_asks_for_conversation_files_or_both(
    open_app: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "root" / "a.txt"
    async with open_app(size=(100, 40), launch=launch(tmp_path, *WRITES)) as driver:
        app: Any = driver.app
        await driver.wait_for(lambda: app.session_ready)
        app.clock = lambda: (
            100.0
        )  # both within the time of a double Esc, however busy this machine is
        await driver.pilot.press("escape", "escape")  # nothing to go back to
        await ask(driver, "edit", "Edited.")
        await ask(driver, "replace", "Replaced.")
        await driver.pilot.press("escape")
        await driver.expect_text("Esc again: go back to a message")
        await driver.pilot.press("escape")
        await driver.expect_text("Go back to before message", "1  edit", "2  replace")
        await driver.pilot.press("enter")
        await driver.expect_text("both", "conversation", "files")
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: app.prompt.text == "replace")
        assert file.read_text() == EDITED and len(app.transcript.own_turns) == 1
        await driver.pilot.press("ctrl+u")
        await driver.pilot.press("ctrl+up", "u")
        await driver.expect_text("Go back to before message 1")
        await driver.pilot.press("down", "down", "enter")
        await driver.wait_for(lambda: file.read_text() == LINES)
        assert len(app.transcript.own_turns) == 1 and app.prompt.text == ""
        app.transcript.scroll_to_live_end()
        await command(driver, "/rewind 1 all", "goes back with one of both")
        await command(driver, "/rewind 9", "There is no message 9")


async def test_diff_shows_and_takes_back_turns_files_and_hunks(
    open_app: Callable[..., Any], tmp_path: Path
) -> None:
    file, new = tmp_path / "root" / "a.txt", tmp_path / "root" / "sub" / "add.py"
    async with open_app(size=(120, 40), launch=launch(tmp_path, *WRITES[:3])) as driver:
        app: Any = driver.app
        await driver.wait_for(lambda: app.session_ready)
        await ask(driver, "edit", "Edited.")
        await command(driver, "/diff", "1 ❯ edit", "M a.txt  +2 −2", "A sub/add.py  +2 −0")
        assert isinstance(app.screen, ChangesScreen)
        await driver.pilot.press("down")
        await driver.expect_text(
            " 2    - line 2", "    2 + second", "30    - line 30", "   30 + thirtieth"
        )
        await driver.pilot.press("down", "down")
        await driver.expect_text("30    - line 30", gone="+ second")
        await driver.pilot.press("enter")
        await driver.expect_text("Take back this part of a.txt?")
        await driver.pilot.press("y")
        await driver.expect_text("M a.txt  +1 −1")
        assert file.read_text() == EDITED.replace("thirtieth\n", "line 30\n")
        await driver.pilot.press(*"add")
        await driver.expect_text("A sub/add.py", gone="M a.txt")
        await driver.pilot.press("enter")
        await driver.expect_text("Take back what this turn has changed in sub/add.py?")
        await driver.pilot.press("y")
        await driver.wait_for(lambda: not new.exists())
        await driver.pilot.press("escape")
        await command(driver, "/undo", "changed a.txt")
        assert file.read_text() == LINES
        await command(driver, "/diff", "No tool has changed a file in this conversation.")


@pytest.mark.long
async def test_commands_are_undone_after_a_restart(
    open_app: Callable[..., Any], tmp_path: Path
) -> None:
    if not best_isolation().ok:
        pytest.skip("commands do not run here")
    line = "mv a.txt b.txt; mkdir d; echo new > d/c"
    replies = (call("container.exec", cmd=["sh", "-c", line]), final("Moved."))
    options = launch(tmp_path, *replies)
    async with open_app(size=(100, 40), launch=options) as driver:
        app: Any = driver.app
        await driver.wait_for(lambda: app.session_ready)
        await ask(driver, "move", "Moved.")
        conversation = app.session.conversation.id
    root = tmp_path / "root"
    assert sorted(path.name for path in root.iterdir()) == ["b.txt", "d"]
    async with open_app(size=(100, 40), launch=options) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session_ready)
        await command(driver, f"/resume {conversation[5:13]}", "Moved.")
        await command(driver, "/undo", "created a.txt", "deleted d/c")
    assert [path.name for path in root.iterdir()] == ["a.txt"]

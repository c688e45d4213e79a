"""``!command``: the person's own shell commands, really run in the app."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.fake_app import FakeSession, drive_app
from tests.support.waiting import wait_until
from tui.state.shell_run import MAX_HEAD_BYTES, MAX_TAIL_BYTES, ShellRun


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")


def is_running(command: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"^{command}$"], capture_output=True).returncode == 0


async def test_shell_command_output_goes_with_next_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with drive_app(FakeSession(root=tmp_path)) as driver:
        await driver.type_text("!cat a.txt; printf '\\033[31mred\\n' >&2; read x; false", "enter")
        await driver.expect_text("one", "red", "exit code 1 · goes with the next prompt")
        assert not driver.session.turns
        turn = await driver.ask("Explain.")
        assert turn.prompt_text == (
            "Explain.\n\n"
            '<command run="cat a.txt; printf \'\\033[31mred\\n\' >&2; read x; false" lines="3">\n'
            "one\nred\n[exit code 1]\n</command>"
        )
        await driver.expect_text("❯ Explain.", "⎘ !cat a.txt")
        turn.end()
        assert (await driver.ask("And now?")).prompt_text == "And now?", "it is sent once"


async def test_shell_output_removed_by_escape() -> None:
    async with drive_app() as driver:
        await driver.type_text("!echo first", "enter")
        await driver.expect_text("first", "goes with the next prompt")
        await driver.pilot.press("escape")
        await driver.expect_text("exit code 0 · not sent")
        assert (await driver.ask("hello")).prompt_text == "hello"


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_shell_command_interrupted_with_all_it_started(key: str) -> None:
    async with drive_app() as driver:
        await driver.type_text("!sleep 98765 & sleep 98766; echo not here", "enter")
        await driver.wait_for(lambda: is_running("sleep 98765") and is_running("sleep 98766"))
        await driver.expect_text("running · Esc stops it")
        await driver.pilot.press(key)
        await driver.expect_text("interrupted", gone="running")
        await driver.wait_for(lambda: not is_running("sleep 9876[56]"))


async def test_shell_command_deaf_to_interrupt_is_killed() -> None:
    async with drive_app() as driver:
        await driver.type_text("!trap '' INT; echo ready; while :; do sleep 0.1; done", "enter")
        await driver.expect_text("ready")
        await driver.pilot.press("escape", "escape")
        await driver.expect_text("interrupted", gone="running ·")


async def test_shell_endless_output_bounded_and_stopped() -> None:
    async with drive_app() as driver:
        await driver.type_text("!yes", "enter")
        await driver.expect_text("running · Esc stops it")
        (entries,) = (s for s in driver.app.transcript._sections if hasattr(s, "run"))
        await driver.wait_for(lambda: "bytes dropped" in entries.run.text)
        await driver.type_text("typed meanwhile")
        assert driver.app.prompt.text == "typed meanwhile"
        await driver.pilot.press("escape")
        await driver.expect_text("interrupted")
        assert len(entries.run.text) < MAX_HEAD_BYTES + MAX_TAIL_BYTES + 100


async def test_shell_command_runs_while_turn_streams() -> None:
    async with drive_app(size=(100, 40)) as driver:
        turn = await driver.ask("hello")
        await driver.type_text("!echo meanwhile", "enter")
        await driver.expect_text("exit code 0 · goes with the next prompt")
        await driver.type_text("steer by this", "ctrl+s")
        await driver.wait_for(lambda: turn.steering)
        assert "meanwhile\n[exit code 0]" in turn.steering[0] and turn.stopped is None


async def test_shell_mark_alone_and_second_command_refused() -> None:
    async with drive_app() as driver:
        await driver.type_text("!", "enter")
        await driver.expect_text("Write a shell command behind the !")
        await driver.pilot.press("ctrl+c")
        await driver.type_text("!sleep 98767", "enter")
        await driver.expect_text("running · Esc stops it")
        await driver.type_text("!echo two", "enter")
        await driver.expect_text("A command is running")
        assert driver.app.prompt.text == "!echo two"


async def test_shell_command_ends_with_app() -> None:
    async with drive_app() as driver:
        command = f"sleep 98768.{os.getpid()}"  # another run of the tests has another
        await driver.type_text(f"!{command}", "enter")
        await driver.wait_for(lambda: is_running(command))
    await driver.app.shut_down()
    await wait_until(lambda: not is_running(command))  # it was killed, and goes


async def test_shell_program_that_wants_a_terminal_fails() -> None:
    async with drive_app() as driver:
        await driver.type_text("!test -t 0 || test -t 1 || cat < /dev/tty", "enter")
        await driver.expect_text("exit code", gone="running")


def test_shell_run_text_of_progress_and_binary() -> None:
    run = ShellRun("x")
    run.add(b"10%\r20%\r100%\r\ndone\x1b]0;title\x07 \xff\x00\n")
    assert run.text == "100%\ndone \ufffd\ufffd"

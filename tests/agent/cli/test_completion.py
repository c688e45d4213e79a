"""Completion in a real bash, and what the app says about resuming when it ends."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cli.completion import complete_tools, name_app_command
from tests.support import forks
from tests.support.program import RunAgent
from tests.support.terminal import start_program

LEAVE = "\x11"
ANSWER = "<|channel|>final<|message|>Fine.<|return|>"
PROGRAM = ("--help", "--version")
NAMED_SHELL = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
"""typer takes the shell's name then, and does not look at what it was started from."""
pytestmark = pytest.mark.slow
Complete = Callable[..., list[str]]


@pytest.fixture
def complete(agent: RunAgent, home: Path, tmp_path: Path) -> Complete:
    """What bash proposes for the last of these words, in the folder ``tmp_path``."""
    program = tmp_path / "bin" / "agent"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(forks.relay())} "$@"\n')
    program.chmod(0o755)
    source = agent("--show-completion", "bash", env=NAMED_SHELL).out
    assert "_agent_completion" in source

    def run(*words: str) -> list[str]:
        setup = f'COMP_WORDS=("$@"); COMP_CWORD={len(words) - 1}; _agent_completion agent'
        line = f"{source}\n{setup}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "--norc", "-c", line, "bash", *words],
            cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home), "PATH": path},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return run


def test_bash_completes_commands_options_and_values(complete: Complete) -> None:
    assert complete("agent", "se") == ["serve", "sessions"]
    assert complete("agent", "run", "--max-o") == ["--max-output-tokens"]
    assert complete("agent", "run", "--effort", "") == ["low", "medium", "high"]
    assert complete("agent", "run", "--model", "gpt-oss-1") == ["gpt-oss-120b"]
    assert complete("agent", "models", "default", "ti") == ["tiny"]


def test_bash_completes_options_of_app_without_command(complete: Complete) -> None:
    assert sorted(complete("agent", "--mode")) == ["--mode", "--model"]
    assert complete("agent", "-c", "--tools", "py") == ["python"]
    assert complete("agent", "--ver") == ["--version"]


def test_bash_completes_sessions_and_servers(
    complete: Complete, agent: RunAgent, script: Callable[..., str]
) -> None:
    assert complete("agent", "sessions", "show", "") == []
    agent("run", "first", "--engine", script(ANSWER))
    agent("mcp", "add", "clock", "--", "clock")
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    short = row["id"].removeprefix("conv_")[:8]
    assert complete("agent", "sessions", "show", "") == [short]
    assert complete("agent", "--resume", short[:3]) == [short]
    assert complete("agent", "mcp", "inspect", "") == ["clock"]
    assert complete("agent", "run", "--tools", "files,c") == ["files,clock"]


def test_bash_completion_with_wrong_files_proposes_nothing(complete: Complete, home: Path) -> None:
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text("[")
    assert complete("agent", "run", "--model", "") == []


def test_complete_tools_leaves_out_named() -> None:
    assert "python,files" in [word for word, _ in complete_tools("python,")]
    assert "python,python" not in [word for word, _ in complete_tools("python,")]


def test_name_app_command_leaves_commands_alone() -> None:
    for line in ("agent", "agent run --mo", "agent --vers", ""):
        environment = {"_TYPER_COMPLETE_ARGS": line}
        name_app_command(environment, PROGRAM)
        assert environment == {"_TYPER_COMPLETE_ARGS": line}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_other_shells(agent: RunAgent, shell: str) -> None:
    source = agent("--show-completion", shell, env=NAMED_SHELL)
    assert source.code == 0 and f"complete_{shell}" in source.out
    words = {"_AGENT_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "agent --eff"}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert "--effort" in agent(env={**words, **action}).out


def test_install_completion_writes_into_home(agent: RunAgent, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), **NAMED_SHELL}
    installed = agent("--install-completion", "fish", env=environment)
    assert installed.code == 0
    assert "agent" in (tmp_path / ".config/fish/completions/agent.fish").read_text()


# --- resuming ---


def test_run_continue_has_short_option(agent: RunAgent, script: Callable[..., str]) -> None:
    for options in ((), ("-c",)):
        assert agent("run", "go", *options, "--engine", script(ANSWER)).code == 0
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    assert row["turns"] == 2


@pytest.mark.long
@pytest.mark.parametrize("command", [(), ("chat",)])
def test_app_end_says_how_to_resume(
    home: Path, tmp_path: Path, agent: RunAgent, command: tuple[str, ...]
) -> None:
    with start_program(*command, "--model", "tiny", home=home, cwd=tmp_path / "work") as terminal:
        terminal.wait_for("○ ready")
        terminal.press("hello\r")
        terminal.wait_for(lambda text: "❯ hello" in text and "○ ready" in text)
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    short = row["id"].removeprefix("conv_")[:8]
    assert f"Resume this conversation with: agent --resume {short}" in terminal.painted_text
    assert agent("run", "more", "--resume", short, "--temperature", "0").code == 0


@pytest.mark.long
def test_app_end_without_turn_says_nothing(
    home: Path, tmp_path: Path, script: Callable[..., str], agent: RunAgent
) -> None:
    agent("run", "go", "--engine", script(ANSWER))
    with start_program(
        "-c", "--engine", script(ANSWER), home=home, cwd=tmp_path / "work"
    ) as terminal:
        terminal.wait_for("○ ready")
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0
    assert "Resume" not in terminal.painted_text

"""Help, versions, `agent parse` and `agent doctor`; what holds for all commands."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from agent.cli.main import app
from tests.manual import manual
from tests.support.program import PROBE, ROOT, RunAgent
from tests.support.waiting import HANG_SECONDS


@pytest.mark.parametrize("command", [(), ("run",), ("parse",), ("doctor",), ("models",)])
def test_help_prints_usage(agent: RunAgent, command: tuple[str, ...]) -> None:
    ran = agent(*command, "--help")
    assert ran.code == 0 and ran.out.startswith("Usage: agent")


def test_help_every_command_has_example() -> None:
    def with_subcommands(command: Any) -> Iterator[Any]:
        yield command
        for subcommand in getattr(command, "commands", {}).values():
            yield from with_subcommands(subcommand)

    commands = with_subcommands(get_command(app))
    assert not [command.name for command in commands if "Example" not in (command.epilog or "")]


def test_manual_is_made_of_the_help_texts() -> None:
    page = manual()
    assert ".SH NAME" in page and "\\-\\-max\\-output\\-tokens" in page
    assert (ROOT / "docs" / "agent.1").read_text() == page, "make man writes it again"


@pytest.mark.parametrize("command", ["models", "mcp", "sessions"])
def test_command_group_alone_prints_usage(agent: RunAgent, command: str) -> None:
    ran = agent(command)
    assert ran.code == 2 and ran.out == "" and ran.err.startswith(f"Usage: agent {command}")


@pytest.mark.parametrize("command", ["parse", "models list", "run hello --json-events", "run"])
def test_stdio_closed_reads_as_empty(home: Path, tmp_path: Path, command: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -P -m agent {command} <&- >&-"],
        cwd=tmp_path,
        env={**os.environ, "AGENT_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    empty = command == "run"
    assert done.returncode == (2 if empty else 0) and ("is empty" in done.stderr) == empty
    assert "went wrong" not in done.stderr


@pytest.mark.parametrize("option", ["--help", "--version", "-V"])
def test_help_and_version_import_nothing_heavy(option: str) -> None:
    code = (
        "import sys\nfrom agent.__main__ import main\n"
        f"sys.argv = ['agent', '{option}']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'llama_cpp', 'mcp', 'openai_harmony', 'textual', 'pydantic', 'numpy', 'rich'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("prompt", "unneeded", "stderr"),
    [
        ("hello", ("llguidance", "mcp"), ""),
        ("What is 12*34?", ("llguidance",), "code_interpreter.python"),
    ],
)
def test_run_without_calls_skips_unneeded_imports(
    home: Path, prompt: str, unneeded: tuple[str, ...], stderr: str
) -> None:
    code = (
        "import sys\nfrom agent.__main__ import main\n"
        f"sys.argv = ['agent', 'run', {prompt!r}, '--temperature', '0']\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        f"sys.exit(' '.join({set(unneeded)!r} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "AGENT_HOME": str(home)},
    )
    assert done.returncode == 0 and done.stdout and stderr in done.stderr, done.stderr


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_prints_one_line(agent: RunAgent, option: str) -> None:
    ran = agent(option)
    assert ran.code == 0 and re.fullmatch(r"agent \d+\.\d+\.\d+\n", ran.out), ran


def test_parse_ids_and_markup_same_segments(agent: RunAgent) -> None:
    ids = agent("parse", stdin="[200005,17196,200008,525,200002]\n")
    text = agent("parse", "--text", stdin="<|channel|>final<|message|>ok<|return|>")
    assert ids.code == text.code == 0
    segments = json.loads(ids.out)["segments"]
    assert [s for s in segments if s["kind"] != "stop"] == [
        {"kind": "final", "recipient": None, "raw_recipient": None, "text": "ok", "complete": True}
    ]
    assert json.loads(text.out)["segments"] == segments


def test_parse_wrong_line_reported_in_place(agent: RunAgent) -> None:
    ran = agent("parse", stdin="[200005]\nnonsense\n[]\n")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 1 and len(lines) == 3 and "error" in lines[1]


def test_doctor_healthy_machine_all_ok(agent: RunAgent, home: Path) -> None:
    (home / "cache" / PROBE).unlink()  # so that the processor is probed
    ran = agent("doctor")
    assert ran.code == 0, ran.out
    for name in ("python", "llama.cpp", "vocabulary", "model", "python tool", "cache"):
        assert f"ok         {name}" in ran.out
    assert str(home) in ran.out


@pytest.mark.long
def test_prefix_cache_is_used_and_cleared(agent: RunAgent, home: Path) -> None:
    def cached_tokens() -> int:
        events = agent("run", "2+2", "--json-events").events
        prefills = [event for event in events if event["type"] == "agent.prefill"]
        return next(int(event["cached"]) for event in prefills if event["done"] == event["total"])

    assert cached_tokens() == 0
    assert cached_tokens() > 200, "the whole prompt but its last token, in another process"
    assert re.search(r"prefixes: [1-9].* in \d+ files", agent("models", "cache").out)
    assert re.search(r"ok +prefix cache +0\.0 of at most \d", agent("doctor").out)
    assert "are free again" in agent("models", "cache", "--clear").out
    assert not list((home / "cache" / "prefixes").rglob("*.kv"))
    assert cached_tokens() == 0
    latest = json.loads(agent("sessions", "list", "--all", "--json").out)[0]["id"]
    assert agent("sessions", "delete", latest, "--yes").code == 0
    assert not list((home / "cache" / "prefixes").rglob("*.kv")), "what was said there is gone"
    assert agent("config", "set", "prefix_cache", "0").code == 0
    assert cached_tokens() == 0 and cached_tokens() == 0
    assert re.search("off +prefix cache", agent("doctor").out)


def test_doctor_says_ok_only_of_what_works(agent: RunAgent, tmp_path: Path) -> None:
    lines = agent("doctor").out.splitlines()
    states = {tuple(line.split()[1:3]): line.split()[0] for line in lines}
    assert states["model", "tiny:"] == "ok" and states["models", "gpt-oss-20b,"] == "available"
    assert states["shell", "tool"] == states["browser", "tool"] == "off"
    assert next(line for line in lines if "config.toml" in line).startswith("none ")
    assert not [line for line in lines if "SSE3" in line]
    assert "SSE3 = 1" in agent("doctor", "--verbose").out or os.uname().machine != "x86_64"
    (tmp_path / "no.gguf").write_text("text")
    wrong = agent("doctor", "--model", str(tmp_path / "no.gguf"))
    assert wrong.code == 1 and "WRONG      chosen model" in wrong.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fix this"], "The app needs a terminal to read from; use agent run here."),
        (
            ["hello", "--tools", "none"],
            "The app needs a terminal to read from; use agent run here.",
        ),
        (["sesions"], "No such command 'sesions'. Did you mean 'sessions'? See agent --help."),
        (
            ["fix", "this"],
            "Got unexpected extra argument(s) (this); quote a prompt of several words."
            " See agent chat --help.",
        ),
    ],
)
def test_prompt_without_command_is_for_the_app(
    agent: RunAgent, arguments: list[str], message: str
) -> None:
    ran = agent(*arguments)
    assert (ran.code, ran.err) == (2, f"agent: {message}\n")


def test_help_as_command_prints_help(agent: RunAgent) -> None:
    assert agent("help").out == agent("--help").out
    assert agent("help", "run").out == agent("run", "--help").out


def test_doctor_broken_settings_one_sentence(agent: RunAgent, home: Path) -> None:
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text('effort = "lowest"\n')
    lines = agent("doctor").out.splitlines()
    (wrong,) = (line for line in lines if line.startswith("WRONG"))
    assert wrong.split()[1] == "config.toml" and "config.toml: effort must be" in wrong
    assert any(line.split()[1] == "models.toml" for line in lines if line.strip())


@pytest.mark.parametrize("name", ["nosuch", "/nowhere/x.gguf"])
@pytest.mark.parametrize(
    "command",
    ["run go --model", "serve --port 0 --model", "doctor --model", "parse --model"]
    + [f"models {verb}" for verb in ("pull", "path", "default", "rm --yes")],
)
def test_missing_model_same_exit_code_everywhere(agent: RunAgent, command: str, name: str) -> None:
    ran = agent(*command.split(), name, stdin="")
    assert ran.code == 2 and name in ran.out + ran.err


NO_HOME = """
import os, pwd, sys
def nobody(uid):
    raise KeyError(uid)
pwd.getpwuid = nobody
from agent.__main__ import main
main()
"""
"""The program for a user who has no entry in the system's list of users."""


@pytest.mark.long
@pytest.mark.parametrize("command", [("run", "12*34"), ("models", "list"), ("mcp", "list")])
def test_without_home_folder_agent_home_is_enough(home: Path, command: tuple[str, ...]) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "HOME"}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-c", NO_HOME, *command], env={**variables, **more},
            cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=HANG_SECONDS,
        )  # fmt: skip

    ran = run(AGENT_HOME=str(home))
    assert ran.returncode == 0 and ran.stdout and "agent: " not in ran.stderr
    ran = run(AGENT_HOME="", XDG_CONFIG_HOME="/tmp")
    expected = "agent: There is no home folder here: set AGENT_HOME to a folder.\n"
    assert (ran.returncode, ran.stderr) == (2, expected)


def test_doctor_unwritable_cache_names_remedy(agent: RunAgent) -> None:
    ran = agent("doctor", env={"AGENT_HOME": "/proc/self/nowhere"})
    assert ran.code == 1 and "WRONG      cache" in ran.out and "AGENT_HOME" in ran.out


def test_help_names_the_options_of_the_app(agent: RunAgent) -> None:
    helped = agent("--help").out
    for option in ("--continue", "--resume ID", "--model NAME|PATH", "--tools", "--serve"):
        assert option in helped

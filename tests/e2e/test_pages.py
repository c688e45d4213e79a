"""The commands of the pages are understood by the program, and run where they can run here."""

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from itertools import dropwhile
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from agent.cli.main import app, is_for_app
from tests.support.program import ROOT
from tests.support.waiting import HANG_SECONDS

PAGES = sorted(
    str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
)
REASONS = {
    *(
        "it installs",
        "it needs a terminal",
        "it needs a client",
        "it needs internet",
        "it needs Docker",
    ),
    *(
        "it changes the system",
        "it removes the program",
        "your own folders",
        "it needs a real model",
    ),
    *("it needs another machine", "it needs other programs", "it compiles for a GPU"),
}
"""Why a block does not run here."""
ANY_CONVERSATION = "3bc06fe5"
"""The id of a conversation of the person's own."""
APART = {"--help", "--version", "--resume", "--install-completion", "--show-completion", "COMMAND"}
"""Options that are looked at before the others, and what stands for any command."""
ELSEWHERE = ("docs/clients.md",)
"""Pages whose blocks run in `make test-clients`."""
OUTPUTS = {
    "README": ["408", "508.", '"type":"agent.start"', "Europe/Rome"],
    "run": ["408", "508.", "Her name is", "Hm"],
    "tutorial": ["408", "508.", "todo.txt", '"type":"agent.start"', "Hello!"],
    "install": ["No problems found.", "408"],
    "upgrading": ["What is 12*34?", "tiny"],
    "deployment": ['"status"', '"default"'],
    "troubleshooting": ["No problems found.", "agent 0"],
    "batch": ["0 wrong lines", "Hello!"],
}
"""What is read on standard output, by page."""
COMMANDS = {"sh": ("bash", "-euc"), "python": (sys.executable, "-c")}
"""What runs a block, by its language."""
_SPAN = re.compile(r"`((?:[A-Z_]+=\S+ )?agent [^`\n]+)`")
_BLOCK = re.compile(r"^(<!-- not run: [^\n]* -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """The fenced blocks of a page: why it does not run here (or nothing), language, text."""
    found = _BLOCK.findall((ROOT / page).read_text())
    return [(note[14:-5], language, text) for note, language, text in found]


def commands(text: str) -> list[list[str]]:
    """The arguments of each `agent` in a block of shell commands."""
    text = re.sub(r"<<'END'\n.*?\nEND\n", "\n", text, flags=re.DOTALL).replace("\\\n", " ")
    found = [shlex.split(inner) for inner in re.findall(r"\$\(agent (.*?)(?: \||\))", text)]
    for line in re.findall(r".*\bagent .*", text):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set("|&;<>"):
                words.append(word)
                continue
            program, *arguments = [*dropwhile(_is_before_program, words), ""]
            if Path(program).name == "agent":
                found.append(arguments[:-1])
            words = []
    return found


def _is_before_program(word: str) -> bool:
    """Whether a word is a setting (``NAME=value``), a keyword, or a part of sudo."""
    return "=" in word or word in ("do", "sudo", "-u", "agent-local")


def understand(arguments: list[str]) -> None:
    """Parse the arguments of `agent` as it would. Raises AssertionError, or what click raises."""
    if not arguments or is_for_app(arguments[0]):
        arguments = ["chat", *arguments]
    command, context = get_command(app), None
    while arguments and isinstance(command, TyperGroup):
        context = command.make_context("agent", [], parent=context, resilient_parsing=True)
        command = command.get_command(context, name := arguments.pop(0))
        assert command is not None, name
    command.make_context("agent", arguments, parent=context)


@pytest.mark.parametrize("page", PAGES)
def test_page_commands_are_understood(page: str) -> None:
    for _, language, text in blocks(page):
        for arguments in commands(text) if language == "sh" else ():
            if not APART & set(arguments[:1]):
                understand(arguments)


@pytest.mark.parametrize("page", PAGES)
def test_commands_between_words_are_understood(page: str) -> None:
    for span in _SPAN.findall((ROOT / page).read_text()):
        for arguments in commands(f"{span}\n"):
            if APART & set(arguments):
                continue
            try:
                understand(arguments)
            except AssertionError:
                raise
            except Exception as problem:  # only a part of a command is shown
                assert not type(problem).__name__.startswith("NoSuch"), span


def write_inputs(folder: Path, programs: Path) -> None:
    """What the pages take for granted: files of prompts, and uvx with its server."""
    (folder / "prompt.txt").write_text("What is 12*34?")
    request = {"custom_id": "a", "method": "POST", "url": "/v1/responses"}
    line = json.dumps(request | {"body": {"input": "hello"}})
    (folder / "questions.jsonl").write_text(f"{line}\n")
    (folder / "prompts.txt").write_text("hello\nWhat is 12*34?\n")
    uvx = programs / "uvx"
    uvx.write_text(f'#!/bin/sh\nexec {Path(sys.executable).parent}/"$@"\n')
    uvx.chmod(0o755)


def can_run(page: str) -> bool:
    """Whether a page has blocks that run here."""
    found = [reason for reason, language, _ in blocks(page) if language in COMMANDS]
    return page not in ELSEWHERE and not all(found)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_do_not_run_say_why(page: str) -> None:
    assert {reason for reason, *_ in blocks(page) if reason} <= REASONS


@pytest.mark.long
@pytest.mark.parametrize("page", filter(can_run, PAGES))
def test_page_blocks_run(page: str, home: Path, tmp_path: Path) -> None:
    name = Path(page).stem
    programs, folder = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    folder.mkdir()
    wrapper = programs / "agent"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m agent "$@"\n')
    wrapper.chmod(0o755)
    write_inputs(folder, programs)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "AGENT_HOME": str(home), "HOME": str(tmp_path), "PATH": path}
    stdout, address, conversation = "", "http://127.0.0.1:8080", ""
    if ANY_CONVERSATION in (ROOT / page).read_text():
        listed = (
            "agent run -q hello >&2; agent sessions list --all --json | jq -r '.. | .id? // empty'"
        )
        command = ["bash", "-c", listed]
        conversation = subprocess.check_output(command, cwd=folder, env=env, text=True).split()[0]
    with ExitStack() as servers:
        for reason, language, text in blocks(page):
            text = text.replace(ANY_CONVERSATION, conversation or ANY_CONVERSATION)
            if reason:
                pass
            elif "agent serve" in text:
                command = ["bash", "-c", f"exec env {re.sub(' +#.*', '', text).rstrip()} --port 0"]
                process = subprocess.Popen(
                    command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True
                )
                servers.callback(process.wait)
                servers.callback(process.kill)
                assert process.stdout
                address = process.stdout.readline().split(" at ")[1].split("/v1")[0]
            elif language in COMMANDS:
                done = subprocess.run(
                    [*COMMANDS[language], text.replace("http://127.0.0.1:8080", address)],
                    cwd=folder, env=env, stdin=subprocess.DEVNULL, timeout=HANG_SECONDS,
                    capture_output=True, text=True,
                )  # fmt: skip
                assert done.returncode == 0, (text, done.stdout, done.stderr)
                stdout += done.stdout
            elif language == "jsonl":  # what docs/batch.md begins with
                (folder / "questions.jsonl").write_text(text)
    for expected in OUTPUTS.get(name, []):
        assert expected in stdout, stdout
    assert "I am not sure of this" not in stdout

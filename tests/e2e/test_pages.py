"""The commands of the pages are understood by the program, and run where they can run here."""

from __future__ import annotations

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

from agent.cli.main import app
from tests.support.program import ROOT
from tests.support.waiting import HANG_SECONDS

PAGES = sorted(
    str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
)
RUN = ("tutorial", "install", "upgrading", "deployment", "troubleshooting", "batch")
"""Pages of docs/ whose blocks all run, but for those below a comment that says why not."""
REASONS = {
    *("it installs", "it needs a terminal", "it needs internet", "it needs Docker"),
    *("it changes the system", "it removes the program", "your own folders"),
}
OUTPUTS = {
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


@pytest.mark.parametrize("page", PAGES)
def test_page_commands_are_understood(page: str) -> None:
    for _, language, text in blocks(page):
        for arguments in commands(text) if language == "sh" else ():
            if arguments in (["--version"], ["--resume"]):
                continue
            if not arguments or arguments[0].startswith("-"):
                arguments = ["chat", *arguments]
            command, context = get_command(app), None
            while arguments and isinstance(command, TyperGroup):
                context = command.make_context("agent", [], parent=context, resilient_parsing=True)
                command = command.get_command(context, arguments.pop(0))
                assert command is not None, text
            command.make_context("agent", arguments, parent=context)


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
def test_page_blocks_run(name: str, home: Path, tmp_path: Path) -> None:
    programs, folder = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    folder.mkdir()
    wrapper = programs / "agent"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m agent "$@"\n')
    wrapper.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "AGENT_HOME": str(home), "HOME": str(tmp_path), "PATH": path}
    stdout, address = "", "http://127.0.0.1:8080"
    with ExitStack() as servers:
        for reason, language, text in blocks(f"docs/{name}.md"):
            if reason:
                assert reason in REASONS
            elif "agent serve" in text:
                command = ["bash", "-c", f"{text.rstrip()} --port 0"]
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
            elif not (folder / "questions.jsonl").exists():  # what docs/batch.md begins with
                (folder / "questions.jsonl").write_text(text)
    for expected in OUTPUTS[name]:
        assert expected in stdout, stdout
    assert "I am not sure of this" not in stdout

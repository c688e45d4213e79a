"""`agent chat --plain`: prompts, commands and questions by lines of text."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.program import RunAgent
from tests.support.scripts import call, final, hold, thought
from tests.support.terminal import start_program

Script = Callable[..., str]
REPLY = thought("Hm.") + final("It is **5**.")
PLAIN = ("chat", "--plain", "--tools", "none")


def test_plain_chat_talks_by_lines(agent: RunAgent, script: Script) -> None:
    said = "What is 2+3?\n\n/mode plan\nand 2+4?\n/accept\n/nosuch\nmore\\\nlines\n"
    done = agent(*PLAIN, "--engine", script(REPLY), stdin=said)
    assert done.code == 0 and done.err == ""
    assert "\x1b" not in done.out and "\r" not in done.out
    assert done.out.count("Thinking:\nHm.\nAnswer:\nIt is **5**.\n") == 4
    assert "Mode plan: only tools that read run" in done.out
    assert "There is no command /nosuch here; /help lists them." in done.out
    assert "> … Thinking:" in done.out, "a line that ends in a backslash continues"
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    assert (row["title"], row["turns"]) == ("What is 2+3?", 4)


def test_plain_chat_continues_and_resumes(agent: RunAgent, script: Script) -> None:
    engine = ("--engine", script(REPLY))
    assert agent(*PLAIN, *engine, "first", stdin="").code == 0
    again = agent(*PLAIN, *engine, "--continue", stdin="second\n/resume\n")
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    assert row["turns"] == 2 and row["id"][5:13] in again.out
    opened = agent(*PLAIN, *engine, stdin=f"/resume {row['id'][5:13]}\n/quit\nnot read\n")
    assert "> first" in opened.out and "> second" in opened.out and "not read" not in opened.out
    missing = agent(*PLAIN, *engine, stdin="/resume 12345678\n/model\n/effort\n")
    assert "no conversation with the id" in missing.out and "/model needs a name" in missing.out
    assert "This command needs a value behind it" in missing.out and missing.code == 0


def test_plain_chat_asks_before_a_call(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    replies = script(call("files__write", path="new.txt", content="x"), final("Done."))
    options = ("chat", "--plain", "--tools", "files", "--engine", replies)
    refused = agent(*options, stdin="go\nwhat\nn\n")
    assert refused.out.count("Run it? (y once, s in this session, a always, n)") == 2
    assert not (tmp_path / "work" / "new.txt").exists()
    gone = agent(*options, stdin="go\n")
    assert gone.code == 0 and "refused (person)" in gone.out and "Done." in gone.out
    allowed = agent(*options, stdin="go\ny\n")
    assert "+++ b/new.txt" in allowed.out and "created new.txt" in allowed.out
    assert (tmp_path / "work" / "new.txt").read_text() == "x"


def test_plain_chat_reads_a_file_as_stdin(home: Path, script: Script, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo")
    command = [sys.executable, "-P", "-m", "agent", *PLAIN, "--engine", script(REPLY)]
    with lines.open() as file:
        done = subprocess.run(
            command, stdin=file, capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "AGENT_HOME": str(home)},
        )  # fmt: skip
    assert done.stdout.count("It is **5**.") == 2 and done.returncode == 0


def test_plain_chat_adds_to_agents_md(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "work" / "AGENTS.md"
    said = "# use tabs\n#\n## Heading\n# Heading\\\nand text\n"
    done = agent(*PLAIN, "--engine", script(REPLY), stdin=said)
    assert file.read_text() == "- use tabs\n"
    assert f'Added "- use tabs" to {file}. The model reads it from the next turn on.' in done.out
    assert "agent: Write an instruction behind the #, as in #use tabs." in done.out
    assert done.out.count("It is **5**.") == 2, "headings are prompts"
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    done = agent(*PLAIN, "--engine", script(REPLY), stdin="#x\n")
    assert f"agent: Cannot add to {file}: it is a link to" in done.out and done.code == 0
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("options", [["--serve"], ["--resume", "x", "-c"]])
def test_plain_chat_refuses_what_it_cannot_do(agent: RunAgent, options: list[str]) -> None:
    done = agent(*PLAIN, *options, stdin="")
    assert done.code == 2 and done.out == "" and done.err.startswith("agent: --")


def test_plain_chat_where_the_terminal_is_dumb_and_interrupted(
    home: Path, tmp_path: Path, script: Script
) -> None:
    engine = script(hold(final("word " * 500), after=40), REPLY)
    command = ["--engine", engine, "--tools", "none"]
    with start_program(*command, home=home, cwd=tmp_path, env={"TERM": "dumb"}) as terminal:
        terminal.wait_for("quits.\n>")
        terminal.press("go\n")
        terminal.wait_for("word word")
        terminal.press("\x03")
        terminal.wait_for("Interrupted; the partial answer is kept.")
        terminal.press("again\n")
        terminal.wait_for("It is **5**.")
        terminal.press("\x03")
        assert terminal.wait_exit() == 130
    assert not re.search(rb"\x1b\[", terminal.painted)

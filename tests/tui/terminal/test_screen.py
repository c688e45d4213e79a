"""The whole program in a real terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.program import Agent
from tests.support.terminal import ROOT, program

Script = Callable[..., str]
THINKS_CALLS = (
    "<|channel|>analysis<|message|>I should compute this.<|end|>"
    "<|start|>assistant<|channel|>analysis to=python code<|message|>print(123*456)<|call|>"
)
ANSWERS = "<|channel|>final<|message|>It is **56088**, said the tool.<|return|>"
LEAVE, STOP = "\x11", "\x1b"
pytestmark = pytest.mark.slow


def ready(text: str) -> bool:
    return "○ ready" in text


def test_the_embedded_model_thinks_calls_and_answers(home: Path, tmp_path: Path) -> None:
    with program(home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Multiply 123*456 using the mcp.code_interpreter tool.\r")
        done = ("56088", "tok/s", "MCP 2/2")
        text = terminal.wait_for(
            lambda text: ready(text) and all(one in text.partition("Answer")[2] for one in done)
        )
        reasoning, _ = text.split("Answer")
        assert re.search(r"\w+ \w+", reasoning.split("Arguments")[1]), "reasoning is seen"
        assert "code_interpreter · python" in reasoning and "123*456" in reasoning

        def upwards(text: str) -> bool:
            """One page may be too little, or come before there is anything above."""
            if found := "demonstration model" in text:
                return found
            terminal.press("\x1b[5~")
            return False

        terminal.wait_for(upwards)
        terminal.press(LEAVE)
        assert terminal.leave() == 0
        assert terminal.restored
        # Whatever native code printed is not among what was painted.
        assert b"llama" not in terminal.painted and b"ggml" not in terminal.painted


def test_a_turn_and_its_pieces_at_80_columns(home: Path, tmp_path: Path, script: Script) -> None:
    engine = script(THINKS_CALLS, ANSWERS)
    with program("--engine", engine, home=home, cwd=tmp_path, columns=80, rows=24) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("What is 123*456?\r")  # before the model is there: it waits
        all_of_it = ("said the tool", "I should compute this.", "❯ What is 123*456?")
        terminal.wait_for(lambda text: ready(text) and all(one in text for one in all_of_it))
        terminal.press("\x1bOQ")  # F2
        terminal.wait_for("▸ Thought")
        terminal.press("\x1b[19~")  # F8
        terminal.wait_for("<|channel|>final<|message|>")
        terminal.press(LEAVE)
        assert terminal.leave() == 0 and terminal.restored


def test_what_is_typed_right_behind_ctrl_f_is_searched(
    home: Path, tmp_path: Path, script: Script
) -> None:
    engine = script({"markup": "<|channel|>final<|message|>In the <hay>.<|return|>"})
    with program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Where is it?\r")
        terminal.wait_for(lambda text: ready(text) and "In the <hay>." in text)
        terminal.press("\x06<hay>")  # Ctrl-F
        terminal.wait_for("1/1")
        terminal.press(STOP)
        terminal.wait_for("Ask something")
        terminal.press(LEAVE)
        assert terminal.leave() == 0 and terminal.restored


def test_escape_stops_a_slow_answer_and_it_goes_on(
    home: Path, tmp_path: Path, script: Script
) -> None:
    story = "<|channel|>final<|message|>" + "once upon a time " * 200 + "<|return|>"
    engine = script({"markup": story, "delay_ms": 20}, ANSWERS)
    with program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Tell me a story\r")
        terminal.wait_for("once upon")
        terminal.press(STOP)
        terminal.wait_for("Stopped; what was said until then is kept.")
        terminal.press("And the sum?\r")
        terminal.wait_for("said the tool")
        terminal.press(LEAVE)
        assert terminal.leave() == 0 and terminal.restored
    with program("-c", "--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("said the tool")
        terminal.press(LEAVE)
        assert terminal.leave() == 0


def test_the_window_changes_its_size_while_it_streams(
    home: Path, tmp_path: Path, script: Script
) -> None:
    story = "<|channel|>analysis<|message|>" + "thinking aloud " * 300 + "<|end|><|return|>"
    engine = script({"markup": story, "delay_ms": 5})
    with program("--engine", engine, home=home, cwd=tmp_path, columns=120, rows=40) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("go\r")
        terminal.wait_for("thinking aloud")
        for columns, rows in ((60, 15), (200, 50), (80, 24)):
            terminal.resize(columns, rows)
            terminal.wait_for(lambda text: "thinking aloud" in text and "tok/s" in text)
        terminal.press(STOP)
        terminal.wait_for(ready)
        terminal.press(LEAVE)
        assert terminal.leave() == 0 and terminal.restored


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(
    home: Path, tmp_path: Path, script: Script, number: signal.Signals
) -> None:
    with program("--engine", script(ANSWERS), home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        os.kill(terminal.process.pid, number)
        assert terminal.leave() == 128 + number
        assert terminal.restored


def test_without_its_terminal_it_ends(home: Path, tmp_path: Path, script: Script) -> None:
    story = {"markup": "<|channel|>final<|message|>" + "word " * 9000, "delay_ms": 3}
    with program("--engine", script(story), home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Tell me a story\r")
        terminal.wait_for("word word")
        terminal.take_away()
        assert terminal.process.wait(60) == 128 + signal.SIGHUP


def test_killed_it_still_gives_the_terminal_back_and_the_next_one_goes_on(
    home: Path, tmp_path: Path, script: Script
) -> None:
    story = "<|channel|>final<|message|>" + "once upon a time " * 2000 + "<|return|>"
    engine = script({"markup": story, "delay_ms": 5}, ANSWERS)
    with program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Tell me a story\r")
        # The last moment may be lost.
        terminal.wait_for(lambda text: text.count("once upon a time") > 3)
        os.kill(terminal.process.pid, signal.SIGKILL)
        assert terminal.leave() == -signal.SIGKILL
        terminal.wait_until_restored()
    with program("-c", "--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(lambda text: ready(text) and "once upon a time" in text)
        terminal.press("\x1b[1;5H")
        terminal.wait_for("❯ Tell me a story")
        terminal.press(LEAVE)
        assert terminal.leave() == 0 and terminal.restored


def test_a_call_waits_for_a_yes_and_an_answer_is_asked_for_once_more(
    home: Path, tmp_path: Path, script: Script
) -> None:
    writes = (
        "<|channel|>commentary to=files.write <|constrain|>json<|message|>"
        '{"path":"sum.txt","content":"56088"}<|call|>'
    )
    engine = script(writes, ANSWERS, ANSWERS.replace("said", "says"))
    options = ("--tools", "files", "--engine", engine)
    with program(*options, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        terminal.press("Write it down\r")
        terminal.wait_for("Run files · write?")
        assert not (tmp_path / "sum.txt").exists()
        terminal.wait_for("┏")  # it takes no key before
        terminal.press("y")
        terminal.wait_for(lambda text: ready(text) and "said the tool" in text)
        assert (tmp_path / "sum.txt").read_text() == "56088"
        terminal.press("/retry\r")
        terminal.wait_for(lambda text: ready(text) and "says the tool" in text)
        terminal.press(LEAVE)
        assert terminal.leave() == 0 and terminal.restored


def test_a_broken_app_gives_the_terminal_back_and_says_where_to_look(
    home: Path, tmp_path: Path
) -> None:
    breaks = (
        "import sys; from agent.cli.shared import Shared; from tui import main, session\n"
        "session.Session.earlier = lambda self: 1 / 0\n"
        "sys.exit(main.main(Shared()))"
    )
    command = (sys.executable, "-c", breaks)
    with program(home=home, cwd=tmp_path, command=command) as terminal:
        assert terminal.leave() == 1
        assert terminal.restored
        assert b"Something went wrong" in terminal.painted
        assert b"ZeroDivisionError" not in terminal.painted
    assert "ZeroDivisionError" in (home / "state" / "agent.log").read_text()


def test_wrong_options_are_one_sentence(home: Path, tmp_path: Path) -> None:
    with program("--model", "nonesuch", home=home, cwd=tmp_path) as terminal:
        assert terminal.leave() == 2
        assert terminal.restored
        assert b"agent: There is no model nonesuch" in terminal.painted


def test_without_a_terminal_it_says_what_to_use_instead(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "agent"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "AGENT_HOME": str(home)}, timeout=100,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("agent: The app needs a terminal") and "agent run" in done.stderr


def test_escape_sequences_never_reach_the_terminal(
    home: Path, tmp_path: Path, script: Script
) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\x1b]52;c;b3duZWQ=\x07 evil end"
    code = f"print({evil!r})"
    engine = script(
        f"<|channel|>analysis<|message|>{evil}<|end|><|start|>assistant"
        f"<|channel|>analysis to=python code<|message|>{code}<|call|>",
        f"<|channel|>final<|message|>{evil}\n\n```\n{evil}\n```\n<|return|>",
    )
    with program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        terminal.press(f"\x1b[200~{evil}\x1b[201~\r")
        terminal.wait_for(lambda text: ready(text) and text.count("evil end") >= 3)
        assert b"\x1b]0;" not in terminal.painted, "the title was set"
        assert b"\x1b]52" not in terminal.painted and b"\x9b2J" not in terminal.painted
        terminal.press(LEAVE)
        assert terminal.leave() == 0


EVIL = "ev\x1b]0;owned\x07\x1b[2J\x9b2J\u202eil"


@pytest.fixture
def cloned(tmp_path: Path) -> Path:
    """A folder that came from elsewhere, as its name did."""
    folder = tmp_path / EVIL
    folder.mkdir()
    server = {"command": EVIL, "args": [EVIL]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {EVIL: server}}))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "doctor",
        "mcp list",
        f"mcp call plain echo {json.dumps({'text': EVIL * 2})}",
        "models list",
        f"run hi --model no{EVIL}",
        "run hi --engine ENGINE --json-events",
        "sessions export --format json LATEST",
        "",
    ],
)
def test_no_name_result_or_error_steers_the_terminal(
    home: Path, tmp_path: Path, cloned: Path, agent: Agent, script: Script, words: str
) -> None:
    engine = script(f"<|channel|>final<|message|>{EVIL}<|return|>")
    lent = {"HOME": str(tmp_path)}
    (tmp_path / ".lmstudio" / "models" / EVIL).mkdir(parents=True)
    model = next((home / "cache").glob("*.gguf"))
    (tmp_path / ".lmstudio" / "models" / EVIL / f"{EVIL}.gguf").symlink_to(model)
    plain = str(ROOT / "tests" / "support" / "mcp_servers" / "plain.py")
    agent("mcp", "add", "plain", "--", sys.executable, "-I", plain)
    if "LATEST" in words:
        agent("run", "hi", "--engine", engine)
        words = words.replace(
            "LATEST", json.loads(agent("sessions", "list", "--json").out)[0]["id"]
        )
    call = [word.replace("ENGINE", engine) for word in words.split(" ", 4)] if words else []
    with program(*call, home=home, cwd=cloned, columns=1000, env=lent) as terminal:
        if not words:
            terminal.wait_for("[y/N]")
            terminal.press("n\r")
            terminal.wait_for(ready)
            terminal.press(LEAVE)
        terminal.leave()
        seen = terminal.painted.decode()
    assert "ev" in seen
    assert not [one for one in ("\x1b]0;", "\x9b", "\u202e") if one in seen]


def test_ten_thousand_pasted_lines_are_one_prompt(
    home: Path, tmp_path: Path, script: Script
) -> None:
    with program("--engine", script(ANSWERS), home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        page = "\n".join(f"line {n}" for n in range(10_000))
        writer = threading.Thread(target=terminal.press, args=(f"\x1b[200~{page}\x1b[201~",))
        writer.start()
        terminal.wait_for("[pasted #1: 10,000 lines]")
        writer.join()
        terminal.press("\r")
        terminal.wait_for(lambda text: "said the tool" in text and "… 9995 more lines" in text)
        terminal.press(LEAVE)
        assert terminal.leave() == 0


def test_a_request_over_http_is_watched_live(home: Path, tmp_path: Path, script: Script) -> None:
    thinks = "<|channel|>analysis<|message|>Somebody asks over HTTP.<|end|><|start|>assistant"
    engine = script({"markup": thinks + ANSWERS, "delay_ms": 30})
    options = ("--engine", engine, "--serve", "--port", "0")
    with program(*options, home=home, cwd=tmp_path, columns=120) as terminal:
        text = terminal.wait_for(lambda text: ready(text) and "127.0.0.1:" in text)
        found = re.search(r"127\.0\.0\.1:\d+", text)
        assert found
        body = json.dumps({"model": "default", "input": "What is 123*456?"}).encode()
        request = urllib.request.Request(
            f"http://{found[0]}/v1/responses", body, {"Content-Type": "application/json"}
        )
        answers: list[bytes] = []
        client = threading.Thread(
            target=lambda: answers.append(urllib.request.urlopen(request, timeout=60).read())
        )
        client.start()
        terminal.wait_for("1 ● What is 123*456?")
        terminal.press("\x1bOR")  # F3
        terminal.wait_for(lambda text: "http ❯ What is 123*456?" in text and "over HTTP" in text)
        terminal.wait_for("said the tool")
        client.join()
        assert "56088" in answers[0].decode()
        terminal.press(LEAVE)
        assert terminal.leave() == 0 and terminal.restored


def test_no_colour_where_none_is_wanted(home: Path, tmp_path: Path, script: Script) -> None:
    options = {"home": home, "cwd": tmp_path, "env": {"NO_COLOR": "1"}}
    with program("--engine", script(THINKS_CALLS, ANSWERS), **options) as terminal:  # type: ignore[arg-type]
        terminal.wait_for("Ask something")
        terminal.press("go\r")
        terminal.wait_for(lambda text: ready(text) and "said the tool" in text)
        colours = re.findall(rb"\x1b\[(?:[0-9;]*;)?[34]8;[0-9;]*m|\x1b\[3[0-7]m", terminal.painted)
        assert not colours
        terminal.press(LEAVE)
        assert terminal.leave() == 0


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_inside_tmux(home: Path, tmp_path: Path, script: Script) -> None:
    engine = script(THINKS_CALLS, ANSWERS)
    socket = tmp_path / "tmux"

    def tmux(*args: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(socket), "-f", "/dev/null", *args],
            capture_output=True, text=True, check=True,
            env={**os.environ, "AGENT_HOME": str(home), "TERM": "xterm-256color"},
        ).stdout  # fmt: skip

    def wait_for(*what: str) -> str:
        until = time.monotonic() + 60
        while True:
            text = tmux("capture-pane", "-p")
            if all(one in text for one in what):
                return text
            assert time.monotonic() < until, text
            time.sleep(0.05)

    tmux("new-session", "-d", "-x", "90", "-y", "28", "sh")
    try:
        tmux("send-keys", f"{sys.executable} -I -m agent --engine {engine}; echo left $?", "C-m")
        wait_for("Ask something")
        tmux("send-keys", "-l", "What is 123*456?")
        tmux("send-keys", "C-m")
        wait_for("I should compute this.", "said the tool")
        tmux("send-keys", "C-q")
        text = wait_for("left 0")
        assert "Ask something" not in text, "the screen from before is there again"
    finally:
        tmux("kill-server")

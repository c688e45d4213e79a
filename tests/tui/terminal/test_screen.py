"""The whole program in a real terminal."""

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
from functools import partial
from pathlib import Path

import pytest

from tests.support.hosts import server_command
from tests.support.journal import noted_text
from tests.support.program import RunAgent
from tests.support.scripts import final, hold, python, thought
from tests.support.terminal import start_program
from tests.support.waiting import HANG_SECONDS

Script = Callable[..., str]
THINKS_CALLS = (
    "<|channel|>analysis<|message|>I should compute this.<|end|>"
    "<|start|>assistant<|channel|>analysis to=python code<|message|>print(123*456)<|call|>"
)
ANSWERS = "<|channel|>final<|message|>It is **56088**, said the tool.<|return|>"
STORY = {
    **hold(final("\n\n".join(f"word word {number}" for number in range(2000))), after=9000),
    "delay_ms": 3,
}
"""An answer that is written paragraph by paragraph, and does not end."""
LEAVE, STOP = "\x11", "\x1b"
pytestmark = pytest.mark.slow


def ready(text: str) -> bool:
    return "○ ready" in text


def test_app_embedded_model_reasons_calls_and_answers(home: Path, tmp_path: Path) -> None:
    with start_program(home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Multiply 123*456 using the mcp.code_interpreter tool.\r")
        done = ("56088", "tok/s", "tiny")
        terminal.wait_for(
            lambda text: ready(text) and all(part in text.partition("python ·")[2] for part in done)
        )
        terminal.press("\x0f")  # Ctrl-O
        # The thought, then the call: a frame may show the line above before what it expands.
        expanded = re.compile(
            r"▾ Thought.*[a-z]+ [a-z]+.*code_interpreter · python.*123 ?\* ?456", re.DOTALL
        )
        terminal.wait_for(lambda text: bool(expanded.search(text)))

        def upwards(text: str) -> bool:
            """Page up until the banner is seen: one page may be too little, or come too early."""
            if "demonstration model" in text:
                return True
            terminal.press("\x1b[5~")
            return False

        terminal.wait_for(upwards)
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0
        assert terminal.is_restored
        # Whatever native code printed is not among what was painted.
        assert b"llama" not in terminal.painted and b"ggml" not in terminal.painted


@pytest.mark.long
def test_app_80_columns_shows_turn(home: Path, tmp_path: Path, script: Script) -> None:
    engine = script(THINKS_CALLS, ANSWERS)
    with start_program(
        "--engine", engine, home=home, cwd=tmp_path, columns=80, rows=24
    ) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("What is 123*456?\r")  # before the model is there: it waits
        texts = ("said the tool", "▸ Thought", "❯ What is 123*456?")
        terminal.wait_for(lambda text: ready(text) and all(part in text for part in texts))
        terminal.press("\x0f")  # Ctrl-O
        terminal.wait_for("I should compute this.")
        terminal.press("\x1b[19~")  # F8
        terminal.wait_for("<|channel|>final<|message|>")
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0 and terminal.is_restored


@pytest.mark.long
def test_app_keys_right_behind_ctrl_f_are_searched(
    home: Path, tmp_path: Path, script: Script
) -> None:
    engine = script({"markup": "<|channel|>final<|message|>In the <hay>.<|return|>"})
    with start_program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Where is it?\r")
        terminal.wait_for(lambda text: ready(text) and "In the <hay>." in text)
        terminal.press("\x06<hay>")  # Ctrl-F
        terminal.wait_for("1/1")
        terminal.press(STOP)
        terminal.wait_for("Ask something")
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0 and terminal.is_restored


@pytest.mark.long
def test_app_keys_before_first_paint_are_in_the_prompt(
    home: Path, tmp_path: Path, script: Script
) -> None:
    with start_program("--engine", script(ANSWERS), home=home, cwd=tmp_path) as terminal:
        terminal.press("What is it?")
        terminal.wait_for(lambda text: ready(text) and "│ What is it?" in text)
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0


@pytest.mark.long
@pytest.mark.parametrize("closes", [True, False])
def test_app_draft_is_first_earlier_prompt_at_next_start(
    home: Path, tmp_path: Path, script: Script, closes: bool
) -> None:
    with start_program("--engine", script(ANSWERS), home=home, cwd=tmp_path) as terminal:
        terminal.press("half a thought")
        terminal.wait_for("│ half a thought")
        terminal.wait_for(ready)
        if closes:
            terminal.close_window()
        else:
            terminal.press(LEAVE)
        terminal.process.wait(HANG_SECONDS)
    with start_program("--engine", script(ANSWERS), home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("\x1b[A")
        terminal.wait_for("│ half a thought")
        terminal.press("\x15" + LEAVE)
        assert terminal.wait_exit() == 0


@pytest.mark.parametrize("number", [None, signal.SIGTSTP, signal.SIGSTOP])
def test_app_suspended_by_key_or_signal_continues_turn_and_draft(
    home: Path, tmp_path: Path, script: Script, number: signal.Signals | None
) -> None:
    go = tmp_path / "go"
    engine = script(hold(final("word " * 50 + "the end"), 20, go))
    with start_program(home=home, cwd=tmp_path, command=("sh", "-i")) as terminal:
        terminal.press(f"{sys.executable} -P -m agent --engine {engine} & echo pid $!; fg\r")
        terminal.wait_for("Ask something")
        match = re.search(r"pid (\d+)", terminal.painted_text)
        assert match
        terminal.press("go\r")
        terminal.wait_for(lambda text: "word word" in text and "Ask something" in text)
        terminal.press("a draft")
        terminal.wait_for("│ a draft")
        if number is None:
            terminal.press("\x1a\x1a")
        else:
            os.kill(int(match[1]), number)
        terminal.wait_for("Stopped")
        terminal.press("echo in the $((1+1))nd shell\n")  # SIGSTOP leaves Enter untranslated
        terminal.wait_for("in the 2nd shell")
        terminal.press("fg; echo left with $?\n")
        terminal.wait_for(lambda text: "│ a draft" in text and "2nd shell" not in text)
        terminal.press("ed")
        terminal.wait_for("│ a drafted")
        go.touch()
        terminal.wait_for(lambda text: ready(text) and "the end" in text)
        terminal.press(LEAVE)
        terminal.wait_for("left with 0")


@pytest.mark.long
def test_app_escape_stops_answer_and_next_turn_runs(
    home: Path, tmp_path: Path, script: Script
) -> None:
    story = "<|channel|>final<|message|>" + "once upon a time " * 200 + "<|return|>"
    engine = script(hold(story, after=40), ANSWERS)
    with start_program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Tell me a story\r")
        terminal.wait_for("once upon")
        terminal.press(STOP)
        terminal.wait_for("Interrupted; the partial answer is kept.")
        terminal.press("And the sum?\r")
        terminal.wait_for("said the tool")
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0 and terminal.is_restored
    with start_program("-c", "--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("said the tool")
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0


@pytest.mark.long
def test_app_resize_while_streaming_repaints(home: Path, tmp_path: Path, script: Script) -> None:
    story = thought(" ".join(f"thinking aloud {number}" for number in range(300)))
    engine = script({**hold(story, after=800), "delay_ms": 5})
    with start_program(
        "--engine", engine, home=home, cwd=tmp_path, columns=120, rows=40
    ) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("go\r")
        terminal.wait_for("thinking aloud")
        for columns, rows in ((60, 15), (200, 50), (80, 24)):
            terminal.resize(columns, rows)
            terminal.wait_for(lambda text: "thinking aloud" in text and "tok/s" in text)
        terminal.press(STOP)
        terminal.wait_for(ready)
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0 and terminal.is_restored


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_app_signal_restores_terminal(
    home: Path, tmp_path: Path, script: Script, number: signal.Signals
) -> None:
    with start_program("--engine", script(ANSWERS), home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        os.kill(terminal.process.pid, number)
        assert terminal.wait_exit() == 128 + number
        assert terminal.is_restored


@pytest.mark.long
@pytest.mark.parametrize("command", [(), ("run", "story", "--tools", "none")])
def test_terminal_gone_exits_in_order_without_traceback(
    home: Path, tmp_path: Path, script: Script, agent: RunAgent, command: tuple[str, ...]
) -> None:
    options = (*command, "--engine", script(STORY))
    here = (sys.executable, "-P", "-m", "agent")
    with start_program(*options, home=home, cwd=tmp_path, command=here) as terminal:
        if not command:
            terminal.wait_for("Ask something")
            terminal.press("Tell me a story\r")
        terminal.wait_for("word word")
        terminal.close_window()
        assert terminal.process.wait(HANG_SECONDS) == 128 + signal.SIGHUP
    log = home / "state" / "agent.log"
    assert not log.exists() or "Traceback" not in log.read_text()
    shown = agent(
        "sessions", "show", json.loads(agent("sessions", "list", "--all", "--json").out)[0]["id"]
    )
    assert "word word" in shown.out and "process ended" not in shown.out, "it is stored as it ended"


@pytest.mark.parametrize("delay", [0.0, 0.15])
@pytest.mark.parametrize(
    "moment", ["start", "loading", "idle", "streaming", "tool", "editor", "leaving"]
)
def test_app_terminal_goes_at_any_moment_process_ends(
    home: Path, tmp_path: Path, script: Script, moment: str, delay: float
) -> None:
    sleeps = python("import time; time.sleep(600)")
    engine = script(sleeps if moment == "tool" else STORY)
    options = () if moment == "loading" else ("--engine", engine)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsleep 600\n")
    editor.chmod(0o755)
    environment = {"VISUAL": str(editor)}
    with start_program(*options, home=home, cwd=tmp_path, env=environment) as terminal:
        if moment != "start":
            terminal.wait_for("Ask something")
        if moment in ("streaming", "tool"):
            terminal.press("go\r")
            terminal.wait_for("word word" if moment == "streaming" else "sleep(600)")
        terminal.press({"editor": "hello\x07", "leaving": LEAVE}.get(moment, ""))
        deadline = time.monotonic() + delay
        while (left := deadline - time.monotonic()) > 0:
            terminal.read(left)
        terminal.close_window()
        terminal.process.wait(HANG_SECONDS)


def test_app_killed_terminal_is_restored_and_turn_recovered(
    home: Path, tmp_path: Path, script: Script
) -> None:
    story = final("".join(f"once upon a time {number} " for number in range(2000)))
    engine = script({**hold(story, after=9000), "delay_ms": 5}, ANSWERS)
    with start_program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Ask something")
        terminal.press("Tell me a story\r")
        terminal.wait_for(lambda text: text.count("once upon a time") > 3)
        # The last moment may be lost.
        noted = partial(noted_text, home, "response.output_text.delta")
        terminal.wait_for(lambda text: "once upon a time" in noted())
        os.kill(terminal.process.pid, signal.SIGKILL)
        assert terminal.wait_exit() == -signal.SIGKILL
        terminal.wait_until_restored()
    with start_program("-c", "--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(lambda text: ready(text) and "once upon a time" in text)
        terminal.press("\x1b[1;5H")
        terminal.wait_for("❯ Tell me a story")
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0 and terminal.is_restored


@pytest.mark.long
def test_app_call_waits_for_approval_and_answer_is_retried(
    home: Path, tmp_path: Path, script: Script
) -> None:
    writes = (
        "<|channel|>commentary to=files.write <|constrain|>json<|message|>"
        '{"path":"sum.txt","content":"56088"}<|call|>'
    )
    engine = script(writes, ANSWERS, ANSWERS.replace("said", "says"))
    options = ("--tools", "files", "--engine", engine)
    with start_program(*options, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        terminal.press("Write it down\r")
        terminal.wait_for("Allow files.write?")
        assert not (tmp_path / "sum.txt").exists()
        terminal.wait_for("┏")  # it takes no key before
        terminal.press("y")
        terminal.wait_for(lambda text: ready(text) and "said the tool" in text)
        assert (tmp_path / "sum.txt").read_text() == "56088"
        terminal.press("/retry\r")
        terminal.wait_for(lambda text: ready(text) and "says the tool" in text)
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0 and terminal.is_restored


@pytest.mark.long
def test_app_crash_restores_terminal_and_names_log(home: Path, tmp_path: Path) -> None:
    breaks = (
        "import sys; from agent.config.launch import LaunchOptions\n"
        "from tui import main, session_storage\n"
        "session_storage.SessionStorage.turns = lambda self, name: 1 / 0\n"
        "sys.exit(main.main(LaunchOptions()))"
    )
    command = (sys.executable, "-c", breaks)
    with start_program(home=home, cwd=tmp_path, command=command) as terminal:
        assert terminal.wait_exit() == 1
        assert terminal.is_restored
        assert b"Something went wrong" in terminal.painted
        assert b"ZeroDivisionError" not in terminal.painted
    assert "ZeroDivisionError" in (home / "state" / "agent.log").read_text()


@pytest.mark.long
def test_app_wrong_options_exit_with_one_sentence(home: Path, tmp_path: Path) -> None:
    with start_program("--model", "nonesuch", home=home, cwd=tmp_path) as terminal:
        assert terminal.wait_exit() == 2
        assert terminal.is_restored
        assert b"agent: There is no model nonesuch" in terminal.painted


@pytest.mark.long
def test_app_start_that_failed_leaves_no_conversation(
    home: Path, tmp_path: Path, agent: RunAgent
) -> None:
    (tmp_path / "no.gguf").write_text("text")
    with start_program("--model", "no.gguf", home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("not a GGUF file")
        terminal.press("hello\r")
        # Below the prompt once more: leaving before that leaves a turn that was interrupted.
        terminal.wait_for(lambda text: "not a GGUF file" in text.partition("❯ hello")[2])
        terminal.press(LEAVE)
        terminal.wait_exit()
    assert json.loads(agent("sessions", "list", "--all", "--json").out) == []


def test_app_without_terminal_names_agent_run(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "agent"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "AGENT_HOME": str(home)}, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("agent: The app needs a terminal") and "agent run" in done.stderr


@pytest.mark.parametrize("command", [(), ("--effort", "low"), ("chat",)])
def test_app_dumb_terminal_chats_by_lines(
    home: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    with start_program(*command, home=home, cwd=tmp_path, env={"TERM": "dumb"}) as terminal:
        terminal.wait_for("/help lists the commands")
        terminal.press("/quit\n")
        assert terminal.wait_exit() == 0
    assert b"\x1b" not in terminal.painted


@pytest.mark.long
def test_app_escape_sequences_never_reach_terminal(
    home: Path, tmp_path: Path, script: Script
) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\x1b]52;c;b3duZWQ=\x07 evil end"
    code = f"print({evil!r})"
    engine = script(
        f"<|channel|>analysis<|message|>{evil}<|end|><|start|>assistant"
        f"<|channel|>analysis to=python code<|message|>{code}<|call|>",
        f"<|channel|>final<|message|>{evil}\n\n```\n{evil}\n```\n<|return|>",
    )
    with start_program("--engine", engine, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        terminal.press(f"\x1b[200~{evil}\x1b[201~\r")
        terminal.wait_for(lambda text: ready(text) and text.count("evil end") >= 3)
        assert b"\x1b]0;" not in terminal.painted, "the title was set"
        assert b"\x1b]52" not in terminal.painted and b"\x9b2J" not in terminal.painted
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0


EVIL = "ev\x1b]0;owned\x07\x1b[2J\x9b2J\u202eil"


@pytest.fixture
def cloned(tmp_path: Path) -> Path:
    """A folder that came from elsewhere, as its name did."""
    folder = tmp_path / EVIL
    folder.mkdir()
    server = {"command": EVIL, "args": [EVIL]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {EVIL: server}}))
    return folder


@pytest.mark.long
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
def test_app_names_results_and_errors_hold_no_sequences(
    home: Path, tmp_path: Path, cloned: Path, agent: RunAgent, script: Script, words: str
) -> None:
    engine = script(f"<|channel|>final<|message|>{EVIL}<|return|>")
    lent = {"HOME": str(tmp_path)}
    (tmp_path / ".lmstudio" / "models" / EVIL).mkdir(parents=True)
    model = next((home / "cache").glob("*.gguf"))
    (tmp_path / ".lmstudio" / "models" / EVIL / f"{EVIL}.gguf").symlink_to(model)
    agent("mcp", "add", "plain", "--", *server_command("plain"))
    if "LATEST" in words:
        agent("run", "hi", "--engine", engine)
        words = words.replace(
            "LATEST", json.loads(agent("sessions", "list", "--all", "--json").out)[0]["id"]
        )
    call = [word.replace("ENGINE", engine) for word in words.split(" ", 4)] if words else []
    with start_program(*call, home=home, cwd=cloned, columns=1000, env=lent) as terminal:
        if not words:
            terminal.wait_for("[y/N]")
            terminal.press("n\r")
            terminal.wait_for(ready)
            terminal.press(LEAVE)
        terminal.wait_exit()
        painted = terminal.painted.decode()
    assert "ev" in painted
    assert not [part for part in ("\x1b]0;", "\x9b", "\u202e") if part in painted]


@pytest.mark.long
def test_app_ten_thousand_pasted_lines_are_one_prompt(
    home: Path, tmp_path: Path, script: Script
) -> None:
    with start_program("--engine", script(ANSWERS), home=home, cwd=tmp_path) as terminal:
        terminal.wait_for(ready)
        page = "\n".join(f"line {n}" for n in range(10_000))
        writer = threading.Thread(target=terminal.press, args=(f"\x1b[200~{page}\x1b[201~",))
        writer.start()
        terminal.wait_for("[pasted #1:\xa010,000\xa0lines]")
        writer.join()
        terminal.press("\r")
        terminal.wait_for(lambda text: "said the tool" in text and "… 9995 more lines" in text)
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0


@pytest.mark.long
def test_app_http_request_streams_live(home: Path, tmp_path: Path, script: Script) -> None:
    go = tmp_path / "go"
    thinks = thought("Somebody asks over HTTP." + " Let me see." * 20)
    engine = script(hold(thinks + ANSWERS, 40, go))  # while it thinks
    options = ("--engine", engine, "--serve", "--port", "0")
    with start_program(*options, home=home, cwd=tmp_path, columns=120) as terminal:
        text = terminal.wait_for(lambda text: ready(text) and "127.0.0.1:" in text)
        match = re.search(r"127\.0\.0\.1:\d+", text)
        assert match
        body = json.dumps({"model": "default", "input": "What is 123*456?"}).encode()
        request = urllib.request.Request(
            f"http://{match[0]}/v1/responses", body, {"Content-Type": "application/json"}
        )
        answers: list[bytes] = []
        client = threading.Thread(
            target=lambda: answers.append(
                urllib.request.urlopen(request, timeout=HANG_SECONDS).read()
            )
        )
        client.start()
        terminal.wait_for("1 ● What is 123*456?")
        terminal.press("\x1bOR")  # F3
        terminal.wait_for(lambda text: "http ❯ What is 123*456?" in text and "over HTTP" in text)
        go.touch()
        terminal.wait_for("said the tool")
        client.join()
        assert "56088" in answers[0].decode()
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0 and terminal.is_restored


@pytest.mark.long
def test_app_no_color_paints_no_colour(home: Path, tmp_path: Path, script: Script) -> None:
    options = {"home": home, "cwd": tmp_path, "env": {"NO_COLOR": "1"}}
    with start_program("--engine", script(THINKS_CALLS, ANSWERS), **options) as terminal:  # type: ignore[arg-type]
        terminal.wait_for("Ask something")
        terminal.press("go\r")
        terminal.wait_for(lambda text: ready(text) and "said the tool" in text)
        colours = re.findall(rb"\x1b\[(?:[0-9;]*;)?[34]8;[0-9;]*m|\x1b\[3[0-7]m", terminal.painted)
        assert not colours
        terminal.press(LEAVE)
        assert terminal.wait_exit() == 0


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_app_inside_tmux_runs_turn(home: Path, script: Script, short_folder: Path) -> None:
    engine = script(THINKS_CALLS, ANSWERS)
    socket = short_folder / "tmux"

    def tmux(*args: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(socket), "-f", "/dev/null", *args],
            capture_output=True, text=True, check=True,
            env={**os.environ, "AGENT_HOME": str(home), "TERM": "xterm-256color"},
        ).stdout  # fmt: skip

    def wait_for(*texts: str) -> str:
        until = time.monotonic() + HANG_SECONDS
        while True:
            text = tmux("capture-pane", "-p")
            if all(part in text for part in texts):
                return text
            assert time.monotonic() < until, text
            time.sleep(0.05)

    tmux("new-session", "-d", "-x", "90", "-y", "28", "sh")
    try:
        tmux("send-keys", f"{sys.executable} -I -m agent --engine {engine}; echo left $?", "C-m")
        wait_for("Ask something")
        tmux("send-keys", "-l", "What is 123*456?")
        tmux("send-keys", "C-m")
        wait_for("Thought", "said the tool")
        tmux("send-keys", "C-q")
        text = wait_for("left 0")
        assert "Ask something" not in text, "the screen from before is there again"
    finally:
        tmux("kill-server")

"""`agent run` on scripted replies: output, options, tools, limits, signals and errors."""

import asyncio
import json
import os
import select
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.invariants import check, mcp_calls
from tests.support.office import docx, table, text_cell, xlsx, zipped
from tests.support.pdf import pdf
from tests.support.program import RunAgent
from tests.support.scripts import DONE, REASONING, hold, python, reasoned_call, thought
from tests.support.waiting import HANG_SECONDS, wait_until

Script = Callable[..., str]


def python_call(code: str) -> str:
    """A reply that reasons and calls Python."""
    return REASONING + python(code)


def test_run_piped_answer_alone_on_stdout(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "go", "--engine", script(python_call("6*7"), REASONING + DONE))
    assert (ran.code, ran.out) == (0, "It is **done**.\n")
    assert "code_interpreter.python" in ran.err and "42" in ran.err


def test_run_quiet_stderr_empty(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "go", "-q", "--engine", script(REASONING + DONE))
    assert (ran.code, ran.out, ran.err) == (0, "It is **done**.\n", "")


def test_run_output_file_has_answer(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "answer.md"
    assert agent("run", "go", "-o", str(file), "--engine", script(DONE)).code == 0
    assert file.read_text() == "It is **done**."


@pytest.mark.parametrize(
    "command", ["run go --output", "run go --dump-tokens", "run go --trace", "batch x.jsonl -o"]
)
def test_output_behind_link_of_folder_is_refused(
    agent: RunAgent, script: Script, tmp_path: Path, command: str
) -> None:
    """A repository's link leads to a file that nobody named."""
    mine = tmp_path / "mine.txt"
    (tmp_path / "work" / "answer.md").symlink_to(mine)
    (tmp_path / "work" / "x.jsonl").write_text('{"custom_id": "1", "body": {"input": "go"}}\n')
    engine = () if command.startswith("batch") else ("--engine", script(DONE))
    ran = agent(*command.split(), "answer.md", *engine)
    assert ran.code == 2 and "is a link to" in ran.err and not mine.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-c --resume 12345678", "--continue and --resume exclude each other."),
        ("-q --json-events", "--json-events and --quiet exclude each other."),
        ("-o a --dump-tokens ./a", "--output and --dump-tokens name the same file, a."),
        ("-o a --trace link/a", "--output and --trace name the same file, link/a."),
        ("-o s.json --output-schema s.json", "--output-schema and --output name the same file"),
        ("-o one --trace other", "--output and --trace name the same file, other."),
    ],
)
def test_run_options_that_exclude_each_other(
    agent: RunAgent, tmp_path: Path, options: str, message: str
) -> None:
    (tmp_path / "link").symlink_to(".")
    (tmp_path / "s.json").write_text("{}")
    (tmp_path / "one").touch()
    (tmp_path / "other").hardlink_to(tmp_path / "one")
    ran = agent("run", "go", *options.split(), cwd=tmp_path)
    assert ran.code == 2 and ran.err.startswith(f"agent: {message[:-1]}") and not ran.out


@pytest.mark.sampled(6)
@pytest.mark.parametrize("path", ["~nobody-here/x", "a" * 300])
@pytest.mark.parametrize(
    "command",
    [
        "run go --model", "run go --root", "run go --engine script:", "run go -o",
        "run go --system @", "run go --output-schema", "run go --trace", "run go --dump-tokens",
        "run go --mcp-config", "batch", "batch - -o", "sessions export 12345678 -o",
        "mcp list --root", "models path", "models default", "config set model",
    ],
)  # fmt: skip
def test_path_that_cannot_be_is_one_sentence(agent: RunAgent, command: str, path: str) -> None:
    *words, last = command.split()
    arguments = [last + path] if last[-1] in ":@" else [last, path]
    ran = agent(*words, *arguments)
    reason = "there is no such user" if path[0] == "~" else "File name too long"
    assert (ran.code, ran.err) == (2, f"agent: {path!r} cannot be used: {reason}.\n")


def test_agent_home_of_unknown_user_is_one_sentence(agent: RunAgent) -> None:
    ran = agent("config", "path", env={"AGENT_HOME": "~nobody-here/x"})
    assert ran.code == 2 and ran.err.startswith("agent: '~nobody-here/x' cannot be used: ")


@pytest.mark.long
def test_run_stdin_is_prompt_or_appended(agent: RunAgent, script: Script) -> None:
    engine = script(DONE)

    def prompt_tokens(*args: str, stdin: str) -> int:
        ran = agent("run", *args, "--json-events", "--engine", engine, stdin=stdin)
        tokens: int = check(ran.events)["usage"]["input_tokens"]
        return tokens

    short = prompt_tokens("-", stdin="hello")
    assert prompt_tokens(stdin="hello") == short
    assert prompt_tokens(stdin="hello\n") == prompt_tokens("-", stdin="hello\r\n\n") == short
    assert prompt_tokens("hello\n", stdin="") == short
    assert prompt_tokens("hello", stdin="one two three four") > short
    assert prompt_tokens("hello", "--no-stdin", stdin="one two three four") == short


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("data", "error", "attached"),
    [
        (pdf("The fox sleeps."), "", "The fox sleeps."),
        (docx(table(["fox", "red"])), "", "| fox | red |"),
        (xlsx(("Foxes", "visible", f"<row>{text_cell('red')}</row>")), "", "## Foxes"),
        (zipped({"a": "b"}), "The input cannot be attached. The file is an archive", ""),
        (b"caf\xe9 au lait", "", "caf\ufffd au lait"),
        ("Füchse".encode("utf-16"), "", "Füchse"),
        (
            b"\x7fELF\0\0",
            "The input cannot be attached: it is neither text nor a PDF, DOCX or XLSX file.",
            "",
        ),
        (b"%PDF-1.4", "The input cannot be attached. The PDF is damaged and cannot be read", ""),
        (b"\x89PNG\r\n\x1a\n", "The input is an image, and this model cannot see images.", ""),
    ],
    ids=["pdf", "docx", "xlsx", "zip", "latin", "utf-16", "elf", "no pdf", "png"],
)
def test_run_stdin_of_bytes_is_read_or_refused(
    home: Path, script: Script, data: bytes, error: str, attached: str
) -> None:
    done = subprocess.run(
        [*forks.relay(), "run", "go", "--engine", script(DONE)],
        env={**os.environ, "AGENT_HOME": str(home)}, input=data, capture_output=True,
        timeout=HANG_SECONDS,
    )  # fmt: skip
    assert done.returncode == (2 if error else 0) and error in done.stderr.decode()
    if attached:
        with closing(sqlite3.connect(home / "state/store.sqlite")) as store:
            (prompt,) = store.execute("SELECT prompt FROM turns").fetchone()
        assert '<file path="stdin" lines=' in prompt and attached in prompt


def test_run_attached_stdin_is_announced(agent: RunAgent, script: Script) -> None:
    """A loop that reads stdin loses these lines."""
    ran = agent("run", "go", "-q", "--engine", script(DONE), stdin="one\ntwo\n")
    assert ran.err == "agent: 2 lines of stdin are attached (--no-stdin leaves it alone).\n"
    ran = agent("run", "go", "-q", "--no-stdin", "--engine", script(DONE), stdin="one\n")
    assert (ran.out, ran.err) == ("It is **done**.\n", "")


def test_run_full_disk_names_the_file(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "go", "-q", "-o", "/dev/full", "--engine", script(DONE))
    assert ran.code == 1
    assert ran.err == "agent: cannot write /dev/full: No space left on device.\n"


def run_in_deleted_folder(
    home: Path, tmp_path: Path, *command: str
) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "gone"
    folder.mkdir()
    program = shlex.join([sys.executable, "-P", "-m", "agent", *command])
    return subprocess.run(
        ["sh", "-c", f"cd {folder} && rmdir {folder} && exec {program}"],
        env={**os.environ, "AGENT_HOME": str(home)}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=HANG_SECONDS,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("command", [("run", "go"), ("serve",), ("mcp", "list")])
def test_run_in_a_deleted_folder_is_one_sentence(
    home: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run_in_deleted_folder(home, tmp_path, *command)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = "agent: the working folder does not exist any more: go to another one.\n"
    assert done.stderr.endswith(sentence) and "Traceback" not in done.stderr


def test_approvals_of_all_folders_are_listed_in_a_deleted_one(home: Path, tmp_path: Path) -> None:
    done = run_in_deleted_folder(home, tmp_path, "approvals", "list")
    assert done.returncode == 0 and "Nothing is allowed for good" in done.stderr


@pytest.mark.long
def test_run_project_instructions_read_unless_turned_off(
    agent: RunAgent, home: Path, tmp_path: Path
) -> None:
    """On the embedded model, whose answer they leave as it is."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text(
        "# Guidelines\n\nRun `make lint` before each commit.\n" * 20
    )
    (tmp_path / "work" / "AGENTS.md").write_bytes(b"\xff")

    def run(*options: str) -> tuple[int, str]:
        ran = agent("run", "What is 2+3?", "--json-events", "--temperature", "0", *options)
        response = check(ran.events)
        assert "5" in response["output"][-1]["content"][0]["text"]
        return response["usage"]["input_tokens"], ran.err

    tokens, errors = run()
    assert "work/AGENTS.md is left out: it is not UTF-8 text." in errors
    without, errors = run("--no-project-instructions")
    assert tokens > without + 200 and not errors
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "config.toml").write_text("project_instructions = false\n")
    assert run() == (without, "")
    assert run("--project-instructions")[0] == tokens


@pytest.mark.long
def test_run_token_dump_replays(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    dump = tmp_path / "dump.jsonl"
    first = agent(
        "run", "go", "--json-events", "--dump-tokens", str(dump),
        "--engine", script(python_call("6*7"), DONE),
    )  # fmt: skip
    replayed = agent("run", "go", "--json-events", "--engine", f"script:{dump}")

    def deltas(events: list[dict[str, object]]) -> list[tuple[object, object]]:
        return [(event["type"], event["delta"]) for event in events if "delta" in event]

    assert deltas(first.events) == deltas(replayed.events)
    assert len(dump.read_text().splitlines()) == 2


def test_run_continue_keeps_conversation(agent: RunAgent, script: Script) -> None:
    first = agent("run", "one", "--json-events", "--engine", script(REASONING + DONE))
    second = agent(
        "run", "two", "--continue", "--json-events", "--engine", script(REASONING + DONE)
    )
    before = check(first.events)["usage"]["input_tokens"]
    # The first exchange is in the prompt, without its reasoning ("I think." and its header).
    assert check(second.events)["usage"]["input_tokens"] > before + 8
    assert agent("run", "x", "--resume", "nowhere").code == 2


def test_run_unknown_tool_fails_item(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events",
        "--engine", script(reasoned_call("repo_browser.list", '{"path":"."}'), DONE),
    )  # fmt: skip
    final = check(ran.events)
    call = final["output"][1]
    assert ran.code == 0 and final["status"] == "completed"
    assert (call["server_label"], call["name"]) == ("repo_browser", "list")
    assert call["status"] == "failed" and "repo_browser.list" in call["error"]["message"]


@pytest.mark.parametrize(
    ("recipient", "label"),
    [
        ("python", ("code_interpreter", "python")),
        ("mcp.code_interpreter", ("code_interpreter", "python")),
        ("container.exec", ("shell", "exec")),
        ("browser.search", ("browser", "search")),
    ],
)
def test_run_builtin_tools_not_offered_keep_labels(
    agent: RunAgent, script: Script, recipient: str, label: tuple[str, str]
) -> None:
    engine = script(reasoned_call(recipient), DONE)
    ran = agent("run", "go", "--json-events", "--tools", "none", "--engine", engine)
    call = check(ran.events)["output"][1]
    assert (call["server_label"], call["name"], call["status"]) == (*label, "failed")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "recipient", ["functions.files__list", "files.list", "files__list", "mcp.files.list", "list"]
)
def test_run_tool_recipient_variants_resolve(
    agent: RunAgent, script: Script, tmp_path: Path, recipient: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "seen.txt").touch()
    ran = agent(
        "run", "go", "--json-events", "--root", str(tmp_path / "data"),
        "--engine", script(reasoned_call(recipient), DONE),
    )  # fmt: skip
    call = check(ran.events)["output"][1]
    assert (call["server_label"], call["name"], call["output"]) == ("files", "list", "seen.txt")


@pytest.mark.long
@pytest.mark.parametrize("recipient", ["python", "mcp.code_interpreter", "code_interpreter.exec"])
def test_run_python_recipient_variants_resolve(
    agent: RunAgent, script: Script, recipient: str
) -> None:
    markup = f"<|channel|>analysis to={recipient} code<|message|>'a' + \"\\n\"<|call|>"
    call = check(agent("run", "go", "--json-events", "--engine", script(markup, DONE)).events)[
        "output"
    ][0]
    assert (call["server_label"], call["name"]) == ("code_interpreter", "python")
    assert json.loads(call["arguments"]) == {"code": "'a' + \"\\n\""}
    assert call["output"] == "'a\\n'"


def test_run_python_state_survives_calls(agent: RunAgent, script: Script) -> None:
    engine = script(python_call("x = 20"), python_call("x + 1"), DONE)
    ran = agent("run", "go", "--json-events", "--engine", engine)
    assert mcp_calls(check(ran.events))[1]["output"] == "21"


def test_run_failing_call_answer_follows(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "go", "--json-events", "--engine", script(python_call("1/0"), DONE))
    final = check(ran.events)
    call = final["output"][1]
    assert ran.code == 0 and call["status"] == "failed"
    assert call["error"]["type"] == "mcp_tool_execution_error"
    assert "ZeroDivisionError" in json.dumps(call["error"]["content"])


def test_run_malformed_arguments_fail_item(agent: RunAgent, script: Script) -> None:
    engine = script(reasoned_call("files.list", '{"path": nonsense}'), DONE)
    call = check(agent("run", "go", "--json-events", "--engine", engine).events)["output"][1]
    assert call["status"] == "failed" and "JSON" in call["error"]["message"]


def test_run_repeated_failing_call_stops(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "go", "--json-events", "--engine", script(reasoned_call("nothing")))
    final = check(ran.events)
    assert ran.code == 0 and final["status"] == "completed"
    assert "3 times" in final["output"][-1]["content"][0]["text"]


def test_run_max_tool_calls_answer_follows(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--max-tool-calls", "1",
        "--engine", script(python_call("1"), python_call("2"), DONE),
    )  # fmt: skip
    final = check(ran.events)
    statuses = [call["status"] for call in mcp_calls(final)]
    assert ran.code == 0 and final["status"] == "completed"
    assert statuses == ["completed"]
    notices = [event["message"] for event in ran.events if event["type"] == "agent.notice"]
    assert "A further call was not run: the limit of 1 tool calls is reached." in notices


@pytest.mark.parametrize(
    ("options", "setting", "reasoning"),
    [(("--max-reasoning-tokens", "2"), 5, "one two"), ((), 3, "one two three"), ((), None, None)],
)
def test_run_reasons_for_its_budget_and_answers(
    agent: RunAgent,
    script: Script,
    home: Path,
    options: tuple[str, ...],
    setting: int | None,
    reasoning: str | None,
) -> None:
    config = home / "config" / "config.toml"
    if setting is not None:
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"max_reasoning_tokens = {setting}\n")
    words = "one two three four five six"
    thoughts = f"<|channel|>analysis<|message|>{words}<|end|><|start|>assistant"
    second = "It is so.<|return|>"
    engine = script(
        thoughts + ("" if reasoning else "<|channel|>final<|message|>" + second), second
    )
    final = check(agent("run", "go", "--json-events", "--engine", engine, *options).events)
    texts = [item["content"][0]["text"] for item in final["output"]]
    assert texts == [reasoning or words, "It is so."]


def test_run_max_output_tokens_incomplete(agent: RunAgent, script: Script) -> None:
    long = "<|channel|>final<|message|>" + "word " * 100 + "<|return|>"
    ran = agent("run", "go", "--json-events", "--max-output-tokens", "20", "--engine", script(long))
    final = check(ran.events)
    assert (ran.code, final["status"]) == (4, "incomplete")
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert final["usage"]["output_tokens"] == 20
    assert final["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_run_cut_off_says_which_limit(
    agent: RunAgent, script: Script, quiet: tuple[str, ...]
) -> None:
    engine = script("<|channel|>final<|message|>" + "word " * 1000 + "<|return|>")
    for limit, why in (
        (("--max-output-tokens", "20"), "--max-output-tokens is used up"),
        (("--context", "512"), "the context is full"),
    ):
        ran = agent("run", "go", "--tools", "none", "--engine", engine, *limit, *quiet)
        assert (ran.code, ran.err) == (4, f"agent: The answer was cut off: {why}.\n")


def test_run_call_cut_off_fails_item(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--max-output-tokens", "25",
        "--engine", script(python_call("x = '" + "word " * 100 + "'")),
    )  # fmt: skip
    call = check(ran.events)["output"][-1]
    assert ran.code == 4 and call["status"] == "failed" and call["error"]
    assert json.loads(call["arguments"])["code"].startswith("x = 'word")


def test_run_prompt_exceeds_context_fails(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "word " * 2000, "--json-events", "--context", "1024", "--engine", script(DONE)
    )
    final = check(ran.events)
    assert (ran.code, final["status"]) == (2, "failed")
    assert final["error"]["code"] == "invalid_prompt"


def test_run_timeout_cancels(agent: RunAgent, script: Script) -> None:
    engine = script(python_call("import time; time.sleep(600)"), DONE)
    for seconds in (3, 15, 75, 250):
        ran = agent("run", "go", "--json-events", "--timeout", str(seconds), "--engine", engine)
        final = check(ran.events)
        assert (ran.code, final["status"], final["incomplete_details"]) == (4, "cancelled", None)
        notices = [event["message"] for event in ran.events if event["type"] == "agent.notice"]
        assert "The time of --timeout is over; the partial answer is kept." in notices
        if any(event["type"] == "response.mcp_call.in_progress" for event in ran.events):
            break  # before it is called the time is over only where this machine is busy
    assert final["output"][-1]["status"] == "failed"


def test_run_sigint_cancels_and_keeps_text(home: Path, script: Script, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "agent", "run", "go", "--json-events",
         "--engine", script(hold("<|channel|>final<|message|>" + "word " * 2000, after=50))],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["type"] == "response.output_text.delta":
            # Both are there when it goes on, as timeout(1) may send them: still one request.
            for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
                process.send_signal(number)
            break
    lines += [json.loads(line) for line in process.stdout]
    assert process.wait() == 130
    final = check(lines)
    assert final["status"] == "cancelled" and final["incomplete_details"] is None
    assert final["output"][-1]["content"][0]["text"].startswith("word")
    assert final["output"][-1]["status"] == "incomplete"


LONG = "<|channel|>final<|message|>" + "many words " * 30_000 + "<|return|>"
"""More than a pipe takes while nobody reads."""


def run_unread(
    request: pytest.FixtureRequest, home: Path, folder: Path, *args: str
) -> subprocess.Popen[bytes]:
    """Start `agent run` with both outputs in a pipe, and return once the pipe is full."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*forks.relay(), "run", "go", *args],
        cwd=folder, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, stdout=writing, stderr=writing,
    )  # fmt: skip
    request.addfinalizer(lambda: (os.close(reading), os.close(writing)))
    asyncio.run(wait_until(lambda: process.poll() or not select.select([], [writing], [], 0)[1]))
    return process


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("options", [(), ("--json-events",)])
def test_run_without_reader_ends_at_signal(
    request: pytest.FixtureRequest, home: Path, script: Script, tmp_path: Path,
    number: signal.Signals, code: int, options: tuple[str, ...],
) -> None:  # fmt: skip
    engine = ("--engine", script(LONG), "-o", "answer.txt")
    process = run_unread(request, home, tmp_path, *options, *engine)
    process.send_signal(number)
    assert process.wait(HANG_SECONDS) == code
    assert "many words" in (tmp_path / "answer.txt").read_text()


def test_run_without_reader_ends_with_its_time(
    request: pytest.FixtureRequest, home: Path, script: Script, tmp_path: Path
) -> None:
    process = run_unread(request, home, tmp_path, "--timeout", "3", "--engine", script(LONG))
    assert process.wait(HANG_SECONDS) == 4


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("module", ["agent.cli.process", "agent.cli.main", "agent.cli.run"])
def test_run_signal_while_it_starts_ends_it_silently(
    home: Path, script: Script, tmp_path: Path, number: signal.Signals, code: int, module: str
) -> None:
    """The signal comes after a module was imported that this one imports.

    Python ends itself by SIGINT, which is 130 in a shell too, where that came in an ``exec`` of text,
    as dataclasses have it.
    """
    imported = {
        "agent.cli.process": "agent.util.sanitize", "agent.cli.main": "typer",
        "agent.cli.run": "agent.bootstrap",
    }[module]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "agent", "run", "go",
         "--engine", script(hold(DONE, after=0))],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while process.stderr.readline().rpartition("|")[2].strip() != imported:
        assert process.poll() is None
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait() in (code, -signal.SIGINT if number == signal.SIGINT else code)
    assert "Traceback" not in rest


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_signals_during_exit_ignored(
    home: Path, script: Script, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "agent", "run", "go", "--json-events",
         "--engine", script(hold(DONE, after=0))],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    while '"agent.prefill"' not in process.stdout.readline():
        pass
    process.send_signal(number)
    process.stdout.read()  # all events are written
    while process.poll() is None:
        process.send_signal(number)
    assert process.returncode == 130 and process.stderr.read() == ""


def test_run_output_is_a_pipe_without_reader_first_signal_ends_it(
    home: Path, script: Script, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "agent", "run", "go", "-o", "answer",
         "--dump-tokens", "pipe", "--engine", script(DONE)],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    asyncio.run(wait_until((tmp_path / "answer").exists))  # the pipe is next
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_SECONDS) == 130


def test_run_output_is_its_own_stdout_is_refused(agent: RunAgent, script: Script) -> None:
    for option in ("-o", "--dump-tokens"):
        ran = agent("run", "go", option, "/dev/stdout", "--engine", script(DONE))
        assert (ran.code, ran.out) == (2, "") and "has the answer already" in ran.err


def test_run_stdout_closed_cancels_silently(home: Path, script: Script, tmp_path: Path) -> None:
    """The turn is cancelled and stored; the exit code is that of SIGPIPE."""
    more = thought(" ".join(map(str, range(300)))) + reasoned_call("nothing")
    engine = script(hold(more, 10, tmp_path / "closed"), hold(DONE, after=0))
    agent = shlex.join(forks.relay())
    os.mkfifo(tmp_path / "gone")
    done = subprocess.run(
        ["bash", "-c",
         f"{agent} run go --json-events --engine {engine} |"
         " { head -1; exec <&-; touch closed; }; echo ${PIPESTATUS[0]};"
         f"{{ read < gone; {agent} models list; }} | {{ exec <&-; echo > gone; }};"
         "echo ${PIPESTATUS[0]}"],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_SECONDS,
    )  # fmt: skip
    line, *codes = done.stdout.splitlines()
    with closing(sqlite3.connect(home / "state" / "store.sqlite")) as store:
        assert store.execute("select status from turns").fetchall() == [("cancelled",)]
    assert json.loads(line)["type"] == "agent.start" and codes == ["141", "141"]
    assert done.stderr == ""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((), "prompt is empty"),
        (("",), "prompt is empty"),
        (("go", "--engine", "script:missing.jsonl"), "missing.jsonl"),
        (("go", "--engine", "magic"), "script:FILE"),
        (("go", "--model", "nonsense"), "no model nonsense"),
        (("go", "--model", "gpt-oss-20b"), "agent models pull"),
        (("go", "--tools", "hammer"), "hammer"),
        (("go", "--root", "nowhere"), "nowhere"),
        (("go", "--mcp", "broken"), "NAME=COMMAND"),
        (("go", "--mcp-config", "nowhere.json"), "nowhere.json"),
        (("go", "--system", "@nowhere.txt"), "nowhere.txt"),
        (("go", "--system", "@/dev/zero"), "/dev/zero: it has more than"),
        (("go", "--output-schema", "nowhere.json"), "nowhere.json"),
        (("go", "--output-schema", "."), ". is not a JSON Schema file: Is a directory"),
        (("go", "--output-schema", "/dev/zero"), "it has more than"),
        (("go", "--temperature", "hot"), "'--temperature'"),
        (
            ("go", "--temperature", "inf"),
            "temperature must be a number from 0 to 1,000,000, not inf",
        ),
        (("go", "--hammer"), "--hammer. See agent run --help"),
        (("go", "--seed"), "--seed"),
        (("-5 + 3",), "No such option: -5. A text that begins with - comes behind --."),
        (("go", "now"), "unexpected extra argument"),
        (("go", "-o", "nowhere/answer.md"), "nowhere"),
        (("go", "-o", "."), "is a folder"),
        (("go", "--dump-tokens", "nowhere/ids.jsonl"), "nowhere"),
    ],
)
def test_run_usage_error_one_sentence(agent: RunAgent, args: tuple[str, ...], error: str) -> None:
    ran = agent("run", *args, "--json-events")
    assert ran.code == 2 and ran.out == ""
    assert error in ran.err and ran.err.count("\n") == 1


def test_run_wrong_script_names_line(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "go", "--json-events", "--engine", script(DONE, {"markdown": "x"}))
    assert ran.code == 2 and ran.out == "" and "Line 2" in ran.err


def test_run_effort_and_system_in_response(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--effort", "high", "--system", "Be brief.",
        "--engine", script(DONE),
    )  # fmt: skip
    final = check(ran.events)
    assert final["reasoning"]["effort"] == "high" and final["instructions"] == "Be brief."


def test_run_malformed_harmony_repair_event(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events",
        "--engine", script("<|channel|>analysis<|channel|>final<|message|>ok<|return|>"),
    )  # fmt: skip
    assert check(ran.events)["output"][-1]["content"][0]["text"] == "ok"
    assert any(event["type"] == "agent.repair" for event in ran.events)


def test_run_refused_prompt_not_in_conversation(agent: RunAgent, script: Script) -> None:
    options = ("--json-events", "--context", "600", "--tools", "none", "--engine", script(DONE))
    before = check(agent("run", "one", *options).events)
    assert agent("run", "word " * 2000, "--continue", *options).code == 2
    after = agent("run", "one", "--continue", *options)
    assert after.code == 0
    assert check(after.events)["usage"]["input_tokens"] < before["usage"]["input_tokens"] + 40


def test_run_argument_invalid_utf8_completes(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "caf\udce9", "--json-events", "--engine", script(DONE))
    assert ran.code == 0 and check(ran.events)["status"] == "completed"


def test_run_file_name_invalid_utf8_listed(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    os.close(os.open(os.fsencode(tmp_path / "data") + b"/\xff.txt", os.O_CREAT))
    ran = agent(
        "run", "go", "--json-events", "--root", str(tmp_path / "data"),
        "--engine", script(reasoned_call("files.list"), DONE),
    )  # fmt: skip
    assert ran.code == 0 and ".txt" in check(ran.events)["output"][1]["output"]


def test_run_continue_other_vocabulary_refused(agent: RunAgent, script: Script) -> None:
    assert agent("run", "one", "--engine", script(DONE)).code == 0
    ran = agent(
        "run", "two", "--continue", "--json-events",
        "--model", "qwen3-4b", "--engine", script("hello<|im_end|>"),
    )  # fmt: skip
    assert (ran.code, check(ran.events)["error"]["code"]) == (2, "invalid_prompt")
    assert "o200k_harmony" in check(ran.events)["error"]["message"]
    assert agent("run", "three", "--continue", "--engine", script(DONE)).code == 0


def test_run_output_items_in_start_order(agent: RunAgent, script: Script) -> None:
    reply = '<tool_call>{"name":"files__list","arguments":{}}</tool_call>\nAnd some text.<|im_end|>'
    ran = agent(
        "run", "go", "--json-events",
        "--model", "qwen3-4b", "--engine", script(reply, "Done.<|im_end|>"),
    )  # fmt: skip
    kinds = [item["type"] for item in check(ran.events)["output"]]
    assert kinds == ["mcp_call", "message", "message"]


def test_run_stdout_full_reports_error(home: Path, script: Script, tmp_path: Path) -> None:
    command = f"{shlex.join(forks.relay())} run go --engine {script(DONE)} > /dev/full"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert done.returncode == 1 and "cannot write the output" in done.stderr
    assert "Traceback" not in done.stderr


def test_run_failed_output_file_unchanged(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("before")
    (tmp_path / "no.gguf").write_text("text")
    model = ("--model", str(tmp_path / "no.gguf"))
    ran = agent("run", "go", *model, "-o", str(tmp_path / "a.md"))
    assert ran.code == 1 and (tmp_path / "a.md").read_text() == "before"


def test_run_start_that_failed_leaves_no_conversation(
    agent: RunAgent, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "no.gguf").write_text("text")
    broken = ("--model", str(tmp_path / "no.gguf"))
    missing = ("--model", str(tmp_path / "nowhere.gguf"))
    server = tmp_path / "mcp.json"
    server.write_text('{"mcpServers": {"x": {"command": "/nowhere", "required": true}}}')
    required = ("--engine", script(DONE), "--mcp-config", str(server))
    too_long = ("--engine", script(DONE), "--context", "256", "--system", "word " * 2000)
    failures = ((broken, 1), (missing, 2), (("--model", "nosuch"), 2), (required, 3), (too_long, 2))
    for options, code in failures:
        assert agent("run", "go", *options).code == code, options
    assert json.loads(agent("sessions", "list", "--all", "--json").out) == []
    ran = agent("run", "again", "--continue", "--engine", script(DONE))
    assert ran.code == 2 and "no conversation to continue" in ran.err


def test_run_start_that_failed_leaves_conversation_unchanged(
    agent: RunAgent, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "no.gguf").write_text("text")
    for prompt in ("first", "second"):
        assert agent("run", prompt, "--engine", script(DONE)).code == 0
    before = json.loads(agent("sessions", "list", "--all", "--json").out)
    older = ("--resume", before[1]["id"])
    assert agent("run", "more", *older, "--model", str(tmp_path / "no.gguf")).code == 1
    after = json.loads(agent("sessions", "list", "--all", "--json").out)
    assert [(row["title"], row["turns"]) for row in after] == [("second", 1), ("first", 1)]


def test_run_state_files_owner_only(agent: RunAgent, script: Script, home: Path) -> None:
    agent("run", "go", "--engine", script(DONE))
    for file in (home / "state").iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_run_goes_on_with_what_was_begun(agent: RunAgent, script: Script) -> None:
    began = ("--begin-thought", "They ask", "--begin-answer", "Her name <|end|> ")
    ran = agent("run", "go", "--json-events", *began, "--engine", script("is Ada.<|return|>"))
    final = check(ran.events)
    texts = [item["content"][0]["text"] for item in final["output"]]
    assert ran.code == 0 and texts == ["They ask", "Her name <|end|> is Ada."]
    assert agent("run", "--continue", "again", "--engine", script(DONE)).code == 0
    long = ("--begin-answer", "word " * 20_000, "--context", "2048")
    refused = agent("run", "go", *long, "--engine", script(DONE))
    assert (refused.code, refused.out) == (2, "") and "context holds 2,048" in refused.err

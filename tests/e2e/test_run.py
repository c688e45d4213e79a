"""`agent run` as people and scripts use it, on scripted replies."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.invariants import check
from tests.support.program import Agent

Script = Callable[..., str]

THINK = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>It is **done**.<|return|>"


def python(code: str) -> str:
    return f"{THINK}<|channel|>analysis to=python code<|message|>{code}<|call|>"


def function(recipient: str, arguments: str) -> str:
    header = f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>"
    return f"{THINK}{header}{arguments}<|call|>"


def test_in_a_pipe_only_the_answer_is_on_stdout(agent: Agent, script: Script) -> None:
    ran = agent("run", "go", "--engine", script(python("6*7"), THINK + FINAL))
    assert (ran.code, ran.out) == (0, "It is **done**.\n")
    assert "code_interpreter.python" in ran.err and "42" in ran.err


def test_quiet_says_nothing_on_stderr(agent: Agent, script: Script) -> None:
    ran = agent("run", "go", "-q", "--engine", script(THINK + FINAL))
    assert (ran.code, ran.out, ran.err) == (0, "It is **done**.\n", "")


def test_the_answer_can_go_to_a_file(agent: Agent, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "answer.md"
    assert agent("run", "go", "-o", str(file), "--engine", script(FINAL)).code == 0
    assert file.read_text() == "It is **done**."


def test_stdin_is_the_prompt_or_is_appended(agent: Agent, script: Script) -> None:
    engine = script(FINAL)

    def used(*args: str, stdin: str) -> int:
        ran = agent("run", *args, "--json-events", "--engine", engine, stdin=stdin)
        tokens: int = check(ran.events)["usage"]["input_tokens"]
        return tokens

    short = used("-", stdin="hello")
    assert used(stdin="hello") == short
    assert used("hello", stdin="one two three four") > short


def test_tokens_can_be_dumped_and_replayed(agent: Agent, script: Script, tmp_path: Path) -> None:
    dump = tmp_path / "dump.jsonl"
    first = agent(
        "run", "go", "--json-events", "--dump-tokens", str(dump),
        "--engine", script(python("6*7"), FINAL),
    )  # fmt: skip
    again = agent("run", "go", "--json-events", "--engine", f"script:{dump}")

    def shape(events: list[dict[str, object]]) -> list[tuple[object, object]]:
        return [(e["type"], e.get("delta")) for e in events if "delta" in e]

    assert shape(first.events) == shape(again.events)
    assert len(dump.read_text().splitlines()) == 2


def test_a_conversation_goes_on(agent: Agent, script: Script) -> None:
    first = agent("run", "one", "--json-events", "--engine", script(THINK + FINAL))
    second = agent("run", "two", "--continue", "--json-events", "--engine", script(THINK + FINAL))
    before = check(first.events)["usage"]["input_tokens"]
    # The first exchange stands in the prompt, without its reasoning: "I think." and its header.
    assert check(second.events)["usage"]["input_tokens"] > before + 8
    assert agent("run", "x", "--resume", "nowhere").code == 2


def test_a_call_of_a_tool_that_does_not_exist(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events",
        "--engine", script(function("repo_browser.list", '{"path":"."}'), FINAL),
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
def test_own_tools_keep_their_names_where_they_are_not_offered(
    agent: Agent, script: Script, recipient: str, label: tuple[str, str]
) -> None:
    engine = script(function(recipient, "{}"), FINAL)
    ran = agent("run", "go", "--json-events", "--tools", "none", "--engine", engine)
    call = check(ran.events)["output"][1]
    assert (call["server_label"], call["name"], call["status"]) == (*label, "failed")


@pytest.mark.parametrize(
    "recipient", ["functions.files__list", "files.list", "files__list", "mcp.files.list", "list"]
)
def test_a_tool_is_found_however_it_is_named(
    agent: Agent, script: Script, tmp_path: Path, recipient: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "seen.txt").touch()
    ran = agent(
        "run", "go", "--json-events", "--root", str(tmp_path / "data"),
        "--engine", script(function(recipient, "{}"), FINAL),
    )  # fmt: skip
    call = check(ran.events)["output"][1]
    assert (call["server_label"], call["name"], call["output"]) == ("files", "list", "seen.txt")


@pytest.mark.parametrize("recipient", ["python", "mcp.code_interpreter", "code_interpreter.exec"])
def test_python_is_found_however_it_is_named(agent: Agent, script: Script, recipient: str) -> None:
    markup = f"<|channel|>analysis to={recipient} code<|message|>'a' + \"\\n\"<|call|>"
    call = check(agent("run", "go", "--json-events", "--engine", script(markup, FINAL)).events)[
        "output"
    ][0]
    assert (call["server_label"], call["name"]) == ("code_interpreter", "python")
    assert json.loads(call["arguments"]) == {"code": "'a' + \"\\n\""}
    assert call["output"] == "'a\\n'"


def test_python_keeps_its_state_between_calls(agent: Agent, script: Script) -> None:
    engine = script(python("x = 20"), python("x + 1"), FINAL)
    outputs = [
        item["output"]
        for item in check(agent("run", "go", "--json-events", "--engine", engine).events)["output"]
        if item["type"] == "mcp_call"
    ]
    assert outputs[1] == "21"


def test_a_failing_call_is_told_and_the_answer_still_comes(agent: Agent, script: Script) -> None:
    ran = agent("run", "go", "--json-events", "--engine", script(python("1/0"), FINAL))
    final = check(ran.events)
    call = final["output"][1]
    assert ran.code == 0 and call["status"] == "failed"
    assert call["error"]["type"] == "mcp_tool_execution_error"
    assert "ZeroDivisionError" in json.dumps(call["error"]["content"])


def test_arguments_that_are_no_json_go_back_to_the_model(agent: Agent, script: Script) -> None:
    engine = script(function("files.list", '{"path": nonsense}'), FINAL)
    call = check(agent("run", "go", "--json-events", "--engine", engine).events)["output"][1]
    assert call["status"] == "failed" and "JSON" in call["error"]["message"]


def test_a_model_that_repeats_a_failing_call_is_stopped(agent: Agent, script: Script) -> None:
    ran = agent("run", "go", "--json-events", "--engine", script(function("nothing", "{}")))
    final = check(ran.events)
    assert ran.code == 0 and final["status"] == "completed"
    assert "3 times" in final["output"][-1]["content"][0]["text"]


def test_the_limit_of_tool_calls_is_told_and_the_model_answers(
    agent: Agent, script: Script
) -> None:
    ran = agent(
        "run", "go", "--json-events", "--max-tool-calls", "1",
        "--engine", script(python("1"), python("2"), FINAL),
    )  # fmt: skip
    final = check(ran.events)
    statuses = [item["status"] for item in final["output"] if item["type"] == "mcp_call"]
    assert ran.code == 0 and final["status"] == "completed"
    assert statuses == ["completed", "failed"]


def test_the_limit_of_output_tokens_cuts_off(agent: Agent, script: Script) -> None:
    long = "<|channel|>final<|message|>" + "word " * 100 + "<|return|>"
    ran = agent("run", "go", "--json-events", "--max-output-tokens", "20", "--engine", script(long))
    final = check(ran.events)
    assert (ran.code, final["status"]) == (4, "incomplete")
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert final["usage"]["output_tokens"] == 20
    assert final["output"][-1]["status"] == "incomplete"


def test_a_call_that_is_cut_off_is_failed(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--max-output-tokens", "25",
        "--engine", script(python("x = '" + "word " * 100 + "'")),
    )  # fmt: skip
    call = check(ran.events)["output"][-1]
    assert ran.code == 4 and call["status"] == "failed" and call["error"]
    assert json.loads(call["arguments"])["code"].startswith("x = 'word")


def test_a_prompt_longer_than_the_context(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "word " * 2000, "--json-events", "--context", "1024", "--engine", script(FINAL)
    )
    final = check(ran.events)
    assert (ran.code, final["status"]) == (2, "failed")
    assert final["error"]["code"] == "invalid_prompt"


def test_a_timeout(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--timeout", "8",
        "--engine", script(python("import time; time.sleep(600)"), FINAL),
    )  # fmt: skip
    final = check(ran.events)
    assert (ran.code, final["status"], final["incomplete_details"]) == (4, "cancelled", None)
    assert final["output"][-1]["status"] == "failed"


def test_ctrl_c_stops_and_keeps_what_was_said(home: Path, script: Script, tmp_path: Path) -> None:
    slow = {"markup": "<|channel|>final<|message|>" + "word " * 2000, "delay_ms": 20}
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "agent", "run", "go", "--json-events",
         "--engine", script(slow)],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["type"] == "response.output_text.delta":
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)  # at once: the same wish, as timeout(1) tells it
            break
    lines += [json.loads(line) for line in process.stdout]
    assert process.wait() == 130
    final = check(lines)
    assert final["status"] == "cancelled" and final["incomplete_details"] is None
    assert final["output"][-1]["content"][0]["text"].startswith("word")
    assert final["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_leaves_changes_nothing(
    home: Path, script: Script, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "agent", "run", "go", "--json-events",
         "--engine", script({"markup": FINAL, "delay_ms": 1000})],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    while '"agent.prefill"' not in process.stdout.readline():
        pass
    process.send_signal(number)
    process.stdout.read()  # it has told all
    while process.poll() is None:
        process.send_signal(number)
    assert process.returncode == 130 and process.stderr.read() == ""


def test_stdout_closed_early_is_no_traceback(home: Path, script: Script, tmp_path: Path) -> None:
    """The turn is stopped and kept, and the exit code tells what SIGPIPE would."""
    slow = {"markup": "<|channel|>final<|message|>" + "word " * 500, "delay_ms": 5}
    agent = f"{sys.executable} -I -m agent"
    command = (
        f"{agent} run go --json-events --engine {script(slow)} | head -1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", f"{command}; {agent} models list | true; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    line, *codes = done.stdout.splitlines()
    with closing(sqlite3.connect(home / "state" / "store.sqlite")) as store:
        assert store.execute("select status from turns").fetchall() == [("cancelled",)]
    assert json.loads(line)["type"] == "agent.start" and codes == ["141", "141"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "prompt is empty"),
        (("",), "prompt is empty"),
        (("go", "--engine", "script:missing.jsonl"), "missing.jsonl"),
        (("go", "--engine", "magic"), "script:FILE"),
        (("go", "--model", "nonsense"), "no model nonsense"),
        (("go", "--model", "gpt-oss-20b"), "agent models pull"),
        (("go", "--tools", "hammer"), "hammer"),
        (("go", "--root", "nowhere"), "nowhere"),
        (("go", "--mcp", "broken"), "NAME=command"),
        (("go", "--mcp-config", "nowhere.json"), "nowhere.json"),
        (("go", "--system", "@nowhere.txt"), "nowhere.txt"),
        (("go", "--output-schema", "nowhere.json"), "nowhere.json"),
        (("go", "--temperature", "hot"), "'--temperature'"),
        (("go", "--temperature", "inf"), "temperature is a number from 0 to 1,000,000, not inf"),
        (("go", "--hammer"), "--hammer; see agent run --help"),
        (("go", "--seed"), "--seed"),
        (("go", "now"), "unexpected extra argument"),
        (("go", "-o", "nowhere/answer.md"), "nowhere"),
        (("go", "-o", "."), "is a folder"),
        (("go", "--dump-tokens", "nowhere/ids.jsonl"), "nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    agent: Agent, args: tuple[str, ...], said: str
) -> None:
    ran = agent("run", *args, "--json-events")
    assert ran.code == 2 and ran.out == ""
    assert said in ran.err and ran.err.count("\n") == 1


def test_a_script_that_is_none(agent: Agent, script: Script) -> None:
    ran = agent("run", "go", "--json-events", "--engine", script(FINAL, {"markdown": "x"}))
    assert ran.code == 2 and ran.out == "" and "Line 2" in ran.err


def test_effort_and_instructions_reach_the_response(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--effort", "high", "--system", "Be brief.",
        "--engine", script(FINAL),
    )  # fmt: skip
    final = check(ran.events)
    assert final["reasoning"]["effort"] == "high" and final["instructions"] == "Be brief."


def test_malformed_harmony_is_repaired_and_said(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events",
        "--engine", script("<|channel|>analysis<|channel|>final<|message|>ok<|return|>"),
    )  # fmt: skip
    assert check(ran.events)["output"][-1]["content"][0]["text"] == "ok"
    assert any(event["type"] == "agent.repair" for event in ran.events)


def test_a_prompt_that_was_too_long_is_forgotten(agent: Agent, script: Script) -> None:
    options = ("--json-events", "--context", "600", "--tools", "none", "--engine", script(FINAL))
    before = check(agent("run", "one", *options).events)
    assert agent("run", "word " * 2000, "--continue", *options).code == 2
    after = agent("run", "one", "--continue", *options)
    assert after.code == 0
    assert check(after.events)["usage"]["input_tokens"] < before["usage"]["input_tokens"] + 40


def test_an_argument_that_is_no_text(agent: Agent, script: Script) -> None:
    ran = agent("run", "caf\udce9", "--json-events", "--engine", script(FINAL))
    assert ran.code == 0 and check(ran.events)["status"] == "completed"


def test_a_file_name_that_is_no_text(agent: Agent, script: Script, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    os.close(os.open(os.fsencode(tmp_path / "data") + b"/\xff.txt", os.O_CREAT))
    ran = agent(
        "run", "go", "--json-events", "--root", str(tmp_path / "data"),
        "--engine", script(function("files.list", "{}"), FINAL),
    )  # fmt: skip
    assert ran.code == 0 and ".txt" in check(ran.events)["output"][1]["output"]


def test_a_conversation_does_not_go_on_in_another_vocabulary(agent: Agent, script: Script) -> None:
    assert agent("run", "one", "--engine", script(FINAL)).code == 0
    ran = agent(
        "run", "two", "--continue", "--json-events",
        "--model", "qwen3-4b", "--engine", script("hello<|im_end|>"),
    )  # fmt: skip
    assert (ran.code, check(ran.events)["error"]["code"]) == (2, "invalid_prompt")
    assert "o200k_harmony" in check(ran.events)["error"]["message"]
    assert agent("run", "three", "--continue", "--engine", script(FINAL)).code == 0


def test_output_is_in_the_order_in_which_it_was_begun(agent: Agent, script: Script) -> None:
    said = '<tool_call>{"name":"files__list","arguments":{}}</tool_call>\nAnd some text.<|im_end|>'
    ran = agent(
        "run", "go", "--json-events",
        "--model", "qwen3-4b", "--engine", script(said, "Done.<|im_end|>"),
    )  # fmt: skip
    kinds = [item["type"] for item in check(ran.events)["output"]]
    assert kinds == ["mcp_call", "message", "message"]


def test_output_that_cannot_be_written_is_said(home: Path, script: Script, tmp_path: Path) -> None:
    command = f"{sys.executable} -I -m agent run go --engine {script(FINAL)} > /dev/full"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 1 and "cannot write the output" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_of_before_stays_where_there_is_no_answer(
    agent: Agent, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("before")
    ran = agent("run", "go", "--model", "nowhere.gguf", "-o", str(tmp_path / "a.md"))
    assert ran.code == 1 and (tmp_path / "a.md").read_text() == "before"


def test_what_is_kept_is_for_the_owner_only(agent: Agent, script: Script, home: Path) -> None:
    agent("run", "go", "--engine", script(FINAL))
    for file in (home / "state").iterdir():
        assert file.stat().st_mode & 0o077 == 0, file

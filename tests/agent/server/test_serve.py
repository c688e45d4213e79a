"""`agent serve` as a program, with the embedded model behind it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.agent.server.test_tool_selection import SEEDS
from tests.support.endpoint import events_of, plain
from tests.support.invariants import check
from tests.support.program import Agent
from tests.support.scripts import LONG


@contextmanager
def serving(home: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The program, once it says where it is."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "agent", "serve", "--port", "0", *options],
        cwd=home,
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout and process.stderr
        line = process.stdout.readline()
        found = re.search(r"http://\S+/v1", line)
        assert found, line + process.stderr.read()
        yield found[0], process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> int:
    """Asked to end, it does, and has nothing to complain about."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("", "")
    return process.returncode


def test_the_seeds_request_on_the_embedded_model(home: Path) -> None:
    with serving(home, "--tools", "python") as (url, process):
        answer = httpx2.post(f"{url}/responses", json={**SEEDS, "stream": True}, timeout=60)
        streamed = check(events_of(answer.text))
        body = httpx2.post(f"{url}/responses", json=SEEDS, timeout=60).json()
        assert ended(process) == 0
    _, reasoning, call, message = streamed["output"]
    assert reasoning["content"][0]["text"]
    assert (call["server_label"], call["name"]) == ("code_interpreter", "python")
    assert "56088" in call["output"]
    assert "56088" in message["content"][0]["text"].replace(",", "")
    # Greedy sampling: the second answer is the first one again.
    assert plain(body) == plain(streamed)


def test_an_idle_model_is_unloaded_until_the_next_request(home: Path) -> None:
    def status() -> str:
        return str(httpx2.get(url.replace("/v1", "/health"), timeout=60).json()["status"])

    with serving(home, "--keep-alive", "0") as (url, process):
        for _ in range(2):
            while status() != "asleep":
                assert process.poll() is None
            body = {"input": "hello", "max_output_tokens": 20}
            answer = httpx2.post(f"{url}/responses", json=body, timeout=60)
            assert answer.status_code == 200 and answer.json()["output"]
        assert ended(process) == 0


def test_a_signal_while_it_answers(home: Path, script: Callable[..., str]) -> None:
    with serving(home, "--engine", script(LONG)) as (url, process):
        body = {"input": "x", "stream": True}
        with httpx2.stream("POST", f"{url}/responses", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if "reasoning_text.delta" in line)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert any('"status":"cancelled"' in line for line in rest)
        assert rest[-2:] == ["data: [DONE]", ""]
        assert ended(process) == 0


def test_what_it_refuses_is_one_sentence(agent: Agent) -> None:
    ran = agent("serve", "--host", "0.0.0.0")
    assert ran.code == 2 and "--api-key" in ran.err and ran.err.count("\n") == 1
    ran = agent("serve", "--engine", f"script:{__file__}", "--port", "0")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "script" in ran.err

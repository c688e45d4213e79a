"""`agent serve` as a program, with the embedded model behind it."""

import signal
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.support.endpoint import comparable, events_of
from tests.support.invariants import check
from tests.support.program import RunAgent
from tests.support.requests import SEED_REQUEST
from tests.support.scripts import HELLO, LONG
from tests.support.serve_program import serve_program, terminate
from tests.support.waiting import HANG_SECONDS


@pytest.mark.long
def test_serve_seed_request_on_embedded_model(home: Path) -> None:
    with serve_program(home, "--tools", "python") as (url, process):
        answer = httpx2.post(
            f"{url}/responses", json={**SEED_REQUEST, "stream": True}, timeout=HANG_SECONDS
        )
        streamed = check(events_of(answer.text))
        body = httpx2.post(f"{url}/responses", json=SEED_REQUEST, timeout=HANG_SECONDS).json()
        assert terminate(process) == 0
    _, reasoning, call, message = streamed["output"]
    assert reasoning["content"][0]["text"]
    assert (call["server_label"], call["name"]) == ("code_interpreter", "python")
    assert "56088" in call["output"]
    assert "56088" in message["content"][0]["text"].replace(",", "")
    # Greedy sampling: the second answer is the first one again.
    assert comparable(body) == comparable(streamed)


@pytest.mark.long
def test_serve_keep_alive_unloads_idle_model(home: Path) -> None:
    def status() -> str:
        return str(httpx2.get(url.replace("/v1", "/health"), timeout=HANG_SECONDS).json()["status"])

    with serve_program(home, "--keep-alive", "0") as (url, process):
        for _ in range(2):
            while status() != "asleep":
                assert process.poll() is None
            body = {"input": "hello", "max_output_tokens": 20}
            answer = httpx2.post(f"{url}/responses", json=body, timeout=HANG_SECONDS)
            assert answer.status_code == 200 and answer.json()["output"]
        assert terminate(process) == 0


def test_serve_second_signal_cancels_response(home: Path, script: Callable[..., str]) -> None:
    with serve_program(home, "--engine", script(LONG)) as (url, process):
        body = {"input": "x", "stream": True}
        with httpx2.stream("POST", f"{url}/responses", json=body, timeout=HANG_SECONDS) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if "reasoning_text.delta" in line)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert any('"status":"cancelled"' in line for line in rest)
        assert rest[-2:] == ["data: [DONE]", ""]
        assert process.wait(HANG_SECONDS) == 0


def test_serve_wrong_options_one_sentence(agent: RunAgent) -> None:
    ran = agent("serve", "--host", "0.0.0.0")
    assert ran.code == 2 and "--api-key" in ran.err and ran.err.count("\n") == 1
    ran = agent("serve", "--engine", f"script:{__file__}", "--port", "0")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "script" in ran.err
    ran = agent("serve", "--alias", " ", "--port", "0")
    assert ran.code == 2 and ran.err == "agent: --alias must be a name, not ' '.\n"


def test_serve_aliases_are_models(home: Path, script: Callable[..., str]) -> None:
    options = ("--engine", script(HELLO), "--alias", "gpt-4o", "--alias", "org/other")
    with serve_program(home, *options) as (url, _):
        listed = httpx2.get(f"{url}/models", timeout=HANG_SECONDS).json()["data"]
        assert [model["id"] for model in listed] == ["tiny", "gpt-4o", "org/other"]
        assert (
            httpx2.get(f"{url}/models/org/other", timeout=HANG_SECONDS).json()["id"] == "org/other"
        )
        body = {"model": "org/other", "input": "x"}
        answer = httpx2.post(f"{url}/responses", json=body, timeout=HANG_SECONDS)
        assert answer.json()["status"] == "completed"

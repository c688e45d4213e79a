"""`agent run` beside `agent serve` uses the model that the server has loaded."""

import json
import os
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.invariants import check
from tests.support.program import RunAgent
from tests.support.serve_program import serve_program
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow
USED = "the engine of process {} is used"


@pytest.fixture
def model(tmp_path: Path, tiny_gguf: Path) -> str:
    """A model that is not the embedded one, though it has its weights."""
    return shutil.copy(tiny_gguf, tmp_path / "own.gguf")


@pytest.fixture
def server(home: Path, model: str) -> Iterator[tuple[int, str]]:
    """The process id and address of a server that has loaded the model."""
    with serve_program(home, "--model", model, "--context", "8192", is_fork=False) as (
        url,
        process,
    ):
        ask(url)
        yield process.pid, url
        process.kill()


def ask(url: str) -> None:
    body = json.dumps({"input": "hello", "model": "own", "temperature": 0}).encode()
    request = urllib.request.Request(f"{url}/responses", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG_SECONDS) as response:
        assert json.load(response)["status"] == "completed"


def log_of(home: Path) -> str:
    path = home / "state" / "agent.log"
    return path.read_text() if path.exists() else ""


def test_run_uses_the_servers_model(
    agent: RunAgent, home: Path, model: str, server: tuple[int, str]
) -> None:
    pid, url = server
    options = ("--model", model, "--log-level", "info", "--temperature", "0")
    ran = agent("run", "Multiply 123*456.", "--json-events", *options)
    final = check(ran.events)
    assert ran.code == 0 and "56088" in json.dumps(final["output"])
    assert USED.format(pid) in log_of(home)
    alone = agent("run", "Multiply 123*456.", "--json-events", *options, "--own-engine")
    texts = [
        [item.get("arguments") or item["content"] for item in check(each.events)["output"]]
        for each in (ran, alone)
    ]
    assert texts[0] == texts[1], "tools, constraints and tokens are those of an own engine"
    assert log_of(home).count("is used") == 1
    longer = agent("run", "2+2", *options, "--context", "16384")
    assert longer.code == 0 and log_of(home).count("is used") == 1, (
        "the server's context is shorter"
    )
    ask(url)


@pytest.mark.long
def test_run_goes_on_when_the_server_is_killed(
    agent: RunAgent, home: Path, model: str, server: tuple[int, str]
) -> None:
    os.kill(server[0], signal.SIGKILL)
    ran = agent("run", "2+2", "--model", model, "--log-level", "info")
    assert (ran.code, ran.out) == (0, "2 + 2 = 4.\n") and "is used" not in log_of(home)
    with serve_program(home, "--model", model, is_fork=False) as (url, process):
        ask(url)
        assert agent("run", "2+2", "--model", model, "--log-level", "info").code == 0
        assert USED.format(process.pid) in log_of(home), "the new one took the socket over"

"""The whole program, as a process: how fast `agent run` decodes, how soon it says something."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.engine.llama.thread_tuning import Threads
from tests.bench import Row, beside
from tests.bench.bare import Bare
from tests.bench.models import model

PROMPT = "Multiply 123*456 using the mcp.code_interpreter tool."
PYTHON = (sys.executable, "-I", "-c", "pass")
AGENT = (sys.executable, "-I", "-m", "agent")


def rows() -> list[Row]:
    bare = Bare(model())
    tokens = _run()["output_tokens"]
    found = [
        beside(
            "agent run, its own decode speed",
            "tokens/s",
            lambda: float(_run()["tokens_per_second"]),
            "bare llama_decode + argmax",
            lambda: bare.tokens_per_second(list(range(1000, 1350)), tokens, Threads(1, 1)),
        ),
        beside("agent run, to the first event", "1/s", _first_event, "python -c pass", _python),
        beside("agent --help", "1/s", _help, "python -c pass", _python),
    ]
    bare.close()
    return found


@functools.cache
def _environment() -> dict[str, str]:
    return {**os.environ, "AGENT_HOME": tempfile.mkdtemp(prefix="agent-bench-")}


def _start() -> subprocess.Popen[str]:
    command = [
        *AGENT,
        "run",
        PROMPT,
        "--json-events",
        "--model",
        str(model()),
        "--temperature",
        "0",
    ]
    return subprocess.Popen(
        command, env=_environment(), cwd=Path(tempfile.gettempdir()),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _run() -> dict[str, int]:
    """The measures of one run."""
    out, _ = _start().communicate()
    return next(
        event for line in out.splitlines() if (event := json.loads(line))["type"] == "agent.stats"
    )


def _first_event() -> float:
    begin = time.perf_counter()
    process = _start()
    assert process.stdout is not None
    process.stdout.readline()
    seconds = time.perf_counter() - begin
    process.kill()
    process.communicate()
    return 1 / seconds


def _timed(*command: str) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return 1 / (time.perf_counter() - begin)


def _python() -> float:
    return _timed(*PYTHON)


def _help() -> float:
    return _timed(*AGENT, "--help")

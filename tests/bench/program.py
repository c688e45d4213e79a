"""Group ``program``: decode speed and start-up time of `agent run` as a process."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.engine.placement.placement import ThreadCounts
from tests.bench import BenchmarkRow, compare
from tests.bench.bare_llama import BareLlama
from tests.bench.models import embedded_model

PROMPT = "Multiply 123*456 using the mcp.code_interpreter tool."
PYTHON = (sys.executable, "-I", "-c", "pass")
AGENT = (sys.executable, "-I", "-m", "agent")


def rows() -> list[BenchmarkRow]:
    """Decode speed, and starts per second of `agent run` and `agent --help`."""
    bare = BareLlama(embedded_model())
    tokens = _run_stats()["output_tokens"]
    table = [
        compare(
            "agent run, its own decode speed",
            "tokens/s",
            lambda: float(_run_stats()["tokens_per_second"]),
            "bare llama_decode + argmax",
            lambda: bare.tokens_per_second(list(range(1000, 1350)), tokens, ThreadCounts(1, 1)),
        ),
        compare(
            "agent run, to the first event",
            "1/s",
            _first_events_per_second,
            "python -c pass",
            _python_runs_per_second,
        ),
        compare(
            "agent --help", "1/s", _helps_per_second, "python -c pass", _python_runs_per_second
        ),
    ]
    bare.close()
    return table


@functools.cache
def _environment() -> dict[str, str]:
    return {**os.environ, "AGENT_HOME": tempfile.mkdtemp(prefix="agent-bench-")}


def _start_run() -> subprocess.Popen[str]:
    command = [
        *AGENT,
        "run",
        PROMPT,
        "--json-events",
        "--model",
        str(embedded_model()),
        "--temperature",
        "0",
    ]
    return subprocess.Popen(
        command, env=_environment(), cwd=Path(tempfile.gettempdir()),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _run_stats() -> dict[str, int]:
    """The ``agent.stats`` event of one run."""
    out, _ = _start_run().communicate()
    return next(
        event for line in out.splitlines() if (event := json.loads(line))["type"] == "agent.stats"
    )


def _first_events_per_second() -> float:
    begin = time.perf_counter()
    process = _start_run()
    assert process.stdout is not None
    process.stdout.readline()
    seconds = time.perf_counter() - begin
    process.kill()
    process.communicate()
    return 1 / seconds


def _runs_per_second(*command: str) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return 1 / (time.perf_counter() - begin)


def _python_runs_per_second() -> float:
    return _runs_per_second(*PYTHON)


def _helps_per_second() -> float:
    return _runs_per_second(*AGENT, "--help")

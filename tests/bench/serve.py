"""Our endpoint beside llama-server's, over HTTP: speed and the first text, and what events cost us."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import Row, progress
from tests.bench.client import Answer, stream
from tests.bench.http_overhead import measure, write_script
from tests.bench.models import endless
from tests.bench.ours import QUESTION, process
from tests.bench.peer import LlamaServer

COUNT = 200
ROUNDS = 9


@dataclass(frozen=True)
class Endpoint:
    path: str
    body: dict[str, Any]

    async def ask(self, port: int) -> Answer:
        """Greedy, and exactly COUNT tokens; what the server says of them is checked."""
        answer = await stream(
            port, self.path, {"model": "default", "temperature": 0.0, **self.body}
        )
        last = answer.events[-1][1]
        usage = (last.get("response") or last)["usage"]
        written = usage.get("completion_tokens") or usage.get("output_tokens")
        assert written == COUNT, f"{self.path}: {written} tokens instead of {COUNT}"
        return answer


ENDPOINTS = (
    Endpoint("/v1/responses", {"input": QUESTION, "max_output_tokens": COUNT, "store": False}),
    Endpoint(
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": COUNT,
            "stream_options": {"include_usage": True},
        },
    ),
)


def rows() -> list[Row]:
    """Two rows for each endpoint, then what a token costs us beside itself."""
    with process(endless()) as ours, LlamaServer(endless()) as server:
        found = [row for end in ENDPOINTS for row in _rows(end, ours.port, server.port)]
    return [*found, *_overhead()]


def _rows(endpoint: Endpoint, ours: int, theirs: int) -> list[Row]:
    async def pair() -> tuple[Answer, Answer]:
        return await endpoint.ask(ours), await endpoint.ask(theirs)

    progress(f"{endpoint.path} …")
    with asyncio.Runner() as runner:
        runner.run(pair())
        pairs = [runner.run(pair()) for _ in range(ROUNDS)]
    speeds = [(COUNT / a.last, COUNT / b.last) for a, b in pairs]
    firsts = [(a.first * 1000, b.first * 1000) for a, b in pairs]

    def row(name: str, unit: str, values: list[tuple[float, float]]) -> Row:
        mine, others = zip(*values, strict=True)
        return Row(f"{endpoint.path}, {name}", unit, "llama-server", list(mine), list(others))

    return [row("streamed", "tokens/s", speeds), row("first text", "ms", firsts)]


def _overhead() -> list[Row]:
    """Processor time of the process, with a scripted engine in the model's place."""
    before = os.environ.get("AGENT_HOME")
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as home:
        os.environ["AGENT_HOME"] = home
        script = write_script(Path(home))
        found = [asyncio.run(measure(script)) for _ in range(3)]
        if before is None:
            del os.environ["AGENT_HOME"]
        else:
            os.environ["AGENT_HOME"] = before
    return [
        Row("a turn's events, CPU", "µs/token", "", [each["turn_us_per_token"] for each in found]),
        Row("their way over HTTP, CPU", "µs/token", "", [e["http_us_per_token"] for e in found]),
    ]

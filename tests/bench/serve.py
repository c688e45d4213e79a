"""Group ``serve``: our HTTP endpoints beside llama-server's, and the CPU cost of our events."""

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import BenchmarkRow, progress
from tests.bench.agent_process import QUESTION, start_agent
from tests.bench.http_overhead import measure, write_script
from tests.bench.llama_server import LlamaServer
from tests.bench.models import endless_model
from tests.bench.stream_client import TimedStream, post_stream

TOKENS = 200
ROUNDS = 9


@dataclass(frozen=True)
class StreamedEndpoint:
    """An endpoint that both servers have, and the body of a request for a long answer."""

    path: str
    body: dict[str, Any]
    ours: dict[str, Any] = field(default_factory=dict)
    """What of the body is another for us."""

    async def request(self, port: int, body: dict[str, Any]) -> TimedStream:
        """Request TOKENS tokens, greedily, and check that the server has counted as many."""
        answer = await post_stream(
            port, self.path, {"model": "default", "temperature": 0.0, **body}
        )
        last = answer.events[-1][1]
        usage = (last.get("response") or last)["usage"]
        written = usage.get("completion_tokens") or usage.get("output_tokens")
        assert written == TOKENS, f"{self.path}: {written} tokens instead of {TOKENS}"
        return answer


BEGUN_ANSWER = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "status": "in_progress", "content": ""},
]
"""Has the answer's header in the prompt. llama-server finds no template in the model and takes one
without headers: its first token is text already, where ours would be the fourth."""
ENDPOINTS = (
    StreamedEndpoint(
        "/v1/responses",
        {"input": QUESTION, "max_output_tokens": TOKENS, "store": False},
        {"input": BEGUN_ANSWER},
    ),
    StreamedEndpoint(
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": TOKENS,
            "stream_options": {"include_usage": True},
        },
    ),  # begins no answer: our first text comes three tokens later
)


def rows() -> list[BenchmarkRow]:
    """Two rows for each endpoint, then the CPU cost of our events and of HTTP per token."""
    with start_agent(endless_model()) as ours, LlamaServer(endless_model()) as server:
        table = [
            row
            for endpoint in ENDPOINTS
            for row in _endpoint_rows(endpoint, ours.port, server.port)
        ]
    return [*table, *_overhead_rows()]


def _endpoint_rows(endpoint: StreamedEndpoint, ours: int, theirs: int) -> list[BenchmarkRow]:
    async def pair() -> tuple[TimedStream, TimedStream]:
        own_body = endpoint.body | endpoint.ours
        return await endpoint.request(ours, own_body), await endpoint.request(theirs, endpoint.body)

    progress(f"{endpoint.path} …")
    with asyncio.Runner() as runner:
        runner.run(pair())
        pairs = [runner.run(pair()) for _ in range(ROUNDS)]
    speeds = [(TOKENS / a.seconds_to_last_text, TOKENS / b.seconds_to_last_text) for a, b in pairs]
    firsts = [(a.seconds_to_first_text * 1000, b.seconds_to_first_text * 1000) for a, b in pairs]

    def row(name: str, unit: str, values: list[tuple[float, float]]) -> BenchmarkRow:
        our_values, their_values = zip(*values, strict=True)
        return BenchmarkRow(
            f"{endpoint.path}, {name}", unit, "llama-server", list(our_values), list(their_values)
        )

    return [row("streamed", "tokens/s", speeds), row("first text", "ms", firsts)]


def _overhead_rows() -> list[BenchmarkRow]:
    """CPU time of a process with a scripted engine in the model's place."""
    before = os.environ.get("AGENT_HOME")
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as home:
        os.environ["AGENT_HOME"] = home
        script = write_script(Path(home))
        costs = [asyncio.run(measure(script)) for _ in range(3)]
        if before is None:
            del os.environ["AGENT_HOME"]
        else:
            os.environ["AGENT_HOME"] = before
    return [
        BenchmarkRow(
            "a turn's events, CPU", "µs/token", "", [cost["turn_us_per_token"] for cost in costs]
        ),
        BenchmarkRow(
            "their way over HTTP, CPU",
            "µs/token",
            "",
            [cost["http_us_per_token"] for cost in costs],
        ),
    ]

"""Group ``path``: a token from the sampler through parser, event and JSON to the client.

The peer is llama-server's ``/completion`` stream, which parses nothing. Prompt ids, model, thread
counts and sampling are the same, and both have the prompt in their caches. The rate is the number of
tokens over the seconds from the request to the last text.
"""

import asyncio
from pathlib import Path
from typing import Any

from tests.bench import BenchmarkRow, compare
from tests.bench.agent_process import AgentProcess, start_agent
from tests.bench.llama_server import FULL_DISTRIBUTION, GREEDY, GREEDY_TOP_K, LlamaServer
from tests.bench.models import endless_model, large_model

MIN_P: dict[str, Any] = {**FULL_DISTRIBUTION, "min_p": 0.05}
"""The whole distribution but for min-p, as llama-server has by default."""


def rows() -> list[BenchmarkRow]:
    """For each model the rows of SETTINGS."""
    return [
        *_model_rows(
            endless_model(), "embedded", 200, n=9, goals={"greedy": "≥ 1.2", "temperature 1": "≥ 5"}
        ),
        *_model_rows(large_model(), "1.4 GB MXFP4", 64, n=7, goals={"greedy": "≥ 0.98"}),
    ]


SETTINGS = {
    "greedy": GREEDY,
    "greedy, top-k 1": GREEDY_TOP_K,
    "temperature 1": FULL_DISTRIBUTION,
    "temperature 1, min-p 0.05": MIN_P,
}


def _model_rows(
    path: Path, name: str, count: int, n: int, goals: dict[str, str]
) -> list[BenchmarkRow]:
    with start_agent(path) as ours, LlamaServer(path) as server:
        return [
            _row(
                f"to the line, {name}, {kind}",
                ours,
                server,
                count,
                n,
                goals.get(kind, ""),
                sampling,
            )
            for kind, sampling in SETTINGS.items()
        ]


def _row(
    name: str,
    ours: AgentProcess,
    server: LlamaServer,
    count: int,
    n: int,
    goal: str,
    sampling: dict[str, Any],
) -> BenchmarkRow:
    def our_rate() -> float:
        return count / ours.run_turn(count, **sampling).seconds_to_last_text

    def their_rate() -> float:
        return (
            count
            / asyncio.run(server.complete(ours.prompt, count, **sampling)).seconds_to_last_text
        )

    return compare(name, "tokens/s", our_rate, "llama-server", their_rate, n, goal)

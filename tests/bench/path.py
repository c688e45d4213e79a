"""The whole path of a token beside llama-server: sampled, parsed, an event, a line of JSON, read.

Theirs is the stream of ``/completion``, which parses nothing; the prompt's ids, the model, the threads
and the sampling are the same, the prompt is in both caches. Tokens over the seconds from asking to the
last text.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.bench import Row, beside
from tests.bench.models import endless, tenth
from tests.bench.ours import Ours, process
from tests.bench.peer import BEST, GREEDY, UNCUT, LlamaServer

CUT: dict[str, Any] = {**UNCUT, "min_p": 0.05}
"""The least probability is llama-server's default."""


def rows() -> list[Row]:
    """Of each model greedy and with temperature 1, without and with a least probability."""
    return [
        *_of(endless(), "embedded", 200, n=9, goals={"greedy": "≥ 1.2", "temperature 1": "≥ 5"}),
        *_of(tenth(), "1.4 GB MXFP4", 64, n=7, goals={"greedy": "≥ 0.98"}),
    ]


SETTINGS = {
    "greedy": GREEDY,
    "greedy, top-k 1": BEST,
    "temperature 1": UNCUT,
    "temperature 1, min-p 0.05": CUT,
}


def _of(path: Path, name: str, count: int, n: int, goals: dict[str, str]) -> list[Row]:
    with process(path) as ours, LlamaServer(path) as server:
        return [
            _row(f"to the line, {name}, {kind}", ours, server, count, n, goals.get(kind, ""), how)
            for kind, how in SETTINGS.items()
        ]


def _row(
    name: str, ours: Ours, server: LlamaServer, count: int, n: int, goal: str, how: dict[str, Any]
) -> Row:
    def mine() -> float:
        return count / ours.turn(count, **how).last

    def theirs() -> float:
        return count / asyncio.run(server.complete(ours.prompt, count, **how)).last

    return beside(name, "tokens/s", mine, "llama-server", theirs, n, goal)

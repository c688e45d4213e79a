"""Group ``batch``: `agent batch` beside llama-server asked for as many of the same lines at a time."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2

from tests.bench import BenchmarkRow, compare
from tests.bench.llama_server import LlamaServer
from tests.bench.models import endless_model, large_model

PARALLEL = 16
QUESTION = "Item {}: say in a few words what a {} customer of the shop in {} wants to know."
SYSTEM = (
    "You are ChatGPT, a large language model trained by OpenAI.\nReasoning: medium\n\n"
    "# Valid channels: analysis, commentary, final."
)
"""With it llama-server, which writes no system message of gpt-oss for files without its template, reads
as many tokens as `agent` does."""
KINDS, CITIES = ("new", "loyal", "late", "young"), ("Oslo", "Rome", "Lima", "Kyoto", "Accra")


def rows() -> list[BenchmarkRow]:
    """A row for each model."""
    return [
        _row("embedded", endless_model(), lines=64, tokens=64, n=5),
        _row("1.4 GB", large_model(), lines=32, tokens=32, n=3),
    ]


def _bodies(lines: int, tokens: int) -> list[dict[str, Any]]:
    """Requests of different lengths of prompt and answer."""
    return [
        {
            "model": "default",
            "messages": [
                {
                    "role": "user",
                    "content": QUESTION.format(n, KINDS[n % 4], CITIES[n % 5])
                    + " Be brief." * (n % 7),
                }
            ],
            "max_tokens": tokens + 8 * (n % 5),
            "temperature": 0.0,
        }
        for n in range(lines)
    ]


def _row(name: str, model: Path, lines: int, tokens: int, n: int) -> BenchmarkRow:
    bodies = _bodies(lines, tokens)
    with (
        LlamaServer(model, streams=PARALLEL, context=1024) as server,
        tempfile.TemporaryDirectory(prefix="agent-bench-") as folder,
    ):
        return compare(
            f"agent batch, {name}, {lines} lines, {PARALLEL} at a time",
            "tokens/s",
            lambda: _our_speed(model, bodies, Path(folder)),
            "llama-server",
            lambda: asyncio.run(_their_speed(server, bodies)),
            n=n,
            goal="≥ 1.1",
        )


def _our_speed(model: Path, bodies: list[dict[str, Any]], folder: Path) -> float:
    source, results = folder / "in.jsonl", folder / "out.jsonl"
    url = "/v1/chat/completions"
    lines = ({"custom_id": str(n), "url": url, "body": body} for n, body in enumerate(bodies))
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results.unlink(missing_ok=True)
    ran = subprocess.run(
        [sys.executable, "-I", "-m", "agent", "batch", str(source), "-o", str(results), "--model",
         str(model), "--parallel", str(PARALLEL), "--no-loop-guard", "--own-engine",
         "--context", str(1024 * PARALLEL)],
        env={**os.environ, "AGENT_HOME": str(folder / "home")},
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    summary = re.search(r"([\d,]+) tokens in ([\d.]+) s", ran.stderr)
    assert summary is not None, ran.stderr
    count = int(summary[1].replace(",", ""))
    assert count == sum(body["max_tokens"] for body in bodies), f"{count} tokens"
    return count / float(summary[2])


async def _their_speed(server: LlamaServer, bodies: list[dict[str, Any]]) -> float:
    """Their tokens/s with as many clients."""
    queue = iter(bodies)
    count = 0

    async def work(http: httpx2.AsyncClient) -> None:
        nonlocal count
        for body in queue:
            messages = [{"role": "system", "content": SYSTEM}, *body["messages"]]
            answer = await http.post(
                f"{server.url}/v1/chat/completions", json=body | {"messages": messages}
            )
            count += answer.json()["usage"]["completion_tokens"]

    begun = time.perf_counter()
    async with httpx2.AsyncClient(timeout=None) as http:
        await asyncio.gather(*(work(http) for _ in range(PARALLEL)))
    seconds = time.perf_counter() - begun
    assert count == sum(body["max_tokens"] for body in bodies), f"{count} tokens of llama-server"
    return count / seconds

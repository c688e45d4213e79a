"""Our side in a process of its own, on a model whose threads are given: turns, and an endpoint.

``python -m tests.bench.ours MODEL DECODE PREFILL`` says in one line of JSON where it serves and what
ids its prompt has. Then every line of JSON that it reads (count, and fields of Sampling) is one turn,
answered with the lines that ``agent run --json-events`` writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cli.run import JsonLines
from agent.config.settings import Places
from agent.conversation.conversation import Conversation, User
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.thread_tuning import Threads
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Engine, Sampling
from agent.formats.harmony.token_ids import CHANNEL, FINAL, MESSAGE
from agent.formats.protocol import Format
from agent.models import catalog
from agent.models.loader import Loading, Report
from agent.runtime.runtime import Runtime
from agent.server.serve import listen, serve_in
from agent.turn.loop import Turn
from agent.turn.options import Options
from tests.bench import CACHE
from tests.bench.client import Answer, read
from tests.bench.peer import threads
from tools.mcp.host import Host
from tools.policy.approvals import Policy

QUESTION = "Tell me a long story about a lighthouse, a storm and the people of the village."
CONTEXT = 32_768


@dataclass(frozen=True)
class WithThreads(Loading):
    """Makes an engine that measures no threads."""

    threads: Threads | None = None

    def prepare(self, placement: Placement, report: Report) -> tuple[Engine, Format]:
        engine, form = Loading.prepare(self, placement, report)
        assert isinstance(engine, LlamaEngine)
        engine.threads = self.threads
        return engine, form


class Chosen(Runtime):
    """A runtime without tools, with given threads; its files lie below CACHE."""

    def __init__(self, path: Path, chosen: Threads, context: int = CONTEXT) -> None:
        where = Places(CACHE, CACHE, CACHE)
        model = catalog.choose(str(path), where)
        super().__init__(model, Host([]), Policy(), where, context=context)
        self.loading = WithThreads(model, where, context=context, threads=chosen)


class Story(Turn):
    """Begins within the answer: whatever is sampled is its text."""

    def _opening(self) -> list[int]:
        return [CHANNEL, FINAL, MESSAGE]


def story(runtime: Runtime, count: int, sampling: Sampling) -> Story:
    options = Options(sampling=sampling, max_output_tokens=count)
    return Story(runtime, Conversation("c"), [User(QUESTION)], options)


async def _main(path: Path, chosen: Threads) -> None:
    runtime = Chosen(path, chosen)
    await runtime.start()
    await runtime.ready()
    first = story(runtime, 1, Sampling())
    first.prepare()
    prompt = first.conversation.prompt(runtime.format) + first._opening()
    listener = listen("127.0.0.1", 0, None)
    serving = asyncio.create_task(serve_in(runtime, Options(), listener))
    print(json.dumps({"port": listener.getsockname()[1], "prompt": prompt}), flush=True)
    face = JsonLines(sys.stdout)
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        turn = story(runtime, asked.pop("count"), Sampling(**asked)).start()
        async for batch in turn.log.follow():
            for event in batch:
                face.show(event)
            face.flush()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await runtime.close()


class Ours:
    """That process, seen from outside."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout
        self._in, self._out = process.stdin, process.stdout
        begin = json.loads(self._out.readline())
        self.port: int = begin["port"]
        self.prompt: list[int] = begin["prompt"]

    def turn(self, count: int, **sampling: Any) -> Answer:
        """One turn of exactly `count` tokens."""
        command = json.dumps({"count": count, **sampling})
        lines: list[tuple[float, bytes]] = []
        clock = time.perf_counter
        asked = clock()
        self._in.write(command.encode() + b"\n")
        self._in.flush()
        while line := self._out.readline():
            lines.append((clock(), line))
            if line.startswith((b'{"type":"response.incomplete"', b'{"type":"response.completed"')):
                break
        answer = read(asked, lines)
        written = answer.events[-1][1]["response"]["usage"]["output_tokens"]
        assert written == count, f"we wrote {written} tokens, not {count}"
        return answer


@contextlib.contextmanager
def process(path: Path) -> Iterator[Ours]:
    """Ours on the model at `path`, loaded."""
    chosen = threads(path)
    command = [sys.executable, "-m", "tests.bench.ours", str(path)]
    running = subprocess.Popen(
        [*command, str(chosen.decode), str(chosen.prefill)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Ours(running)
    finally:
        running.communicate()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), Threads(int(sys.argv[2]), int(sys.argv[3]))))

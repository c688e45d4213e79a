"""Our side as a process of its own, with fixed thread counts: turns over pipes, and an endpoint.

``python -m tests.bench.agent_process MODEL DECODE PREFILL`` writes its port and its prompt's ids as
one line of JSON. Then each line of JSON on stdin (``count``, and fields of Sampling) runs a turn,
whose events it writes as ``agent run --json-events`` does.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cli.render import JsonLinesRenderer
from agent.config.paths import Paths
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import Engine, Sampling
from agent.formats.harmony.token_ids import CHANNEL_ID, FINAL_ID, MESSAGE_ID
from agent.formats.protocol import Format
from agent.models import resolve
from agent.models.loader import LoadProgress, ModelLoader
from agent.runtime.runtime import Runtime
from agent.server.http.options import ServerOptions
from agent.server.serve import listen, serve_in
from agent.turn.constraints import TurnConstraints
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from agent.turn.prepared import PreparedTurn
from tests.bench import CACHE
from tests.bench.llama_server import thread_counts
from tests.bench.stream_client import TimedStream, parse_stream
from tools.mcp.host import Host
from tools.policy.approvals import Policy

QUESTION = "Tell me a long story about a lighthouse, a storm and the people of the village."
CONTEXT_TOKENS = 32_768
ANSWER_HEADER = [CHANNEL_ID, FINAL_ID, MESSAGE_ID]
"""``<|channel|>final<|message|>``"""


@dataclass(frozen=True)
class FixedThreadsLoader(ModelLoader):
    """Creates an engine with fixed thread counts, which measures none."""

    threads: ThreadCounts | None = None

    def create_engine(
        self, placement: Placement, on_progress: LoadProgress
    ) -> tuple[Engine, Callable[[], Format]]:
        engine, create_format = ModelLoader.create_engine(self, placement, on_progress)
        assert isinstance(engine, LlamaEngine)
        engine.threads = self.threads
        return engine, create_format


class FixedThreadsRuntime(Runtime):
    """A runtime without tools, with fixed thread counts; its folders are CACHE."""

    def __init__(self, path: Path, threads: ThreadCounts, context: int = CONTEXT_TOKENS) -> None:
        paths = Paths(CACHE, CACHE, CACHE)
        model = resolve.resolve_model(str(path), paths)
        loader = FixedThreadsLoader(
            model, paths, context=context, prefix_cache_bytes=0, threads=threads
        )
        super().__init__(loader, Host([]), Policy())


class AnswerConstraints(TurnConstraints):
    """Force the header of the final answer: whatever is sampled is its text."""

    def forced_prefix(self, *, first: bool) -> list[int]:
        return ANSWER_HEADER


class AnswerTurn(Turn):
    """A turn whose generation begins within the final answer."""

    def prepare(self) -> PreparedTurn:
        prepared = super().prepare()
        prepared.generations._constraints = AnswerConstraints(
            self.options, prepared.calls.declared, self.format, self.emit
        )
        return prepared


def answer_turn(runtime: Runtime, count: int, sampling: Sampling) -> AnswerTurn:
    """Create a turn that answers QUESTION with at most so many tokens."""
    options = TurnOptions(sampling=sampling, max_output_tokens=count)
    return AnswerTurn(runtime, Conversation("c"), [User(QUESTION)], options)


def _exit_if_failed(serving: asyncio.Task[None]) -> None:
    """End this process where its server cannot run: a request to it would wait for ever."""
    if not serving.cancelled() and (error := serving.exception()):
        traceback.print_exception(error)
        os._exit(1)


async def _main(path: Path, threads: ThreadCounts) -> None:
    runtime = FixedThreadsRuntime(path, threads)
    await runtime.start()
    await runtime.ready()
    first = answer_turn(runtime, 1, Sampling())
    first.prepare()
    prompt = first.conversation.prompt(first.format) + ANSWER_HEADER
    listener = listen("127.0.0.1", 0, None)
    serving = asyncio.create_task(serve_in(runtime, TurnOptions(), listener, ServerOptions()))
    serving.add_done_callback(_exit_if_failed)
    print(json.dumps({"port": listener.getsockname()[1], "prompt": prompt}), flush=True)
    renderer = JsonLinesRenderer(sys.stdout)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        turn = answer_turn(runtime, command.pop("count"), Sampling(**command)).start()
        async for batch in turn.log.follow():
            for event in batch:
                renderer.show(event)
            renderer.flush()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await runtime.close()


class AgentProcess:
    """The parent's side of that process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout
        self._in, self._out = process.stdin, process.stdout
        begin = json.loads(self._out.readline())
        self.port: int = begin["port"]
        self.prompt: list[int] = begin["prompt"]

    def run_turn(self, count: int, **sampling: Any) -> TimedStream:
        """Run a turn of exactly `count` tokens; ``sampling``: fields of Sampling."""
        command = json.dumps({"count": count, **sampling})
        lines: list[tuple[float, bytes]] = []
        clock = time.perf_counter
        requested_at = clock()
        self._in.write(command.encode() + b"\n")
        self._in.flush()
        while line := self._out.readline():
            lines.append((clock(), line))
            if line.startswith((b'{"type":"response.incomplete"', b'{"type":"response.completed"')):
                break
        answer = parse_stream(requested_at, lines)
        written = answer.events[-1][1]["response"]["usage"]["output_tokens"]
        assert written == count, f"we wrote {written} tokens, not {count}"
        return answer


@contextlib.contextmanager
def start_agent(path: Path) -> Iterator[AgentProcess]:
    """Run the process for the duration of the block, with the model at `path` loaded."""
    threads = thread_counts(path)
    command = [sys.executable, "-m", "tests.bench.agent_process", str(path)]
    running = subprocess.Popen(
        [*command, str(threads.decode), str(threads.prefill)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield AgentProcess(running)
    finally:
        running.communicate()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), ThreadCounts(int(sys.argv[2]), int(sys.argv[3]))))

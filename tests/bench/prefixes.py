"""Group ``prefixes``: prompts that an earlier process has read, from disk or anew.

A process is an engine that is loaded and closed. The peer for the first rows is our own engine without
the cache on disk; for the last llama-server, whose slot was saved and is restored by ``/slots``.
"""

import asyncio
import json
import random
import tempfile
import time
import urllib.request
from pathlib import Path

from agent.engine.llama.disk_cache import SEGMENT_TOKENS, DiskCacheOptions
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.protocol import Request, Sampling, Tokens
from tests.bench import BenchmarkRow, compare
from tests.bench.llama_server import GREEDY, LlamaServer, thread_counts
from tests.bench.models import bench_placement, embedded_model, large_model, large_model_name

HEAD_TOKENS, QUESTION_TOKENS = 1_500, 30
CONVERSATION_TOKENS = 16_000
SLOT_TOKENS = 2_000
"""llama-server reads them again, once for each of its runs."""
CONTEXT_TOKENS = 20_480


def rows() -> list[BenchmarkRow]:
    """First tokens of a second process, and what writing costs the one that writes."""
    found = []
    for path, name, runs in (
        (embedded_model(), "embedded", 7),
        (large_model(), large_model_name(), 3),
    ):
        with tempfile.TemporaryDirectory() as folder:
            disk = DiskCacheOptions(Path(folder), 10**10)
            _process(path, disk, _prompt(0, HEAD_TOKENS), 1)
            found.append(
                compare(
                    f"second process, head of {HEAD_TOKENS} tokens, load to first token, {name}",
                    "s",
                    lambda path=path, disk=disk: _process(path, disk, _prompt(1, HEAD_TOKENS), 1),
                    "without the cache",
                    lambda path=path: _process(path, None, _prompt(1, HEAD_TOKENS), 1),
                    n=runs,
                    goal="≤ 0.25",
                )
            )
    path = large_model()
    with tempfile.TemporaryDirectory() as folder:
        disk = DiskCacheOptions(Path(folder), 10**10)
        began = time.perf_counter()
        _process(path, disk, _prompt(0, CONVERSATION_TOKENS), 1)
        anew = time.perf_counter() - began
        prompt = _prompt(0, CONVERSATION_TOKENS) + _prompt(1, 0)
        again = [_process(path, disk, prompt, 1) for _ in range(4)][1:]
        name = f"{CONVERSATION_TOKENS} tokens after a restart, to first token, {large_model_name()}"
        found.append(BenchmarkRow(name, "s", "reading them", again, [anew] * 3, "≤ 0.15"))
        theirs = _restored_by_llama_server(path, Path(folder), prompt)
        prompt = _prompt(0, SLOT_TOKENS)
        _process(path, disk, prompt, 1)
        name = f"{SLOT_TOKENS} tokens from disk to first token, {large_model_name()}"
        ours = [_process(path, disk, prompt, 1, load=False) for _ in range(3)]
        found.append(BenchmarkRow(name, "s", "llama-server's slot", ours, theirs))
    found.append(_copy_milliseconds(path))
    return found


def _prompt(question: int, head: int) -> list[int]:
    """A head, the same for all, and a question."""
    words = random.Random(0)
    ids = [words.randrange(1000, 190_000) for _ in range(head)]
    words = random.Random(question + 1)
    return ids + [words.randrange(1000, 190_000) for _ in range(QUESTION_TOKENS)]


def _engine(path: Path, disk: DiskCacheOptions | None) -> LlamaEngine:
    placement = bench_placement(CONTEXT_TOKENS)
    return LlamaEngine(path, placement=placement, threads=thread_counts(path), disk_cache=disk)


def _process(
    path: Path, disk: DiskCacheOptions | None, prompt: list[int], count: int, load: bool = True
) -> float:
    """Seconds from the load, or from the request alone, to the first token."""

    async def run() -> float:
        engine = _engine(path, disk)
        began = time.perf_counter()
        await engine.load()
        if not load:
            began = time.perf_counter()
        seconds = await _first_token(engine, prompt, count, began)
        await engine.close()
        return seconds

    return asyncio.run(run())


async def _first_token(engine: LlamaEngine, prompt: list[int], count: int, began: float) -> float:
    head = min(HEAD_TOKENS, len(prompt) - QUESTION_TOKENS)
    request = Request(prompt, count, sampling=Sampling(temperature=0), head_tokens=head)
    first = 0.0
    async for event in engine.generate(request):
        if isinstance(event, Tokens):
            first = first or time.perf_counter() - began
    return first


def _restored_by_llama_server(path: Path, folder: Path, prompt: list[int]) -> list[float]:
    """Seconds from restoring a saved slot to the first token, in three servers."""
    options = ("--slot-save-path", str(folder))

    def slot(server: LlamaServer, action: str) -> None:
        address = f"http://127.0.0.1:{server.port}/slots/0?action={action}"
        body = json.dumps({"filename": "slot.bin"}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=600).close()

    def first_token(server: LlamaServer) -> float:
        return asyncio.run(server.complete(prompt, 1, **GREEDY)).seconds_to_first_text

    with LlamaServer(path, context=CONTEXT_TOKENS, options=options) as server:
        first_token(server)
        slot(server, "save")
    times = []
    for _ in range(3):
        with LlamaServer(path, context=CONTEXT_TOKENS, options=options) as server:
            began = time.perf_counter()
            slot(server, "restore")
            times.append(time.perf_counter() - began + first_token(server))
    return times


def _copy_milliseconds(path: Path) -> BenchmarkRow:
    """How long copying a segment takes: so long a request may wait for it."""
    model = LlamaModel(path, bench_placement(CONTEXT_TOKENS), lambda done: True)
    model.set_threads(1, 1)
    ids = _prompt(0, SEGMENT_TOKENS)[:SEGMENT_TOKENS]
    assert model.decode([BatchSpan(0, ids, 0)]) == "done"
    times = []
    for _ in range(20):
        began = time.perf_counter()
        model.save_range(0, 0, SEGMENT_TOKENS)
        times.append(1000 * (time.perf_counter() - began))
    model.close()
    name = f"a copy of {SEGMENT_TOKENS} tokens, for which a request may wait, {large_model_name()}"
    return BenchmarkRow(name, "ms", "", times, goal="≤ 50")

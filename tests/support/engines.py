"""A random model, engines that have models loaded, requests for them, and results of
generations."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from agent.engine.grammars import ANY_OBJECT, Grammar, GrammarCompiler
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import Finished, Generation, Prefill, Request, Sampling, Tokens, Waiting
from agent.engine.remote.client import RemoteTiming
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony import encoding as vocabulary
from agent.formats.harmony.format import HarmonyFormat
from agent.tiny import vocabulary as tiny
from tests.support import random_gguf
from tests.support.fake_vllm import FakeVllm

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model: 512 tokens, a window of 32, a context of 4096.

    All of its experts are used, so that rounding never chooses another.
    """
    folder = tmp_path_factory.mktemp("models")
    return random_gguf.write_model(folder / "random.gguf", random_gguf.RandomShape(experts=2))


@pytest.fixture
async def engine(gguf: Path) -> AsyncIterator[LlamaEngine]:
    """The random model, loaded."""
    engine = LlamaEngine(gguf, threads=ThreadCounts(1, 1))
    await engine.load()
    yield engine
    await engine.close()


@pytest.fixture(scope="session")
def encoding(tmp_path_factory: pytest.TempPathFactory) -> HarmonyEncoding:
    """The vocabulary of GPT-OSS, once for the whole run."""
    return vocabulary.load_encoding(tiny.ranks, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def renderer(encoding: HarmonyEncoding) -> HarmonyFormat:
    return HarmonyFormat(encoding)


@pytest.fixture(scope="module")
def form(encoding: HarmonyEncoding) -> HarmonyFormat:
    return HarmonyFormat(encoding)


@pytest.fixture
async def vllm(form: HarmonyFormat) -> AsyncIterator[tuple[FakeVllm, RemoteEngine]]:
    """A fake vLLM server, and an engine that uses it."""
    fake = FakeVllm(form)
    await fake.start()
    engine = RemoteEngine(RemoteEndpoint("vllm", fake.url), form)
    await engine.load()
    yield fake, engine
    await engine.close()
    await fake.stop()


def set_timing(engine: RemoteEngine, timing: RemoteTiming) -> None:
    """Change how long a loaded engine waits for its servers."""
    for replica in engine.replicas.all:
        replica.client.timing = timing


def user_request(form: HarmonyFormat, text: str, **more: Any) -> Request:
    """Make the request of a user's message; greedy by default."""
    more.setdefault("sampling", Sampling(temperature=0))
    return Request(
        [*form.user_message(text), *form.open_assistant()], stop_ids=form.stop_ids, **more
    )


def random_prompt(length: int, seed: int = 0) -> list[int]:
    """Ids of the random model's vocabulary."""
    source = random.Random(seed)
    return [source.randrange(512) for _ in range(length)]


def greedy_request(
    ids: list[int], tokens: int | None = 20, stop_ids: frozenset[int] = frozenset()
) -> Request:
    """A greedy request for at most `tokens` tokens."""
    return Request(ids, max_tokens=tokens, stop_ids=stop_ids, sampling=Sampling(temperature=0))


def assert_likely(gguf: Path, prompt: list[int], generated: list[int]) -> None:
    """Assert that an empty model finds each generated token best, but for the rounding of its
    logits: the random model's best tokens are close to each other."""
    model = LlamaModel(gguf, Placement(4096), lambda done: True)
    model.set_threads(1, 1)
    for start in range(0, len(prompt), model.ubatch):
        model.decode([BatchSpan(0, prompt[start : start + model.ubatch], start)])
    for n, token in enumerate(generated):
        if n:
            model.decode([BatchSpan(0, [generated[n - 1]], len(prompt) + n - 1)])
        assert model.logits()[token] >= model.logits().max() - 0.1
    model.close()


@dataclass
class DigitsConstraint:
    """Allows only these tokens, and after `count` of them the stop id."""

    digits: list[int]
    stop_id: int
    count: int = 4
    accepted: list[int] = field(default_factory=list)

    pending: None = None

    def accept(self, token: int) -> bool:
        if token not in self.allowed():
            return False
        self.accepted.append(token)
        return True

    def allowed(self) -> npt.NDArray[np.intp]:
        return np.array(self.digits if len(self.accepted) < self.count else [self.stop_id])


def block_compiler(compiler: GrammarCompiler) -> threading.Event:
    """Keep the compiling thread busy until the returned event is set."""
    gate = threading.Event()

    def wait_for_gate() -> Grammar:
        gate.wait()
        return ANY_OBJECT

    compiler.submit_first_usable(wait_for_gate)
    return gate


@dataclass
class GenerationResult:
    """What a generation yielded."""

    prefills: list[Prefill]
    ids: list[int]
    finished: Finished


async def read_generation(
    generation: Generation,
    on_item: Callable[[Prefill | Waiting | Tokens | Finished], object] = lambda item: None,
) -> GenerationResult:
    """Read a generation to its end, calling `on_item` with every item; asserts the items' order."""
    prefills: list[Prefill] = []
    ids: list[int] = []
    finished = None
    async for item in generation:
        assert finished is None, "nothing comes after Finished"
        match item:
            case Prefill():
                assert not ids, "prefill comes before tokens"
                prefills.append(item)
            case Tokens():
                assert item.ids
                ids += item.ids
            case Finished():
                finished = item
        on_item(item)
    assert finished and (prefills or finished.reason == "cancelled")
    assert finished.output_tokens == len(ids)
    return GenerationResult(prefills, ids, finished)

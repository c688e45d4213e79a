"""A random model, an engine that has it loaded, and what a generation gave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.thread_tuning import Threads
from agent.engine.protocol import (
    Finished,
    Generation,
    Prefill,
    Request,
    Sampling,
    Tokens,
    Waiting,
)
from agent.engine.remote.endpoint import Address
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony import encoding as vocabulary
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.harmony.renderer import Renderer
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
    return random_gguf.write(folder / "random.gguf", random_gguf.Shape(experts=2))


@pytest.fixture
async def engine(gguf: Path) -> AsyncIterator[LlamaEngine]:
    """The random model, loaded."""
    engine = LlamaEngine(gguf, threads=Threads(1, 1))
    await engine.load()
    yield engine
    await engine.close()


@pytest.fixture(scope="session")
def encoding(tmp_path_factory: pytest.TempPathFactory) -> HarmonyEncoding:
    """The vocabulary of GPT-OSS, once for the whole run."""
    return vocabulary.encoding(tiny.ranks, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def renderer(encoding: HarmonyEncoding) -> Renderer:
    return Renderer(encoding)


@pytest.fixture(scope="module")
def form(encoding: HarmonyEncoding) -> HarmonyFormat:
    return HarmonyFormat(encoding)


@pytest.fixture
async def vllm(form: HarmonyFormat) -> AsyncIterator[tuple[FakeVllm, RemoteEngine]]:
    """What stands in for vLLM, and an engine that has it loaded."""
    fake = FakeVllm(form)
    await fake.start()
    engine = RemoteEngine(Address("vllm", fake.url), form)
    await engine.load()
    yield fake, engine
    await engine.close()
    await fake.stop()


def asked(form: HarmonyFormat, text: str, **more: Any) -> Request:
    """What a person's message becomes; greedy unless said otherwise."""
    more.setdefault("sampling", Sampling(temperature=0))
    return Request([*form.user(text), *form.open_assistant()], stop=form.stop, **more)


@dataclass
class Read:
    """What a generation yielded."""

    prefills: list[Prefill]
    ids: list[int]
    finished: Finished


async def read(
    generation: Generation,
    at: Callable[[Prefill | Waiting | Tokens | Finished], object] = lambda item: None,
) -> Read:
    """Read it to its end, calling `at` with every item; the order is checked."""
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
        at(item)
    assert finished and (prefills or finished.reason == "cancelled")
    assert finished.output_tokens == len(ids)
    return Read(prefills, ids, finished)

"""A model that llama-server runs, as it is built."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt
import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.thread_tuning import Threads
from agent.engine.placement.placement import Placement
from agent.engine.protocol import (
    ContextOverflow,
    EngineError,
    Finished,
    Logprob,
    Request,
    Sampling,
    Tokens,
    Waiting,
)
from agent.engine.remote import generation as remote_generation
from agent.engine.remote import health
from agent.engine.remote.endpoint import Address
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.bench.build import ready
from tests.bench.peer import LlamaServer
from tests.support.engines import asked, read
from tests.support.program import Agent

CONTEXT = 2048
LLAMA = "\N{LLAMA}"


# --- llama-server, the real one ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def built() -> None:
    """llama-server, where it has been built (`python -m tests.bench.build`)."""
    if not ready():
        pytest.skip("llama-server is not built: python -m tests.bench.build")


@pytest.fixture(scope="module")
def server(built: None, tiny_gguf: Path) -> Iterator[LlamaServer]:
    with LlamaServer(tiny_gguf, context=CONTEXT, streams=2, chosen=Threads(1, 1)) as running:
        yield running


@pytest.fixture
async def remote(server: LlamaServer, form: HarmonyFormat) -> AsyncIterator[RemoteEngine]:
    engine = RemoteEngine(Address("llama-server", f"http://127.0.0.1:{server.port}"), form)
    await engine.load()
    yield engine
    await engine.close()


@pytest.fixture
async def local(tiny_gguf: Path) -> AsyncIterator[LlamaEngine]:
    engine = LlamaEngine(tiny_gguf, placement=Placement(CONTEXT), threads=Threads(1, 1))
    await engine.load()
    yield engine
    await engine.close()


async def test_the_same_tokens_as_here(
    remote: RemoteEngine, local: LlamaEngine, form: HarmonyFormat
) -> None:
    request = asked(form, "Tell me about yourself, please.", logprobs=2, max_tokens=200)
    there: list[Logprob] = []
    here: list[Logprob] = []

    def keep(into: list[Logprob]) -> Callable[[Any], None]:
        return lambda item: into.extend(item.logprobs) if isinstance(item, Tokens) else None

    got = await read(remote.generate(request), keep(there))
    expected = await read(local.generate(request), keep(here))
    assert remote.context_length == CONTEXT
    assert got.ids == expected.ids and got.finished.reason == "stop"
    assert [each.token for each in there] == got.ids
    assert np.allclose([e.logprob for e in there], [e.logprob for e in here], atol=0.05)
    assert [len(each.top) for each in there] == [2] * len(got.ids)
    again = await read(remote.generate(request))
    assert again.ids == got.ids and again.finished.cached_tokens > 0


async def test_what_the_server_leaves_out_of_a_character_is_there(
    remote: RemoteEngine, local: LlamaEngine, form: HarmonyFormat
) -> None:
    parts = form.plain(f" {LLAMA}")
    assert len(parts) == 3
    likely = Sampling(temperature=0, logit_bias=tuple((token, 100.0) for token in parts))
    request = asked(form, LLAMA, sampling=likely, max_tokens=12)
    got, expected = await read(remote.generate(request)), await read(local.generate(request))
    assert got.ids == expected.ids


@dataclass
class Digits:
    """Only these tokens may be said, and then the stop."""

    digits: list[int]
    stop: int
    most: int = 4
    said: list[int] = field(default_factory=list)

    pending: None = None

    def accept(self, token: int) -> bool:
        if token not in self.allowed():
            return False
        self.said.append(token)
        return True

    def allowed(self) -> npt.NDArray[np.intp]:
        return np.array(self.digits if len(self.said) < self.most else [self.stop])


@pytest.mark.parametrize("eager", [0.0, 100.0])
async def test_only_what_is_allowed_is_said(
    remote: RemoteEngine, local: LlamaEngine, form: HarmonyFormat, eager: float
) -> None:
    """Also by a model that would rather stop at once."""
    likely = Sampling(temperature=0, logit_bias=((max(form.stop), eager),))
    digits = [token for digit in "0123456789" for token in form.plain(digit)]
    said = []
    for engine in (remote, local):
        held = Digits(digits, max(form.stop))
        request = asked(form, "Tell me about yourself.", sampling=likely, constraint=held)
        got = await read(engine.generate(request))
        assert got.finished.reason == "stop" and held.said == got.ids
        said.append(got.ids)
    assert said[0] == said[1] and len(said[0]) == 5


async def test_limits(remote: RemoteEngine, form: HarmonyFormat) -> None:
    request = asked(form, "Tell me about yourself, please.", max_tokens=3)
    got = await read(remote.generate(request))
    assert (len(got.ids), got.finished.reason) == (3, "length")
    with pytest.raises(ContextOverflow):
        remote.generate(Request([100] * CONTEXT))
    laid = await read(remote.generate(Request(form.user("Something else"), max_tokens=0)))
    assert (laid.ids, laid.finished.reason) == ([], "length")


async def test_who_goes_away_frees_the_server(
    remote: RemoteEngine, server: LlamaServer, form: HarmonyFormat
) -> None:
    endless = Sampling(temperature=0, logit_bias=tuple((stop, -100.0) for stop in form.stop))
    generation = remote.generate(asked(form, "hello", sampling=endless))
    async for item in generation:
        if isinstance(item, Tokens):
            generation.cancel()
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
        async with asyncio.timeout(60):
            while any(slot["is_processing"] for slot in (await client.get("/slots")).json()):
                pass  # it was asked; that takes its time


async def test_killed_while_it_speaks(
    built: None, tiny_gguf: Path, form: HarmonyFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_generation, "PAUSES", (0.01,))
    monkeypatch.setattr(health, "GONE", 0.0)
    with LlamaServer(tiny_gguf, context=CONTEXT, chosen=Threads(1, 1)) as server:
        url = f"http://127.0.0.1:{server.port}"
        engine = RemoteEngine(Address("llama-server", url), form)
        await engine.load()
        endless = Sampling(temperature=0, logit_bias=tuple((stop, -100.0) for stop in form.stop))
        said = 0
        with pytest.raises(EngineError, match=f"{url} went away after .* is kept"):
            async for item in engine.generate(asked(form, "hello", sampling=endless)):
                said += len(item.ids) if isinstance(item, Tokens) else 0
                if said > 5:
                    server.kill()
        with pytest.raises(EngineError, match=r"does not answer \(.*\) after 0 s: start it"):
            await read(engine.generate(asked(form, "hello")))
        await engine.close()
        with pytest.raises(EngineError, match=r"No llama-server answers at .*: start it"):
            await engine.load()


async def test_killed_and_started_again(built: None, tiny_gguf: Path, form: HarmonyFormat) -> None:
    """Whoever asks meanwhile is told, and answered."""
    with LlamaServer(tiny_gguf, context=CONTEXT, chosen=Threads(1, 1)) as server:
        engine = RemoteEngine(Address("llama-server", f"http://127.0.0.1:{server.port}"), form)
        await engine.load()
        server.kill()
        told: list[str] = []
        async for item in engine.generate(asked(form, "hello", max_tokens=5)):
            if isinstance(item, Waiting):
                told.append(item.message)
                if len(told) == 1:
                    await asyncio.to_thread(server.__enter__)
        assert "does not answer" in told[0] and told[1].endswith("can answer again.")
        assert isinstance(item, Finished) and item.output_tokens == 5
        await engine.close()


async def test_another_vocabulary_is_refused(built: None, gguf: Path, form: HarmonyFormat) -> None:
    with LlamaServer(gguf, context=512, chosen=Threads(1, 1)) as server:
        engine = RemoteEngine(Address("llama-server", f"http://127.0.0.1:{server.port}"), form)
        with pytest.raises(EngineError, match="another vocabulary"):
            await engine.load()


# --- a router: llama-server without a model of its own ------------------------------------------------


@pytest.fixture(scope="module")
def router(built: None, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; it has one model."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "small.gguf").symlink_to(tiny_gguf)
    with LlamaServer(
        None, context=CONTEXT, chosen=Threads(1, 1), more=["--models-dir", str(folder)]
    ) as it:
        yield f"http://127.0.0.1:{it.port}"


async def test_a_routers_model_goes_by_its_name(
    router: str, local: LlamaEngine, form: HarmonyFormat
) -> None:
    engine = RemoteEngine(Address("llama-server", router, model="small"), form)
    await engine.load()
    request = asked(form, "Tell me about yourself, please.", max_tokens=20)
    got, expected = await read(engine.generate(request)), await read(local.generate(request))
    assert got.ids == expected.ids and engine.context_length == CONTEXT
    await engine.close()
    with pytest.raises(EngineError, match=r"set model in models\.toml to one of .*small"):
        await RemoteEngine(Address("llama-server", router), form).load()
    with pytest.raises(EngineError, match="'other' not found"):
        await RemoteEngine(Address("llama-server", router, model="other"), form).load()


async def test_a_model_that_is_not_served_is_told(server: LlamaServer, form: HarmonyFormat) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with pytest.raises(EngineError, match="does not serve other; it has "):
        await RemoteEngine(Address("llama-server", url, model="other"), form).load()


# --- the program --------------------------------------------------------------------------------------


def test_the_program_runs_a_servers_model(server: LlamaServer, home: Path, agent: Agent) -> None:
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text(
        f'[far]\nengine = "llama-server"\nurl = "http://127.0.0.1:{server.port}/v1"\n'
        "sampling = { temperature = 0.0 }\n"
    )
    prompt = "Multiply 123*456 using the mcp.code_interpreter tool."
    done = agent("run", prompt, "--model", "far", "--json-events")
    start, *_, stats, end = done.events
    assert (done.code, start["engine"], start["context_length"]) == (0, "llama-server", CONTEXT)
    call = next(item for item in end["response"]["output"] if item["type"] == "mcp_call")
    assert call["output"].strip() == "56088"
    assert stats["type"] == "agent.stats" and stats["cached_tokens"] > 0
    listed = agent("models", "list").out
    assert "* far" in listed and "on a server" in listed
    doctor = agent("doctor", "--model", "far").out
    assert f"llama-server at http://127.0.0.1:{server.port}: 2,048 tokens" in doctor

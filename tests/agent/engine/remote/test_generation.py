"""Generations of a real llama-server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.thread_counts import ThreadCounts
from agent.engine.placement.placement import Placement
from agent.engine.protocol import (
    ContextOverflowError,
    EngineError,
    Finished,
    Logprob,
    Request,
    Sampling,
    Tokens,
    Waiting,
)
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import RemoteEngine
from agent.engine.remote.health import RemoteTiming
from agent.formats.harmony.format import HarmonyFormat
from tests.bench.build_llama import is_built
from tests.bench.llama_server import LlamaServer
from tests.support.engines import DigitsConstraint, read_generation, user_request
from tests.support.program import RunAgent

CONTEXT = 2048
LLAMA = "\N{LLAMA}"


# --- llama-server ---


@pytest.fixture(scope="module")
def built() -> None:
    """llama-server, where it has been built (`python -m tests.bench.build_llama`)."""
    if not is_built():
        pytest.skip("llama-server is not built: python -m tests.bench.build_llama")


@pytest.fixture(scope="module")
def server(built: None, tiny_gguf: Path) -> Iterator[LlamaServer]:
    with LlamaServer(tiny_gguf, context=CONTEXT, streams=2, threads=ThreadCounts(1, 1)) as running:
        yield running


@pytest.fixture
async def remote(server: LlamaServer, form: HarmonyFormat) -> AsyncIterator[RemoteEngine]:
    engine = RemoteEngine(RemoteEndpoint("llama-server", f"http://127.0.0.1:{server.port}"), form)
    await engine.load()
    yield engine
    await engine.close()


@pytest.fixture
async def local(tiny_gguf: Path) -> AsyncIterator[LlamaEngine]:
    engine = LlamaEngine(tiny_gguf, placement=Placement(CONTEXT), threads=ThreadCounts(1, 1))
    await engine.load()
    yield engine
    await engine.close()


async def test_generate_equals_the_local_engine(
    remote: RemoteEngine, local: LlamaEngine, form: HarmonyFormat
) -> None:
    request = user_request(form, "Tell me about yourself, please.", logprobs=2, max_tokens=200)
    remote_logprobs: list[Logprob] = []
    local_logprobs: list[Logprob] = []

    def collect(into: list[Logprob]) -> Callable[[Any], None]:
        return lambda item: into.extend(item.logprobs) if isinstance(item, Tokens) else None

    result = await read_generation(remote.generate(request), collect(remote_logprobs))
    expected = await read_generation(local.generate(request), collect(local_logprobs))
    assert remote.context_length == CONTEXT
    assert result.ids == expected.ids and result.finished.reason == "stop"
    assert [each.token for each in remote_logprobs] == result.ids
    remote_values = [each.logprob for each in remote_logprobs]
    assert np.allclose(remote_values, [each.logprob for each in local_logprobs], atol=0.05)
    assert [len(each.top) for each in remote_logprobs] == [2] * len(result.ids)
    again = await read_generation(remote.generate(request))
    assert again.ids == result.ids and again.finished.cached_tokens > 0


async def test_generate_restores_omitted_tokens_of_a_character(
    remote: RemoteEngine, local: LlamaEngine, form: HarmonyFormat
) -> None:
    parts = form.encode_text(f" {LLAMA}")
    assert len(parts) == 3
    likely = Sampling(temperature=0, logit_bias=tuple((token, 100.0) for token in parts))
    request = user_request(form, LLAMA, sampling=likely, max_tokens=12)
    result, expected = (
        await read_generation(remote.generate(request)),
        await read_generation(local.generate(request)),
    )
    assert result.ids == expected.ids


@pytest.mark.parametrize("eager", [0.0, 100.0])
async def test_generate_obeys_a_constraint(
    remote: RemoteEngine, local: LlamaEngine, form: HarmonyFormat, eager: float
) -> None:
    """Even if the model would rather stop at once."""
    likely = Sampling(temperature=0, logit_bias=((max(form.stop_ids), eager),))
    digits = [token for digit in "0123456789" for token in form.encode_text(digit)]
    outputs = []
    for engine in (remote, local):
        constraint = DigitsConstraint(digits, max(form.stop_ids))
        request = user_request(
            form, "Tell me about yourself.", sampling=likely, constraint=constraint
        )
        result = await read_generation(engine.generate(request))
        assert result.finished.reason == "stop" and constraint.accepted == result.ids
        outputs.append(result.ids)
    assert outputs[0] == outputs[1] and len(outputs[0]) == 5


async def test_generate_limits(remote: RemoteEngine, form: HarmonyFormat) -> None:
    request = user_request(form, "Tell me about yourself, please.", max_tokens=3)
    result = await read_generation(remote.generate(request))
    assert (len(result.ids), result.finished.reason) == (3, "length")
    with pytest.raises(ContextOverflowError):
        remote.generate(Request([100] * CONTEXT))
    prefilled = await read_generation(
        remote.generate(Request(form.user_message("Something else"), max_tokens=0))
    )
    assert (prefilled.ids, prefilled.finished.reason) == ([], "length")


async def test_cancel_frees_the_server(
    remote: RemoteEngine, server: LlamaServer, form: HarmonyFormat
) -> None:
    endless = Sampling(temperature=0, logit_bias=tuple((stop, -100.0) for stop in form.stop_ids))
    generation = remote.generate(user_request(form, "hello", sampling=endless))
    async for item in generation:
        if isinstance(item, Tokens):
            generation.cancel()
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
        async with asyncio.timeout(60):
            while any(slot["is_processing"] for slot in (await client.get("/slots")).json()):
                pass  # each request takes its time


async def test_server_killed_while_streaming_raises(
    built: None, tiny_gguf: Path, form: HarmonyFormat
) -> None:
    timing = RemoteTiming(retry_pauses=(0.01,), unreachable_wait=0.0)
    with LlamaServer(tiny_gguf, context=CONTEXT, threads=ThreadCounts(1, 1)) as server:
        url = f"http://127.0.0.1:{server.port}"
        engine = RemoteEngine(RemoteEndpoint("llama-server", url), form, timing=timing)
        await engine.load()
        endless = Sampling(
            temperature=0, logit_bias=tuple((stop, -100.0) for stop in form.stop_ids)
        )
        count = 0
        with pytest.raises(EngineError, match=f"{url} went away after .* is kept"):
            async for item in engine.generate(user_request(form, "hello", sampling=endless)):
                count += len(item.ids) if isinstance(item, Tokens) else 0
                if count > 5:
                    server.kill()
        with pytest.raises(EngineError, match=r"does not answer \(.*\) after 0 s: start it"):
            await read_generation(engine.generate(user_request(form, "hello")))
        await engine.close()
        with pytest.raises(EngineError, match=r"No llama-server answers at .*: start it"):
            await engine.load()


async def test_server_killed_and_restarted_is_waited_for(
    built: None, tiny_gguf: Path, form: HarmonyFormat
) -> None:
    """A generation meanwhile reports that it waits, and then continues."""
    with LlamaServer(tiny_gguf, context=CONTEXT, threads=ThreadCounts(1, 1)) as server:
        engine = RemoteEngine(
            RemoteEndpoint("llama-server", f"http://127.0.0.1:{server.port}"), form
        )
        await engine.load()
        server.kill()
        messages: list[str] = []
        async for item in engine.generate(user_request(form, "hello", max_tokens=5)):
            if isinstance(item, Waiting):
                messages.append(item.message)
                if len(messages) == 1:
                    await asyncio.to_thread(server.__enter__)
        assert "does not answer" in messages[0] and messages[1].endswith("can answer again.")
        assert isinstance(item, Finished) and item.output_tokens == 5
        await engine.close()


async def test_load_other_vocabulary_raises(built: None, gguf: Path, form: HarmonyFormat) -> None:
    with LlamaServer(gguf, context=512, threads=ThreadCounts(1, 1)) as server:
        engine = RemoteEngine(
            RemoteEndpoint("llama-server", f"http://127.0.0.1:{server.port}"), form
        )
        with pytest.raises(EngineError, match="another vocabulary"):
            await engine.load()


# --- a router: llama-server without a model of its own ---


@pytest.fixture(scope="module")
def router(built: None, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a router with one model."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "small.gguf").symlink_to(tiny_gguf)
    with LlamaServer(
        None, context=CONTEXT, threads=ThreadCounts(1, 1), options=["--models-dir", str(folder)]
    ) as it:
        yield f"http://127.0.0.1:{it.port}"


async def test_load_model_of_a_router_by_name(
    router: str, local: LlamaEngine, form: HarmonyFormat
) -> None:
    engine = RemoteEngine(RemoteEndpoint("llama-server", router, model="small"), form)
    await engine.load()
    request = user_request(form, "Tell me about yourself, please.", max_tokens=20)
    result, expected = (
        await read_generation(engine.generate(request)),
        await read_generation(local.generate(request)),
    )
    assert result.ids == expected.ids and engine.context_length == CONTEXT
    await engine.close()
    with pytest.raises(EngineError, match=r"set model in models\.toml to one of .*small"):
        await RemoteEngine(RemoteEndpoint("llama-server", router), form).load()
    with pytest.raises(EngineError, match="'other' not found"):
        await RemoteEngine(RemoteEndpoint("llama-server", router, model="other"), form).load()


async def test_load_model_not_served_raises(server: LlamaServer, form: HarmonyFormat) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with pytest.raises(EngineError, match="does not serve other; it has "):
        await RemoteEngine(RemoteEndpoint("llama-server", url, model="other"), form).load()


# --- the program ---


def test_program_runs_with_llama_server(server: LlamaServer, home: Path, agent: RunAgent) -> None:
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

"""A model that a server runs: llama-server as it is built, vLLM by its published request and reply."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agent import vocabulary
from agent.engine import remote_generation
from agent.engine.address import Address
from agent.engine.base import (
    Busy,
    ContextOverflow,
    EngineError,
    Logprob,
    Request,
    Sampling,
    Tokens,
)
from agent.engine.llama import LlamaEngine
from agent.engine.placement import Placement
from agent.engine.remote import RemoteEngine
from agent.engine.threads import Threads
from agent.formats.harmony.format import HarmonyFormat
from agent.tiny import vocabulary as tiny
from tests.bench.build import ready
from tests.bench.peer import LlamaServer
from tests.conftest import Agent
from tests.engine.conftest import read

CONTEXT = 2048
LLAMA = "\N{LLAMA}"


@pytest.fixture(scope="module")
def form(tmp_path_factory: pytest.TempPathFactory) -> HarmonyFormat:
    return HarmonyFormat(vocabulary.encoding(tiny.ranks, tmp_path_factory.mktemp("vocabulary")))


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


def asked(form: HarmonyFormat, text: str, **more: Any) -> Request:
    more.setdefault("sampling", Sampling(temperature=0))
    return Request([*form.user(text), *form.open_assistant()], stop=form.stop, **more)


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
        with pytest.raises(EngineError, match="fails"):
            await read(engine.generate(asked(form, "hello")))
        await engine.close()
        with pytest.raises(EngineError, match=r"No llama-server answers at .*: start it"):
            await engine.load()


async def test_another_vocabulary_is_refused(built: None, gguf: Path, form: HarmonyFormat) -> None:
    with LlamaServer(gguf, context=512, chosen=Threads(1, 1)) as server:
        engine = RemoteEngine(Address("llama-server", f"http://127.0.0.1:{server.port}"), form)
        with pytest.raises(EngineError, match="another vocabulary"):
            await engine.load()


# --- vLLM, by contract ------------------------------------------------------------------------------


class FakeVllm:
    """Answers as vLLM's CompletionStreamResponse, TokenizeResponse and ModelCard are published."""

    def __init__(self, form: HarmonyFormat) -> None:
        self.form = form
        self.replies: list[list[Any] | Response] = []
        """For one request each: chunks of ids, a finish, an error; or a whole answer."""
        self.bodies: list[dict[str, Any]] = []
        self.key: str | None = None
        self.app = Starlette(
            routes=[
                Route("/health", lambda request: Response()),
                Route("/v1/models", self.models),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/completions", self.complete, methods=["POST"]),
            ]
        )

    async def models(self, request: HttpRequest) -> Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": "Unauthorized"}, 401)
        card = {"id": "openai/gpt-oss-120b", "object": "model", "max_model_len": 1000}
        return JSONResponse({"object": "list", "data": [card]})

    async def tokenize(self, request: HttpRequest) -> Response:
        body = await request.json()
        tokens = self.form.encoding.encode(body["prompt"], allowed_special="all")
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": 1000})

    async def complete(self, request: HttpRequest) -> Response:
        body = await request.json()
        self.bodies.append(body)
        reply = self.replies.pop(0)
        if isinstance(reply, Response):
            return reply
        if not body["stream"]:
            ids, reason = reply
            choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": reason}
            return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": 1}})
        return StreamingResponse(self._stream(reply), media_type="text/event-stream")

    async def _stream(self, reply: list[Any]) -> AsyncIterator[str]:
        for part in reply:
            message = part
            if isinstance(part, list):
                message = {"choices": [{"index": 0, "text": "", "token_ids": part}]}
            elif isinstance(part, str):
                choice = {"index": 0, "text": "", "token_ids": [], "finish_reason": part}
                message = {"choices": [choice]}
            yield f"data: {json.dumps(message)}\n\n"
        yield "data: [DONE]\n\n"


@pytest.fixture
async def vllm(form: HarmonyFormat) -> AsyncIterator[tuple[FakeVllm, RemoteEngine]]:
    fake = FakeVllm(form)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        serving = uvicorn.Server(uvicorn.Config(fake.app, log_level="error", lifespan="off"))
        task = asyncio.create_task(serving.serve([listening]))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        engine = RemoteEngine(Address("vllm", url), form)
        await engine.load()
        yield fake, engine
        await engine.close()
        serving.should_exit = True
        await task


async def test_what_vllm_is_asked_and_says(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    stopped = {"index": 0, "text": "", "token_ids": [], "finish_reason": "stop"}
    fake.replies = [
        [[11], [12, 13], {"choices": [stopped | {"stop_reason": 200012}]}]
        + [{"choices": [], "usage": usage}]
    ]
    got = await read(engine.generate(asked(form, "x", sampling=Sampling(seed=5, top_k=9))))
    assert got.ids == [11, 12, 13, 200012] and got.finished.reason == "stop"
    body = fake.bodies[0]
    assert body["model"] == "openai/gpt-oss-120b" and body["return_token_ids"] is True
    assert body["prompt"] == [*form.user("x"), *form.open_assistant()]
    assert body["max_tokens"] == 1000 - len(body["prompt"])
    assert (body["seed"], body["top_k"], body["temperature"]) == (5, 9, 1.0)
    assert sorted(form.stop) == body["stop_token_ids"] and not body["skip_special_tokens"]


async def test_log_probabilities_by_id(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    logprobs = {
        "tokens": ["token_id:11"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"token_id:11": -0.5, "token_id:7": -1.0}],
    }
    choice = {"token_ids": [11], "logprobs": logprobs, "finish_reason": "length"}
    fake.replies = [[{"choices": [choice]}]]
    found: list[Logprob] = []
    await read(
        engine.generate(asked(form, "x", logprobs=2, max_tokens=1)),
        lambda item: found.extend(item.logprobs or ()) if isinstance(item, Tokens) else None,
    )
    assert found == [Logprob(11, -0.5, ((11, -0.5), (7, -1.0)))]


async def test_a_rejected_token_is_asked_for_again(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    stop = max(form.stop)
    fake.replies = [[[15, 99, 98]], [[16], "length"], [[17, 15], [stop]]]
    held = Digits([15, 16, 17], stop)
    got = await read(engine.generate(asked(form, "x", constraint=held)))
    assert got.ids == [15, 16, 17, 15, stop] and held.said == got.ids
    first, second, third = fake.bodies
    assert second["allowed_token_ids"] == [15, 16, 17] and second["max_tokens"] == 1
    assert second["prompt"] == [*first["prompt"], 15] and not second["stream"]
    assert third["prompt"] == [*first["prompt"], 15, 16] and third["allowed_token_ids"] is None


async def test_before_the_first_token_it_is_asked_again(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    fake.replies = [Response(status_code=502), [[11], "length"]]
    got = await read(engine.generate(asked(form, "x")))
    assert (got.ids, len(fake.bodies)) == ([11], 2)


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        ([[11], {"error": {"message": "it broke"}}], EngineError, "after 1 tokens .it broke.;"),
        ([[11]], EngineError, "after 1 tokens .the stream broke off.;"),
        ([[11], "abort"], EngineError, "ended the generation .abort."),
        (JSONResponse({"error": {"message": "no such thing"}}, 400), EngineError, "no such thing"),
        (Response(status_code=429), Busy, "try again later"),
    ],
)
async def test_what_goes_wrong_is_a_sentence(
    vllm: tuple[FakeVllm, RemoteEngine],
    form: HarmonyFormat,
    reply: Any,
    kind: type[Exception],
    told: str,
) -> None:
    fake, engine = vllm
    fake.replies = [reply]
    with pytest.raises(kind, match=told):
        await read(engine.generate(asked(form, "x")))
    assert len(fake.bodies) == 1


async def test_its_key_and_its_model(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    fake.key = "right"
    address = engine.address
    with pytest.raises(EngineError, match="does not accept no key"):
        await RemoteEngine(address, form).load()
    with pytest.raises(EngineError, match="the key in BIG_KEY"):
        keyed = Address(address.engine, address.url, "BIG_KEY")
        await RemoteEngine(keyed, form, key="wrong").load()
    with pytest.raises(EngineError, match="wants a key, and BIG_KEY is not set"):
        await RemoteEngine(keyed, form).load()
    with pytest.raises(EngineError, match="BIG_KEY has characters"):
        await RemoteEngine(keyed, form, key="schlüssel").load()
    with pytest.raises(EngineError, match="does not serve other; it has openai/gpt-oss-120b"):
        named = Address(address.engine, address.url, model="other")
        await RemoteEngine(named, form, key="right\n").load()


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

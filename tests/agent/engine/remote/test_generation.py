"""The remote engine's contract, with a real llama-server and a real vLLM."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from agent.engine.llama.engine import LlamaEngine
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
from agent.engine.remote.client import RemoteTiming
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.agent.engine.remote.conftest import API_KEY, CONTEXT, RunningPeer
from tests.support.engines import DigitsConstraint, read_generation, set_timing, user_request
from tests.support.invariants import check
from tests.support.program import RunAgent
from tests.support.waiting import HANG_SECONDS

LLAMA = "\N{LLAMA}"
MULTIPLY = "Multiply 123*456 using the mcp.code_interpreter tool."


def endless(form: HarmonyFormat) -> Sampling:
    """Greedy, and no end."""
    return Sampling(temperature=0, logit_bias=tuple((stop, -100.0) for stop in form.stop_ids))


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


async def test_cached_tokens_are_reported(remote: RemoteEngine, form: HarmonyFormat) -> None:
    """vLLM's cache has blocks of 128 tokens."""
    request = user_request(form, "Tell me about yourself. " * 60, max_tokens=5)
    first, again = [await read_generation(remote.generate(request)) for _ in range(2)]
    assert again.ids == first.ids
    assert first.finished.cached_tokens < 128 <= again.finished.cached_tokens


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


async def test_tokens_that_a_server_leaves_out_have_no_logprob(
    peer: RunningPeer, remote: RemoteEngine, form: HarmonyFormat
) -> None:
    """llama-server streams the last of several tokens that are one character."""
    first, second, last = parts = form.encode_text(f" {LLAMA}")
    likely = Sampling(temperature=0, logit_bias=tuple((token, 100.0) for token in parts))
    request = Request(parts * 20, 6, sampling=likely, logprobs=0)
    rows: list[Logprob | None] = []
    result = await read_generation(
        remote.generate(request),
        lambda item: rows.extend(item.logprobs or ()) if isinstance(item, Tokens) else None,
    )
    assert result.ids == parts * 2
    reported = [row and row.token for row in rows]
    all_three = [first, second, last] if peer.kind == "vllm" else [None, None, last]
    assert reported == all_three * 2


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


async def test_eight_generations_at_once_are_those_of_each_alone(
    remote: RemoteEngine, form: HarmonyFormat
) -> None:
    # What the model is sure of: a batch is rounded in another way than each alone.
    prompts = ["hello", "thanks", "bye", "What is your name?", "Who are you?", "How are you?"]
    requests = [
        user_request(form, prompt, max_tokens=40)
        for prompt in [*prompts, "Tell me a joke", "What is the capital of France?"]
    ]
    alone = [await read_generation(remote.generate(request)) for request in requests]
    together = await asyncio.gather(
        *(read_generation(remote.generate(request)) for request in requests)
    )
    assert [each.ids for each in together] == [each.ids for each in alone]
    assert remote.unfinished == 0


async def test_generation_ends_with_the_context(remote: RemoteEngine, form: HarmonyFormat) -> None:
    room = 20
    filler = form.encode_text(" and") * (CONTEXT - room)
    request = Request(filler, stop_ids=form.stop_ids, sampling=endless(form))
    result = await read_generation(remote.generate(request))
    assert (len(result.ids), result.finished.reason) == (room, "context")


async def test_sampling_settings_are_taken(remote: RemoteEngine, form: HarmonyFormat) -> None:
    """Those too that the server itself refuses: top_p 0, seeds of 64 bits and negative ones."""
    greedy = await read_generation(remote.generate(user_request(form, "hello", max_tokens=20)))
    for seed in (7, -1, 1 << 63, (1 << 80) + 1):
        likeliest = Sampling(temperature=1.5, top_p=0.0, seed=seed)
        request = user_request(form, "hello", sampling=likeliest, max_tokens=20)
        assert (await read_generation(remote.generate(request))).ids == greedy.ids
    seeded = Sampling(
        temperature=1.0, seed=5, top_k=50, min_p=0.01, presence_penalty=0.5, repeat_penalty=1.1
    )
    request = user_request(form, "hello", sampling=seeded, max_tokens=20)
    again = [await read_generation(remote.generate(request)) for _ in range(2)]
    assert again[0].ids == again[1].ids


async def test_unknown_ids_are_refused_at_once(remote: RemoteEngine) -> None:
    with pytest.raises(EngineError, match="HTTP 400: "):
        await read_generation(remote.generate(Request([300_000], max_tokens=3)))


async def test_keys_and_names_are_checked(peer: RunningPeer, form: HarmonyFormat) -> None:
    with pytest.raises(EngineError, match="requires a key, and PEER_KEY is not set"):
        await RemoteEngine(peer.endpoint(), form).load()
    with pytest.raises(EngineError, match="does not accept the key in PEER_KEY"):
        await RemoteEngine(peer.endpoint(), form, api_key="wrong").load()
    with pytest.raises(EngineError, match="does not serve other; it has "):
        await RemoteEngine(peer.endpoint(model="other"), form, api_key=API_KEY).load()


async def test_cancel_frees_the_server(
    remote: RemoteEngine, peer: RunningPeer, form: HarmonyFormat
) -> None:
    generation = remote.generate(user_request(form, "hello", sampling=endless(form)))
    async for item in generation:
        if isinstance(item, Tokens):
            generation.cancel()

    async def is_busy(client: httpx2.AsyncClient) -> bool:
        if peer.kind == "llama-server":
            return any(slot["is_processing"] for slot in (await client.get("/slots")).json())
        lines = (await client.get("/metrics")).text.splitlines()
        (running,) = [each for each in lines if each.startswith("vllm:num_requests_running{")]
        return not running.endswith(" 0.0")

    headers = {"Authorization": f"Bearer {API_KEY}"}
    async with httpx2.AsyncClient(
        base_url=peer.url, timeout=HANG_SECONDS, headers=headers
    ) as client:
        async with asyncio.timeout(HANG_SECONDS):
            while await is_busy(client):
                pass  # each request takes its time


# --- the program ---


def texts(response: dict[str, Any]) -> list[Any]:
    """What a response says, without ids."""
    return [
        [item["type"], item.get("arguments"), item.get("output"), item.get("content")]
        for item in response["output"]
    ]


@pytest.fixture
def far(peer: RunningPeer, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the server's model in models.toml."""
    monkeypatch.setenv("PEER_KEY", API_KEY)
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text(
        f'[far]\nengine = "{peer.kind}"\nurl = "{peer.url}/v1"\nkey_env = "PEER_KEY"\n'
        "sampling = { temperature = 0.0 }\n"
    )
    return "far"


def test_program_runs_a_tool(peer: RunningPeer, far: str, agent: RunAgent) -> None:
    done = agent("run", MULTIPLY, "--model", far, "--json-events")
    start, *_, stats, end = done.events
    assert (done.code, start["engine"], start["context_length"]) == (0, peer.kind, CONTEXT)
    call = next(item for item in end["response"]["output"] if item["type"] == "mcp_call")
    assert call["output"].strip() == "56088"
    assert stats["type"] == "agent.stats"
    check(done.events)
    local = check(agent("run", MULTIPLY, "--temperature", "0", "--json-events").events)
    assert texts(end["response"]) == texts(local)


def test_program_keeps_an_output_schema(
    peer: RunningPeer, far: str, agent: RunAgent, tmp_path: Path
) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    done = agent(
        "run", "Who are you?", "--model", far, "--output-schema", f"{tmp_path}/schema.json"
    )
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert set(answer) == {"name", "age"} and isinstance(answer["age"], int)


def test_program_names_the_server(peer: RunningPeer, far: str, agent: RunAgent) -> None:
    listed = agent("models", "list").out
    assert "* tiny" in listed and "on a server" in listed
    doctor = agent("doctor", "--model", far).out
    assert f"on a server: {peer.kind} at {peer.url}: 2,048 tokens" in doctor


# --- the server goes away ---


@pytest.mark.long
@pytest.mark.parametrize("running_peer", ["llama-server"], indirect=True)
async def test_server_killed_while_streaming_fails_the_turn_and_is_waited_for(
    peer: RunningPeer, form: HarmonyFormat
) -> None:
    engine = peer.engine(form, RemoteTiming(retry_pauses=(0.01,), unreachable_wait=0.0))
    await engine.load()
    count = 0
    with pytest.raises(EngineError, match=f"{peer.url} went away after .* is kept"):
        async for item in engine.generate(user_request(form, "hello", sampling=endless(form))):
            count += len(item.ids) if isinstance(item, Tokens) else 0
            if count > 5:
                peer.server.kill()
    with pytest.raises(EngineError, match=r"does not answer \(.*\) after 0 s: start it"):
        await read_generation(engine.generate(user_request(form, "hello")))
    with pytest.raises(EngineError, match=rf"No {peer.kind} answers at .*: start it"):
        await peer.engine(form).load()
    set_timing(engine, RemoteTiming(unreachable_wait=500.0))
    messages: list[str] = []
    async for item in engine.generate(user_request(form, "hello", max_tokens=5)):
        if isinstance(item, Waiting):
            messages.append(item.message)
            if len(messages) == 1:
                await asyncio.to_thread(peer.server.start)
    assert "does not answer" in messages[0] and messages[1].endswith("can answer again.")
    assert isinstance(item, Finished) and item.output_tokens == 5
    await engine.close()


@pytest.mark.parametrize("running_peer", ["llama-server"], indirect=True)
async def test_server_that_hangs_while_streaming_fails_the_turn(
    remote: RemoteEngine, peer: RunningPeer, form: HarmonyFormat
) -> None:
    set_timing(remote, RemoteTiming(silence=0.1, health_timeout=0.1, stall=1.0))
    try:
        with pytest.raises(EngineError, match=r"went away after .* said nothing for 1 s"):
            async for item in remote.generate(user_request(form, "hi", sampling=endless(form))):
                if isinstance(item, Tokens):
                    peer.server.pause()
    finally:
        peer.server.resume()


@pytest.mark.parametrize("running_peer", ["llama-server"], indirect=True)
async def test_server_stopped_while_streaming_fails_the_turn(
    remote: RemoteEngine, peer: RunningPeer, form: HarmonyFormat
) -> None:
    """vLLM says nothing more on the open stream, and refuses new connections; so does llama-server,
    which on a busy machine may miss the first signal and then ends at the second."""
    again: asyncio.TimerHandle | None = None
    with pytest.raises(EngineError, match=f"{peer.url} went away after .* is kept"):
        async with asyncio.timeout(HANG_SECONDS):
            async for item in remote.generate(user_request(form, "hi", sampling=endless(form))):
                if isinstance(item, Tokens) and again is None:
                    peer.server.terminate()
                    after = 3 * RemoteTiming().silence
                    again = asyncio.get_running_loop().call_later(after, peer.server.terminate)
    assert again is not None
    again.cancel()
    peer.server.kill()

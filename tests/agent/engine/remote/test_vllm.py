"""vLLM, by its published request and reply."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from agent.engine.protocol import Busy, EngineError, Logprob, Sampling, Tokens
from agent.engine.remote.backends import Facts, Vllm
from agent.engine.remote.endpoint import Address
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.agent.engine.remote.test_generation import Digits
from tests.support.engines import asked, read
from tests.support.fake_vllm import FakeVllm


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


async def test_what_was_known_of_the_prompt_is_told_last(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    """As vLLM sends it: the measures behind the chunk that finishes."""
    fake, engine = vllm
    stop = max(form.stop)
    ended = {"index": 0, "text": "", "token_ids": [stop], "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    fake.replies = [[[11], {"choices": [ended]}, {"choices": [], "usage": usage}]]
    got = await read(engine.generate(asked(form, "x")))
    assert (got.ids, got.finished.cached_tokens) == ([11, stop], 2)
    fake.replies = [[[11], {"choices": [ended]}, {"error": {"message": "it broke"}}]]
    got = await read(engine.generate(asked(form, "x")))
    assert (got.ids, got.finished.cached_tokens) == ([11, stop], 0)


async def test_text_without_ids_is_no_empty_answer(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    """A vLLM that does not know return_token_ids leaves it unread."""
    fake, engine = vllm
    fake.replies = [[{"choices": [{"index": 0, "text": "Hello"}]}]]
    with pytest.raises(EngineError, match="a newer vLLM is needed"):
        await read(engine.generate(asked(form, "x")))


def test_an_adapter_has_its_models_context() -> None:
    base = {"id": "base", "max_model_len": 100}
    adapter = {"id": "adapter", "parent": "base", "max_model_len": None}
    assert Vllm().facts([{"data": [base, adapter]}], "adapter") == Facts("adapter", 100)


async def test_a_connection_may_be_closed_as_it_is_used_again(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, _ = vllm

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", fake.port)

        async def answer() -> None:
            while data := await there.read(65536):
                writer.write(data)

        answering, asked = asyncio.create_task(answer()), 0
        while data := await reader.read(65536):
            asked += data.startswith((b"GET ", b"POST "))
            if asked == 2:
                break
            back.write(data)
        answering.cancel()
        writer.close()
        back.close()

    async with await asyncio.start_server(once, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        engine = RemoteEngine(Address("vllm", f"http://127.0.0.1:{port}"), form)
        await engine.load()
        assert await engine.health() is None
        await engine.close()

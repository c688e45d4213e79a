"""The engine of vLLM, by its published request and response."""

import asyncio
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from agent.engine.protocol import EngineBusyError, EngineError, Logprob, Sampling, Tokens
from agent.engine.remote.backends import VllmBackend
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.support.engines import DigitsConstraint, read_generation, user_request
from tests.support.fake_vllm import FakeVllm


async def test_completion_body_and_stream(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    stopped = {"index": 0, "text": "", "token_ids": [], "finish_reason": "stop"}
    fake.replies = [
        [[11], [12, 13], {"choices": [stopped | {"stop_reason": 200012}]}]
        + [{"choices": [], "usage": usage}]
    ]
    result = await read_generation(
        engine.generate(user_request(form, "x", sampling=Sampling(seed=5, top_k=9)))
    )
    assert result.ids == [11, 12, 13, 200012] and result.finished.reason == "stop"
    body = fake.bodies[0]
    assert body["model"] == "openai/gpt-oss-120b" and body["return_token_ids"] is True
    assert body["prompt"] == [*form.user_message("x"), *form.open_assistant()]
    assert body["max_tokens"] == 1000 - len(body["prompt"])
    assert (body["seed"], body["top_k"], body["temperature"]) == (5, 9, 1.0)
    assert sorted(form.stop_ids) == body["stop_token_ids"] and not body["skip_special_tokens"]


async def test_logprobs_by_token_id(
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
    logprobs_read: list[Logprob | None] = []
    await read_generation(
        engine.generate(user_request(form, "x", logprobs=2, max_tokens=1)),
        lambda item: (
            logprobs_read.extend(item.logprobs or ()) if isinstance(item, Tokens) else None
        ),
    )
    assert logprobs_read == [Logprob(11, -0.5, ((11, -0.5), (7, -1.0)))]


async def test_logprobs_that_are_not_reported_are_none(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm

    def message(ids: list[int], **values: float) -> dict[str, Any]:
        logprobs = {
            "tokens": [f"token_id:{token}" for token in ids],
            "token_logprobs": list(values.values()),
            "top_logprobs": [{} for _ in values],
        }
        return {"choices": [{"token_ids": ids, "logprobs": logprobs if values else None}]}

    fake.replies = [
        [message([11, 12], a=-0.5), message([13]), message([12, 12], b=-1.0, c=-2.0), "length"]
    ]
    read: list[Logprob | None] = []
    await read_generation(
        engine.generate(user_request(form, "x", logprobs=2, max_tokens=5)),
        lambda item: read.extend(item.logprobs or ()) if isinstance(item, Tokens) else None,
    )
    assert read == [Logprob(11, -0.5), None, None, Logprob(12, -1.0), Logprob(12, -2.0)]


async def test_rejected_token_is_requested_again_among_allowed(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    stop = max(form.stop_ids)
    fake.replies = [[[15, 99, 98]], [[16], "length"], [[17, 15], [stop]]]
    constraint = DigitsConstraint([15, 16, 17], stop)
    result = await read_generation(engine.generate(user_request(form, "x", constraint=constraint)))
    assert result.ids == [15, 16, 17, 15, stop] and constraint.accepted == result.ids
    first, second, third = fake.bodies
    assert second["allowed_token_ids"] == [15, 16, 17] and second["max_tokens"] == 1
    assert second["prompt"] == [*first["prompt"], 15] and not second["stream"]
    assert third["prompt"] == [*first["prompt"], 15, 16] and third["allowed_token_ids"] is None


async def test_failure_before_first_token_is_retried(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    fake.replies = [Response(status_code=502), [[11], "length"]]
    result = await read_generation(engine.generate(user_request(form, "x")))
    assert (result.ids, len(fake.bodies)) == ([11], 2)


@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        ([[11], {"error": {"message": "it broke"}}], EngineError, "after 1 tokens .it broke.;"),
        ([[11]], EngineError, "after 1 tokens .the stream broke off.;"),
        ([[11], "abort"], EngineError, "after 1 tokens .the stream broke off.;"),
        ([[11], "other"], EngineError, "ended the generation .other."),
        (JSONResponse({"error": {"message": "no such thing"}}, 400), EngineError, "no such thing"),
        (Response(status_code=429), EngineBusyError, "try again later"),
    ],
)
async def test_failures_raise_sentences(
    vllm: tuple[FakeVllm, RemoteEngine],
    form: HarmonyFormat,
    reply: Any,
    kind: type[Exception],
    message: str,
) -> None:
    fake, engine = vllm
    fake.replies = [reply]
    with pytest.raises(kind, match=message):
        await read_generation(engine.generate(user_request(form, "x")))
    assert len(fake.bodies) == 1


async def test_load_checks_key_and_model(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    fake.api_key = "right"
    address = engine.replicas.endpoint
    with pytest.raises(EngineError, match="does not accept no key"):
        await RemoteEngine(address, form).load()
    with pytest.raises(EngineError, match="the key in BIG_KEY"):
        keyed = RemoteEndpoint(address.engine, address.url, "BIG_KEY")
        await RemoteEngine(keyed, form, api_key="wrong").load()
    with pytest.raises(EngineError, match="requires a key, and BIG_KEY is not set"):
        await RemoteEngine(keyed, form).load()
    with pytest.raises(EngineError, match="BIG_KEY has characters"):
        await RemoteEngine(keyed, form, api_key="schlüssel").load()
    with pytest.raises(EngineError, match="does not serve other; it has openai/gpt-oss-120b"):
        named = RemoteEndpoint(address.engine, address.url, model="other")
        await RemoteEngine(named, form, api_key="right\n").load()


async def test_cached_tokens_come_after_the_last_token(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    """vLLM sends the usage after the chunk that finishes."""
    fake, engine = vllm
    stop = max(form.stop_ids)
    ended = {"index": 0, "text": "", "token_ids": [stop], "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    fake.replies = [[[11], {"choices": [ended]}, {"choices": [], "usage": usage}]]
    result = await read_generation(engine.generate(user_request(form, "x")))
    assert (result.ids, result.finished.cached_tokens) == ([11, stop], 2)
    fake.replies = [[[11], {"choices": [ended]}, {"error": {"message": "it broke"}}]]
    result = await read_generation(engine.generate(user_request(form, "x")))
    assert (result.ids, result.finished.cached_tokens) == ([11, stop], 0)


async def test_text_without_ids_raises(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    """An older vLLM ignores return_token_ids."""
    fake, engine = vllm
    fake.replies = [[{"choices": [{"index": 0, "text": "Hello"}]}]]
    with pytest.raises(EngineError, match="a newer vLLM is needed"):
        await read_generation(engine.generate(user_request(form, "x")))


def test_metadata_of_adapter_has_its_base_models_context() -> None:
    base = {"id": "base", "max_model_len": 100}
    adapter = {"id": "adapter", "parent": "base", "max_model_len": None}
    answers = [{"data": [base, adapter]}]
    assert VllmBackend().parse_metadata(answers, "adapter") == ("adapter", 100)


async def test_pooled_connection_closed_on_use_is_retried(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, _ = vllm

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", fake.port)

        async def answer() -> None:
            while data := await there.read(65536):
                writer.write(data)

        answering, requests = asyncio.create_task(answer()), 0
        while data := await reader.read(65536):
            requests += data.startswith((b"GET ", b"POST "))
            if requests == 2:
                break
            back.write(data)
        answering.cancel()
        writer.close()
        back.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        engine = RemoteEngine(RemoteEndpoint("vllm", f"http://127.0.0.1:{port}"), form)
        await engine.load()
        assert await engine.replicas.cached_health() is None
        await engine.close()


async def test_settings_that_vllm_refuses_are_mapped_or_refused_in_a_sentence(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, engine = vllm
    fake.replies = [[[11], "length"]]
    sampling = Sampling(seed=(1 << 63) + 5, top_p=0.0)
    await read_generation(engine.generate(user_request(form, "x", sampling=sampling)))
    body = fake.bodies[0]
    assert (body["seed"], body["top_p"], body["temperature"]) == (5, 1.0, 0.0)
    hot = user_request(form, "x", sampling=Sampling(temperature=2.5))
    with pytest.raises(EngineError, match=r"^vLLM takes temperatures up to 2, not 2\.5\.$"):
        await read_generation(engine.generate(hot))
    assert len(fake.bodies) == 1

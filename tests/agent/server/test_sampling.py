"""Sampling settings and log probabilities as clients ask for them, on the embedded model."""

import math
from dataclasses import asdict
from typing import Any

import pytest

from tests.support.endpoint import Serve, comparable
from tests.support.invariants import check
from tests.support.scripts import HELLO

USER: list[Any] = [{"role": "user", "content": "Hello!"}]
LOGPROBS_REQUEST = {
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 3,
    "temperature": 0,
}


def message_part(response: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = response["output"][-1]["content"][0]
    return part


@pytest.mark.slow
async def test_logprobs_in_deltas_and_message(serve: Serve) -> None:
    served = await serve()
    events = await served.stream(input="Hello!", **LOGPROBS_REQUEST)
    response = check(events)
    part = message_part(response)
    logprobs = part["logprobs"]
    assert b"".join(bytes(token["bytes"]) for token in logprobs).decode() == part["text"] != ""
    for event in events:
        if event["type"] == "response.output_text.delta":
            tokens = [token["token"] for token in event["logprobs"]]
            assert "".join(tokens) == event["delta"] and all("bytes" not in x for x in tokens)
    for token in logprobs:
        alternatives = [other["logprob"] for other in token["top_logprobs"]]
        assert token["token"] == token["top_logprobs"][0]["token"], "it was greedy"
        assert (
            token["logprob"] == alternatives[0]
            and alternatives == sorted(alternatives, reverse=True)
            and len(alternatives) == 3
        )
        assert sum(map(math.exp, alternatives)) <= 1.000001
    assert response["top_logprobs"] == 3
    body = (await served.post({"input": "Hello!", **LOGPROBS_REQUEST})).json()
    assert comparable(body) == comparable(response)


@pytest.mark.slow
async def test_logprobs_absent_by_default(serve: Serve) -> None:
    served = await serve()
    response = check(await served.stream(input="Hello!", temperature=0))
    assert message_part(response)["logprobs"] == [] and response["top_logprobs"] == 0


@pytest.mark.slow
async def test_logprobs_without_alternatives(serve: Serve) -> None:
    served = await serve()
    response = check(await served.stream(input="Hello!", include=LOGPROBS_REQUEST["include"]))
    logprobs = message_part(response)["logprobs"]
    assert logprobs and all(
        token["top_logprobs"] == [] and token["logprob"] <= 0 for token in logprobs
    )


@pytest.mark.slow
async def test_logprobs_in_chat_completions(serve: Serve) -> None:
    served = await serve()
    request: dict[str, Any] = {
        "model": "default", "messages": USER, "logprobs": True, "top_logprobs": 2, "seed": 1,
    }  # fmt: skip
    client = served.client()
    body = await client.chat.completions.create(**request)
    (choice,) = body.choices
    assert choice.logprobs and choice.logprobs.content
    tokens = [token.token for token in choice.logprobs.content]
    assert "".join(tokens) == choice.message.content
    assert all(len(token.top_logprobs) == 2 and token.bytes for token in choice.logprobs.content)
    stream = await client.chat.completions.create(stream=True, **request)
    streamed = [
        token
        async for chunk in stream
        for choice in chunk.choices
        if choice.logprobs
        for token in choice.logprobs.content or ()
    ]
    assert streamed == choice.logprobs.content


@pytest.mark.slow
async def test_logit_bias_bans_token(serve: Serve) -> None:
    served = await serve()
    usual = message_part((await served.post({"input": "Hello!", **LOGPROBS_REQUEST})).json())
    banned_token = next(token for token in usual["logprobs"] if token["token"].strip())
    format = served.runtime.format
    first = next(i for i in range(200_000) if list(format.token_bytes(i)) == banned_token["bytes"])
    request = {"model": "default", "messages": USER, "temperature": 0}
    client = served.client()
    banned = await client.chat.completions.create(
        **request, logprobs=True, logit_bias={str(first): -100}
    )
    logprobs = banned.choices[0].logprobs
    assert logprobs and logprobs.content
    assert banned_token["token"] not in [token.token for token in logprobs.content]


@pytest.mark.long
async def test_sampling_settings_take_effect(serve: Serve) -> None:
    served = await serve()
    noise = {str(token): 100 for token in range(150_000, 150_800)}

    async def output_with(**settings: Any) -> list[Any]:
        body = {"input": "Hello!", "max_output_tokens": 16, "logit_bias": noise, **settings}
        output: list[Any] = comparable((await served.post(body)).json()["output"])
        return output

    greedy, hot = await output_with(temperature=0), {"temperature": 2.0}
    for narrow in ({"top_p": 0.0}, {"top_k": 1}, {"min_p": 1.0}):
        assert await output_with(**hot, **narrow) == greedy, narrow
    once = await output_with(**hot, seed=7)
    assert await output_with(**hot, seed=7) == once != greedy
    assert await output_with(**hot, seed=8) != once


async def test_sampling_settings_reach_engine(serve: Serve) -> None:
    served = await serve(HELLO)
    sent = {"presence_penalty": 0.5, "frequency_penalty": -0.5, "repeat_penalty": 1.1, "seed": 7}
    body = (await served.post({"input": "x", **sent, "logit_bias": {"7": 2.5}})).json()
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0.5, -0.5)
    await served.client().chat.completions.create(
        model="default",
        messages=USER,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        seed=7,
        logit_bias={"7": 2.5},  # type: ignore[dict-item]
        extra_body={"repeat_penalty": 1.1},
    )
    for turn in served.turns:
        sampling = turn.options.sampling
        assert sent.items() <= asdict(sampling).items() and sampling.logit_bias == ((7, 2.5),)


async def test_sampling_wrong_settings_are_refused(serve: Serve) -> None:
    served = await serve()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"top_logprobs": 21}, "top_logprobs"),
    ]
    for body, param in wrong:
        answer = await served.post({"input": "x", **body})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith(param)

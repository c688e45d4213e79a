"""Sampling settings and log probabilities as clients ask for them, on the embedded model."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

from tests.support.endpoint import Serve, plain
from tests.support.invariants import check
from tests.support.scripts import HELLO

USER: list[Any] = [{"role": "user", "content": "Hello!"}]
WANTED = {"include": ["message.output_text.logprobs"], "top_logprobs": 3, "temperature": 0}


def message(response: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = response["output"][-1]["content"][0]
    return part


@pytest.mark.slow
async def test_each_delta_has_its_tokens_log_probabilities(serve: Serve) -> None:
    served = await serve()
    events = await served.stream(input="Hello!", **WANTED)
    response = check(events)
    part = message(response)
    said = part["logprobs"]
    assert b"".join(bytes(one["bytes"]) for one in said).decode() == part["text"] != ""
    for event in events:
        if event["type"] == "response.output_text.delta":
            tokens = [one["token"] for one in event["logprobs"]]
            assert "".join(tokens) == event["delta"] and all("bytes" not in x for x in tokens)
    for one in said:
        tops = [other["logprob"] for other in one["top_logprobs"]]
        assert one["token"] == one["top_logprobs"][0]["token"], "it was greedy"
        assert one["logprob"] == tops[0] and tops == sorted(tops, reverse=True) and len(tops) == 3
        assert sum(map(math.exp, tops)) <= 1.000001
    assert response["top_logprobs"] == 3
    body = (await served.post({"input": "Hello!", **WANTED})).json()
    assert plain(body) == plain(response)


@pytest.mark.slow
async def test_without_being_asked_there_are_none(serve: Serve) -> None:
    served = await serve()
    response = check(await served.stream(input="Hello!", temperature=0))
    assert message(response)["logprobs"] == [] and response["top_logprobs"] == 0


@pytest.mark.slow
async def test_none_of_the_alternatives_may_be_wanted(serve: Serve) -> None:
    served = await serve()
    response = check(await served.stream(input="Hello!", include=WANTED["include"]))
    said = message(response)["logprobs"]
    assert said and all(one["top_logprobs"] == [] and one["logprob"] <= 0 for one in said)


@pytest.mark.slow
async def test_the_older_endpoint_has_them_too(serve: Serve) -> None:
    served = await serve()
    asked: dict[str, Any] = {
        "model": "default", "messages": USER, "logprobs": True, "top_logprobs": 2, "seed": 1,
    }  # fmt: skip
    client = served.client()
    body = await client.chat.completions.create(**asked)
    (choice,) = body.choices
    assert choice.logprobs and choice.logprobs.content
    tokens = [one.token for one in choice.logprobs.content]
    assert "".join(tokens) == choice.message.content
    assert all(len(one.top_logprobs) == 2 and one.bytes for one in choice.logprobs.content)
    stream = await client.chat.completions.create(stream=True, **asked)
    streamed = [
        one
        async for chunk in stream
        for choice in chunk.choices
        if choice.logprobs
        for one in choice.logprobs.content or ()
    ]
    assert streamed == choice.logprobs.content


@pytest.mark.slow
async def test_a_banned_token_is_not_said(serve: Serve) -> None:
    served = await serve()
    usual = message((await served.post({"input": "Hello!", **WANTED})).json())
    said = next(one for one in usual["logprobs"] if one["token"].strip())
    form = served.runtime.format
    first = next(i for i in range(200_000) if list(form.spelling(i)) == said["bytes"])
    asked = {"model": "default", "messages": USER, "temperature": 0}
    client = served.client()
    banned = await client.chat.completions.create(
        **asked, logprobs=True, logit_bias={str(first): -100}
    )
    spoken = banned.choices[0].logprobs
    assert spoken and spoken.content
    assert said["token"] not in [one.token for one in spoken.content]


@pytest.mark.slow
async def test_sampling_is_as_it_was_asked_for(serve: Serve) -> None:
    served = await serve()
    unsure = {str(token): 100 for token in range(400, 1200)}

    async def said(**asked: Any) -> list[Any]:
        body = {"input": "Hello!", "max_output_tokens": 15, "logit_bias": unsure, **asked}
        output: list[Any] = plain((await served.post(body)).json()["output"])
        return output

    greedy, hot = await said(temperature=0), {"temperature": 2.0}
    for narrow in ({"top_p": 0.0}, {"top_k": 1}, {"min_p": 1.0}):
        assert await said(**hot, **narrow) == greedy, narrow
    once = await said(**hot, seed=7)
    assert await said(**hot, seed=7) == once != greedy
    assert await said(**hot, seed=8) != once


async def test_the_engine_gets_the_settings(serve: Serve) -> None:
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


async def test_wrong_settings_are_refused(serve: Serve) -> None:
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

"""The raw model over ``/v1/completions``, with openai-python; the embedded model answers."""

import math
from typing import Any

import openai
import pytest

from tests.support.endpoint import Serve, Served, open_request

PROMPT = "<|start|>user<|message|>Hello!<|end|><|start|>assistant"


async def complete(served: Served, **body: Any) -> Any:
    body = {"model": "default", "prompt": PROMPT, "temperature": 0, **body}
    client = served.client()
    # OpenAI's own API says null of the first token too, which the package's types do not have.
    client._strict_response_validation = not (body.get("echo") and "logprobs" in body)
    return await client.completions.create(**body)


async def post(served: Served, path: str, **body: Any) -> Any:
    answer = await served.post(body, url=f"{served.root}{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ids_of(served: Served, text: str) -> list[int]:
    return list((await post(served, "/tokenize", prompt=text))["tokens"])


async def test_completions_prompt_forms_agree(serve: Serve) -> None:
    served = await serve()
    ids = await ids_of(served, PROMPT)
    assert ids[0] == 200006, "spelled special tokens are special"
    text = await complete(served)
    (choice,) = text.choices
    assert choice.text and choice.finish_reason in ("stop", "length")
    assert (text.usage.prompt_tokens, text.usage.completion_tokens) == (len(ids), 16)
    assert (await complete(served, prompt=ids)).choices[0].text == choice.text
    several = await complete(served, prompt=[ids, ids[:-1]])
    assert several.choices[0].text == choice.text and several.choices[1].index == 1
    texts = await complete(served, prompt=[PROMPT, "Once"], n=2)
    assert [c.index for c in texts.choices] == [0, 1, 2, 3]
    assert texts.choices[0].text == texts.choices[1].text == choice.text
    assert "<|" not in choice.text
    spelled = await complete(served, extra_body={"skip_special_tokens": False})
    assert spelled.choices[0].text.startswith("<|channel|>")


async def test_completions_stream_equals_body(serve: Serve) -> None:
    served = await serve()
    settings: dict[str, Any] = {
        "n": 2, "temperature": 0, "seed": 3, "logprobs": 2, "max_tokens": 20, "echo": True,
    }  # fmt: skip
    body = await complete(served, **settings)
    stream = await complete(served, stream=True, stream_options={"include_usage": True}, **settings)
    texts, offsets, reasons = ["", ""], [[], []], {}  # type: ignore[var-annotated]
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.logprobs:
                offsets[choice.index] += choice.logprobs.text_offset
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
        usage = chunk.usage
    assert texts == [choice.text for choice in body.choices]
    assert offsets == [choice.logprobs.text_offset for choice in body.choices]
    assert reasons == {choice.index: choice.finish_reason for choice in body.choices}
    assert usage.completion_tokens == body.usage.completion_tokens


async def test_completions_prompt_logprobs_are_the_models(serve: Serve) -> None:
    """What an evaluation reads: the log probability of each token of a text after its beginning."""
    served = await serve()
    ids = await ids_of(served, PROMPT)
    scored = await complete(served, prompt=[ids], echo=True, logprobs=1, max_tokens=1, seed=1)
    logprobs = scored.choices[0].logprobs
    assert len(logprobs.tokens) == len(ids) + 1 == len(logprobs.token_logprobs)
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    assert "".join(logprobs.tokens[:-1]) == PROMPT
    for token, offset in zip(logprobs.tokens[:-1], logprobs.text_offset, strict=False):
        assert scored.choices[0].text[offset:].startswith(token)
    for count in (3, len(ids) - 1):  # the same as when the model reads the text before at once
        after = await complete(
            served, prompt=ids[:count], max_tokens=1, logprobs=5, logit_bias={ids[count]: 100}
        )
        alone = after.choices[0].logprobs
        assert alone.tokens == [logprobs.tokens[count]]
        free = await complete(served, prompt=ids[:count], max_tokens=1, logprobs=20)
        known = free.choices[0].logprobs.top_logprobs[0]
        if logprobs.tokens[count] in known:
            expected = known[logprobs.tokens[count]]
            # Other kernels compute batches; with weights of few bits that shows.
            assert math.isclose(logprobs.token_logprobs[count], expected, abs_tol=0.5)
    for value, top in zip(logprobs.token_logprobs[1:], logprobs.top_logprobs[1:], strict=True):
        assert value <= max(top.values()), "an evaluation asks whether the token is the likeliest"


async def test_completions_score_without_generating(serve: Serve) -> None:
    served = await serve()
    scored = await complete(served, prompt="The end", echo=True, logprobs=0, max_tokens=0)
    (choice,) = scored.choices
    assert choice.text == "The end" and choice.finish_reason == "length"
    assert len(choice.logprobs.tokens) == scored.usage.prompt_tokens == 2
    assert scored.usage.completion_tokens == 0
    bare = await complete(served, prompt="The end", echo=True, max_tokens=0)
    assert bare.choices[0].text == "The end" and bare.choices[0].logprobs is None


@pytest.mark.long
async def test_completions_stop_seed_and_best(serve: Serve) -> None:
    served = await serve()
    whole = (await complete(served, max_tokens=60)).choices[0]
    word = whole.text.split()[1]
    cut = await complete(served, max_tokens=60, stop=[word, "never"], logprobs=0)
    assert cut.choices[0].text == whole.text.partition(word)[0]
    assert cut.choices[0].finish_reason == "stop"
    unsure = PROMPT.replace("Hello!", "Help")
    hot: dict[str, Any] = {"prompt": unsure, "temperature": 2.0, "seed": 11, "max_tokens": 40}
    texts = [choice.text for choice in (await complete(served, n=3, **hot)).choices]
    assert len(set(texts)) > 1
    best = await complete(served, n=1, best_of=3, **hot)
    (choice,) = best.choices
    assert choice.text and choice.logprobs is None
    assert best.usage.completion_tokens > len(choice.text.split())
    banned = await complete(served, max_tokens=1, logprobs=0, logit_bias={200005: -100})
    assert banned.choices[0].logprobs.tokens != ["<|channel|>"]


@pytest.mark.long
async def test_completions_end_of_text(serve: Serve) -> None:
    served = await serve()
    ended = await complete(served, max_tokens=400, logprobs=0)
    assert ended.choices[0].finish_reason == "stop" and ended.usage.completion_tokens < 400
    assert ended.choices[0].logprobs.tokens[-1] in ("<|return|>", "<|call|>")
    more = await complete(served, max_tokens=400, extra_body={"ignore_eos": True})
    assert more.usage.completion_tokens == 400 and more.choices[0].finish_reason == "length"
    unlimited = await complete(served, max_tokens=-1)
    assert unlimited.choices[0].text == ended.choices[0].text
    assert unlimited.choices[0].finish_reason == "stop"


async def test_completions_wrong_requests_are_named(serve: Serve) -> None:
    served = await serve(context=400)
    client = served.client()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": ["a", []]}, "prompt[1]"),
        ({"prompt": [300_000]}, "prompt"),
        ({"prompt": "word " * 500}, "prompt"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"logprobs": 21}, "logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
    ]
    for body, param in wrong:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(**{"model": "default", "prompt": "x", **body})
        assert str(caught.value.param).startswith(param), (body, caught.value)
    with pytest.raises(openai.NotFoundError):
        await client.completions.create(model="gpt-3.5-turbo-instruct", prompt="x")


@pytest.mark.parametrize("stream", [False, True])
async def test_lenient_completions_pass_over_and_name_the_suffix(
    serve: Serve, stream: bool
) -> None:
    served = await serve({"markup": "one<|return|>"}, server={"lenient": True})
    body = {"prompt": "x", "suffix": "y", "stream": stream}
    answer = await served.post(body, url=f"{served.url}/completions")
    assert answer.status_code == 200, answer.text
    assert answer.headers["agent-ignored"] == "suffix"


async def test_completions_stream_options_of_no_stream_ask_for_nothing(serve: Serve) -> None:
    served = await serve({"markup": "one<|return|>"})
    body = await complete(served, extra_body={"stream_options": {"include_usage": True}})
    assert body.choices[0].text == "one"


async def test_completions_disconnect_frees_the_engine(serve: Serve) -> None:
    served = await serve()
    await served.runtime.ready()
    assert served.runtime.loaded is not None
    engine = served.runtime.loaded.engine
    body = {"prompt": "a", "max_tokens": 20_000, "ignore_eos": True, "stream": True}
    leaving = await open_request(served, body, path="/v1/completions")
    while not engine.unfinished:
        await served.get("/health")
    leaving.close()
    while engine.unfinished:
        await served.get("/health")
    assert served.runtime.running_turns == 0


async def test_completions_scripted_engine(serve: Serve) -> None:
    served = await serve({"markup": "one two three<|return|>"})
    assert (await complete(served)).choices[0].text == "one two three"
    with pytest.raises(openai.BadRequestError, match="echo"):
        await complete(served, echo=True, logprobs=1)


# --- tokens ---


async def test_tokenize_and_detokenize_both_shapes(serve: Serve) -> None:
    served = await serve()
    text = "Hi <|end|> \u00e9\U0001f600"
    theirs = await post(served, "/tokenize", prompt=text, return_token_strs=True)
    assert theirs["count"] == len(theirs["tokens"]) == len(theirs["token_strs"])
    assert theirs["max_model_len"] == served.runtime.context_length and 200007 in theirs["tokens"]
    other = await post(served, "/tokenize", content=text, with_pieces=True)
    assert [piece["id"] for piece in other["tokens"]] == theirs["tokens"]
    raw = b"".join(
        bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode()
        for p in other["tokens"]
    )
    assert raw.decode() == text
    plain = await post(served, "/tokenize", content=text, parse_special=False)
    assert 200007 not in plain["tokens"]
    back = await post(served, "/detokenize", tokens=theirs["tokens"])
    assert back == {"prompt": text, "content": text}
    assert await post(served, "/detokenize", tokens=[]) == {"prompt": "", "content": ""}


async def test_tokenize_messages_is_the_prompt_of_a_chat(serve: Serve) -> None:
    served = await serve()
    messages: list[Any] = [{"role": "user", "content": "Hello!"}]
    tokens = await post(served, "/tokenize", messages=messages)
    body = await served.client().chat.completions.create(
        model="default", messages=messages, max_tokens=1
    )
    assert body.usage and tokens["count"] == body.usage.prompt_tokens


async def test_token_routes_refuse_what_is_wrong(serve: Serve) -> None:
    served = await serve()
    for path, body, param in (
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "content": "b"}, "prompt"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1, 300_000]}, "tokens[1]"),
        ("/v1/embeddings", {"input": "x"}, "model"),
    ):
        answer = await served.post(body, url=f"{served.root}{path}")
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text
    with pytest.raises(openai.BadRequestError, match="makes no embeddings"):
        await served.client().embeddings.create(model="default", input="x")


# --- the model ---


async def test_models_carry_limits_and_facts(serve: Serve) -> None:
    served = await serve(server={"aliases": ("gpt-4o", "local/model")})
    await served.runtime.ready()
    client = served.client()
    models = [model async for model in await client.models.list()]
    assert [model.id for model in models] == ["tiny", "gpt-4o", "local/model"]
    listed = models[0].model_dump()
    assert listed["max_model_len"] == listed["context_length"] == served.runtime.context_length
    meta = listed["meta"]
    assert meta["n_vocab"] == 201088 and meta["n_params"] > 1e6 < meta["size"]
    assert meta["n_ctx_train"] >= listed["max_model_len"] and meta["n_embd"] > 0
    assert (await client.models.retrieve("gpt-4o")).id == "gpt-4o"
    props = (await served.get("/props")).json()
    assert props["default_generation_settings"]["n_ctx"] == served.runtime.context_length
    assert props["model_alias"] == "tiny" and props["total_slots"] >= 1


async def test_alias_is_the_model(serve: Serve) -> None:
    served = await serve(server={"aliases": ("gpt-4o",)})
    client = served.client()
    messages: list[Any] = [{"role": "user", "content": "Hello!"}]
    chat = await client.chat.completions.create(model="gpt-4o", messages=messages)
    assert chat.model == "tiny" and chat.choices[0].message.content
    response = await client.responses.create(model="gpt-4o", input="Hello!")
    assert response.status == "completed"
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="gpt-4", input="Hello!")

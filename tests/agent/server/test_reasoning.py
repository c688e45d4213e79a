"""Summaries of reasoning, and reasoning as a token that clients send back."""

from typing import Any

import pytest

from agent.conversation.reasoning_token import TOKEN_PREFIX, decode_reasoning, encode_reasoning
from tests.support.endpoint import Serve, api_error, comparable, engine_markup, events_of
from tests.support.invariants import check
from tests.support.scripts import HELLO, WEATHER, call, final, thought

REASONS = "They ask, e.g. about X. I look.\n\n## Plan\nI answer.\n\nDone"
REPLY = thought(REASONS) + final("Yes.")
PARTS = ["They ask, e.g. about X. I look.", "## Plan\nI answer.", "Done"]
STYLES = {"auto": PARTS, "detailed": PARTS, "concise": ["They ask, e.g. about X."]}
ENCRYPTED = "reasoning.encrypted_content"


def summary(response: dict[str, Any]) -> list[str]:
    return [part["text"] for part in response["output"][0]["summary"]]


@pytest.mark.parametrize("style", STYLES)
async def test_summary_streamed_stored_and_replayed(serve: Serve, style: str) -> None:
    served = await serve(REPLY)
    body = {"input": "x", "reasoning": {"summary": style}, "background": True}
    events = await served.stream(**body)
    response = check(events)
    assert summary(response) == STYLES[style]
    assert response["output"][0]["content"][0]["text"] == REASONS
    assert response["reasoning"]["summary"] == ("concise" if style == "concise" else "detailed")
    types = [event["type"] for event in events]
    first_part = types.index("response.reasoning_summary_part.added")
    assert first_part < types.index("response.reasoning_text.done"), "as it comes"
    stored = (await served.get(f"/v1/responses/{response['id']}")).json()
    assert stored == response
    replayed = await served.get(f"/v1/responses/{response['id']}?stream=true")
    assert events_of(replayed.text) == events


async def test_summary_equals_that_of_a_response_that_is_not_streamed(serve: Serve) -> None:
    served = await serve(REPLY, REPLY)
    body = {"input": "x", "reasoning": {"generate_summary": "detailed"}}
    whole = (await served.post(body)).json()
    assert comparable(whole) == comparable(check(await served.stream(**body)))
    assert summary(whole) == PARTS


async def test_summary_absent_unless_requested(serve: Serve) -> None:
    served = await serve(REPLY)
    response = check(await served.stream(input="x"))
    assert summary(response) == [] and "encrypted_content" not in response["output"][0]
    assert response["reasoning"]["summary"] is None


async def test_summary_of_interrupted_reasoning_is_incomplete(serve: Serve) -> None:
    served = await serve(thought("word " * 400) + final("never"))
    events = await served.stream(input="x", reasoning={"summary": "detailed"}, max_output_tokens=50)
    response = check(events)
    assert response["status"] == "incomplete" and summary(response)[0].startswith("word word")
    (closed,) = [e for e in events if e["type"] == "response.reasoning_summary_part.done"]
    assert closed["status"] == "incomplete"


async def test_encrypted_reasoning_brings_the_same_reasoning_back(serve: Serve) -> None:
    reply = thought(REASONS) + call("get_weather", city="Oslo")
    served = await serve(reply, final("Rain."), final("Rain."), final("Rain."))
    question = {"role": "user", "content": "Oslo?"}
    body = {
        "tools": [WEATHER],
        "store": False,
        "include": [ENCRYPTED],
        "reasoning": {"summary": "concise"},
    }
    first = check(await served.stream(**body, input=[question]))
    reasoning, called = first["output"]
    result = {"type": "function_call_output", "call_id": called["call_id"], "output": "rain"}

    async def read_with(reasoning: dict[str, Any]) -> str:
        answer = await served.post({**body, "input": [question, reasoning, called, result]})
        assert answer.status_code == 200, answer.text
        return engine_markup(served)

    whole = await read_with(reasoning)
    assert REASONS in whole
    del reasoning["content"]
    assert await read_with(reasoning) == whole, "the token alone"
    del reasoning["encrypted_content"]
    assert f"analysis<|message|>{PARTS[0].split(' I look')[0]}<|end|>" in await read_with(reasoning)


async def test_encrypted_reasoning_of_others_is_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    ours = encode_reasoning("I think.")
    bomb = encode_reasoning("a" * 5_000_000)
    for token in ("gAAAAABn", "%%%", "ÿ", ours[:-8], bomb):
        item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": token}
        answer = await served.post({"input": [{"role": "user", "content": "x"}, item]})
        error = api_error(answer, 400)
        assert error["code"] == "invalid_encrypted_content"
        assert error["param"] == "input[1].encrypted_content"
    assert decode_reasoning(ours) == "I think." and not ours.startswith(TOKEN_PREFIX.decode())


async def test_encrypted_reasoning_of_others_is_read_by_its_summary(serve: Serve) -> None:
    served = await serve(HELLO)
    summary = [{"type": "summary_text", "text": "I look it up."}]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAAAABn"}
    open_call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "y"}
    question = {"role": "user", "content": "x"}
    answer = await served.post({"input": [question, item, open_call, output]})
    assert answer.status_code == 200, answer.text
    assert "analysis<|message|>I look it up.<|end|>" in engine_markup(served)


async def test_encrypted_reasoning_of_others_in_finished_turn_is_not_read(serve: Serve) -> None:
    served = await serve(HELLO)
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABn"}
    question = {"role": "user", "content": "x"}
    answered = [question, item, {"role": "assistant", "content": "y"}, question]
    answer = await served.post({"input": answered})
    assert answer.status_code == 200, answer.text
    assert engine_markup(served).count("analysis<|message|>") == 1, "that of the new answer"


async def test_encrypted_reasoning_of_a_stored_response(serve: Serve) -> None:
    served = await serve(HELLO)
    created = (await served.post({"input": "x"})).json()
    path = f"/v1/responses/{created['id']}"
    for name in ("include", "include[]"):
        stored = (await served.get(path, params={name: ENCRYPTED})).json()
        token = stored["output"][0].pop("encrypted_content")
        assert decode_reasoning(token) == "They say hello." and stored == created
    for refused in (path, f"{path}/input_items"):
        error = api_error(await served.get(refused, params={"include[]": "everything"}), 400)
        assert error["param"] == "include"

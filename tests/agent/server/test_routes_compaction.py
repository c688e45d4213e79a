"""POST /v1/responses/compact: a summary that stands for a history, from then on."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, UnprocessableEntityError

from agent.conversation.compaction import SUMMARY, encode_summary
from agent.server.input.compaction_token import decode_summary
from agent.turn.loop import Turn
from tests.support.endpoint import API_KEY, Serve, Served, api_error, engine_markup
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, final, thought

SUMMARY_TEXT = "They like blue; the number is 7."
SUMMARY_REPLY = thought("What was it?") + final(SUMMARY_TEXT)
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "I like blue."},
    {"role": "assistant", "content": "So do I. " * 30},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "7"},
    {"role": "assistant", "content": "The number is 7."},
    {"role": "user", "content": "Remember it."},
    {"role": "assistant", "content": "I do."},
]


def lenient_client(served: Served) -> AsyncOpenAI:
    """Not strict: its own types have no user's message in an output, its documentation does."""
    return AsyncOpenAI(base_url=served.url, api_key=API_KEY, max_retries=0)


async def test_compact_history_becomes_one_item(serve: Serve) -> None:
    served = await serve(SUMMARY_REPLY, HELLO)
    async with lenient_client(served) as openai:
        compacted = await openai.responses.compact(model="default", input=HISTORY)  # type: ignore[arg-type]
        summary_prompt = engine_markup(served)
        assert compacted.object == "response.compaction" and compacted.usage.output_tokens > 10
        assert (
            0
            < compacted.usage.output_tokens_details.reasoning_tokens
            < compacted.usage.output_tokens
        )
        *users, summary = compacted.output
        assert [getattr(item, "role", None) for item in users] == ["user", "user"]
        assert summary.type == "compaction" and "blue" not in summary.encrypted_content
        assert "So do I" in summary_prompt and "write a summary" in summary_prompt
        items: list[Any] = [
            item.model_dump(exclude_none=True, warnings=False) for item in compacted.output
        ]
        answer = await openai.responses.create(
            model="default", input=[*items, {"role": "user", "content": "What do I like?"}]
        )
        assert answer.status == "completed"
    prompt = engine_markup(served)
    assert SUMMARY in prompt and "They like blue; the number is 7." in prompt
    assert (
        "So do I" not in prompt
        and prompt.count("I like blue.") == 1
        and "functions.f" not in prompt
    )


async def test_compact_previous_response_is_included(serve: Serve) -> None:
    served = await serve(HELLO, SUMMARY_REPLY)
    async with lenient_client(served) as openai:
        first = await openai.responses.create(model="default", input="My name is Ada.")
        compacted = await openai.responses.compact(model="default", previous_response_id=first.id)
    summary_prompt = engine_markup(served)
    assert "My name is Ada." in summary_prompt and "Hello there!" in summary_prompt
    assert [item.type for item in compacted.output] == ["message", "compaction"]


async def test_compact_history_longer_than_context(serve: Serve) -> None:
    served = await serve(SUMMARY_REPLY, context=600)
    async with lenient_client(served) as openai:
        compacted = await openai.responses.compact(model="default", input=HISTORY * 20)  # type: ignore[arg-type]
    assert compacted.output[-1].type == "compaction"
    assert len(compacted.output) < 30, "not all of the user's messages fit either"
    assert compacted.usage.input_tokens > 600, "more than one generation"


async def test_compact_no_summary_is_an_error(serve: Serve) -> None:
    served = await serve(final(""))
    async with lenient_client(served) as openai:
        with pytest.raises(UnprocessableEntityError, match="the model's summary was empty"):
            await openai.responses.compact(model="default", input=HISTORY)  # type: ignore[arg-type]
        with pytest.raises(BadRequestError, match="input"):
            await openai.responses.compact(model="default")


async def test_compaction_item_of_another_server_is_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    async with lenient_client(served) as openai:
        for content in ("gAAAAABo", "ö", encode_summary("x")[3:]):
            item: Any = {"type": "compaction", "encrypted_content": content}
            with pytest.raises(BadRequestError) as refused:
                await openai.responses.create(model="default", input=[item])
            assert refused.value.code == "invalid_encrypted_content"
            assert refused.value.param == "input[0].encrypted_content"


async def test_compact_disconnect_cancels(serve: Serve) -> None:
    served = await serve(LONG)
    async with lenient_client(served) as openai:
        work = openai.responses.compact(model="default", input=HISTORY)  # type: ignore[arg-type]
        leaving = asyncio.create_task(work)
        begun = asyncio.get_running_loop().create_future()
        served.runtime.hub.subscribe(begun.set_result)
        turn: Turn = await begun
        async for batch in turn.log.follow():
            if any(event.type == "agent.prefill" for event in batch):
                leaving.cancel()
        assert (await turn.done()).status == "cancelled"


@pytest.mark.long
async def test_compact_embedded_model_summarises(serve: Serve) -> None:
    """It was trained to call and never to summarise: it is held to an answer of bounded length."""
    served = await serve()
    answer = await served.post({"model": "default", "input": HISTORY}, "/compact")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["output"][-1]["type"] == "compaction"
    summary = decode_summary(body["output"][-1]["encrypted_content"], "input")
    assert summary and body["usage"]["output_tokens"] <= 4096


async def test_compact_without_model_is_refused(serve: Serve) -> None:
    served = await serve(SUMMARY_REPLY)
    error = api_error(await served.post({"input": HISTORY}, "/compact"), 400)
    assert (error["param"], error["code"]) == ("model", "missing_required_parameter")
    unset = await served.post({"model": None, "input": HISTORY}, "/compact")
    assert unset.status_code == 200, "the API's reference lets it be null"


async def test_compact_refuses_a_conversation(serve: Serve) -> None:
    for lenient in (False, True):
        served = await serve(SUMMARY_REPLY, server={"lenient": lenient})
        name = (await served.post({}, url=f"{served.url}/conversations")).json()["id"]
        body = {"model": None, "input": HISTORY, "conversation": name}
        answer = await served.post(body, "/compact")
        if lenient:
            assert answer.status_code == 200
        else:
            assert api_error(answer, 400)["param"] == "conversation"


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
async def test_compaction_of_another_server_is_read_where_it_is_text(
    serve: Serve, kind: str
) -> None:
    """OpenAI's is encrypted; Codex sends it under all of these types, or as a mark without content."""
    served = await serve(HELLO)
    user = {"role": "user", "content": "And?"}
    text = {"type": kind, "encrypted_content": "They like blue. The number is 7."}
    assert (await served.post({"input": [text, user]})).status_code == 200
    assert "They like blue. The number is 7." in engine_markup(served) and SUMMARY in (
        engine_markup(served)
    )
    sealed = {"type": kind, "id": "cmp_1", "encrypted_content": "gAAAAABpJ9ab_-cd=="}
    error = api_error(await served.post({"input": [sealed, user]}), 400)
    assert error["param"] == "input[0].encrypted_content"
    assert error["code"] == "invalid_encrypted_content" and "Another server" in error["message"]
    assert (await served.post({"input": [{"type": kind}, user]})).status_code == 200
    assert SUMMARY not in engine_markup(served)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    ],
    ids=lambda part: part["type"],
)
async def test_compact_tells_of_a_newest_image(serve: Serve, part: dict[str, Any]) -> None:
    """Nobody answers it, so it is as in earlier messages."""
    served = await serve(SUMMARY_REPLY, HELLO)
    look = {"role": "user", "content": [{"type": "input_text", "text": "Look."}, part]}
    history = [*HISTORY, look]
    answer = await served.post({"model": None, "input": history}, "/compact")
    assert answer.status_code == 200, answer.text
    assert "Look.\n[There was " in engine_markup(served)
    api_error(await served.post({"input": history}), 400)
    again = [*answer.json()["output"], {"role": "user", "content": "Go on."}]
    assert (await served.post({"input": again})).status_code == 200


async def test_compaction_trigger_ends_with_a_compaction_item(serve: Serve) -> None:
    served = await serve(SUMMARY_REPLY, final("Seven."), final("Blue."))
    events = await served.stream(input=[*HISTORY, {"type": "compaction_trigger"}])
    kinds = [event["type"] for event in events]
    assert "response.compaction.compacting" in kinds
    first = check(events)
    (item,) = first["output"]
    assert decode_summary(item["encrypted_content"], "input") == SUMMARY_TEXT
    listed = (await served.get(f"/v1/responses/{first['id']}/input_items")).json()["data"]
    assert len(listed) == len(HISTORY), "the trigger is no part of the history"
    check(await served.stream(input="Which number?", previous_response_id=first["id"]))
    markup = engine_markup(served)
    assert SUMMARY_TEXT in markup and HISTORY[0]["content"] not in markup
    check(await served.stream(input=[item, {"role": "user", "content": "Which colour?"}]))
    assert SUMMARY_TEXT in engine_markup(served)


async def test_compaction_trigger_without_a_summary_fails(serve: Serve) -> None:
    served = await serve(final(""))
    response = check(await served.stream(input=[*HISTORY, {"type": "compaction_trigger"}]))
    assert response["status"] == "failed" and response["error"]["code"] == "server_error"


async def test_context_management_compacts_above_the_threshold(serve: Serve) -> None:
    served = await serve(SUMMARY_REPLY, final("Seven."), final("Eight."), context=8192)
    long = [{"role": "user", "content": "blue " * 1500}, {"role": "assistant", "content": "Yes."}]
    body = {"input": [*long, {"role": "user", "content": "Which number?"}]}
    managed = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}
    response = check(await served.stream(**body, **managed))
    compaction, message = response["output"]
    assert compaction["type"] == "compaction" and message["content"][0]["text"] == "Seven."
    assert decode_summary(compaction["encrypted_content"], "input") == SUMMARY_TEXT
    assert "blue blue" not in engine_markup(served)
    managed = {"context_management": [{"type": "compaction", "compact_threshold": 6000}]}
    (message,) = check(await served.stream(**body, **managed))["output"]
    assert "blue blue" in engine_markup(served)

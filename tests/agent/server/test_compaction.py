"""POST /v1/responses/compact: a summary that stands for a history, from then on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, UnprocessableEntityError

from agent.conversation.compaction import SUMMARY
from agent.server.compaction_token import packed
from agent.turn.loop import Turn
from tests.agent.server.test_tool_selection import seen
from tests.support.endpoint import KEY, Serve, Served
from tests.support.scripts import HELLO, LONG, final, thought

TOLD = thought("What was it?") + final("They like blue; the number is 7.")
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "I like blue."},
    {"role": "assistant", "content": "So do I. " * 30},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "7"},
    {"role": "assistant", "content": "The number is 7."},
    {"role": "user", "content": "Remember it."},
    {"role": "assistant", "content": "I do."},
]


def client(served: Served) -> AsyncOpenAI:
    """Not strict: its own types have no user's message in an output, its documentation does."""
    return AsyncOpenAI(base_url=served.url, api_key=KEY, max_retries=0)


async def test_a_history_becomes_one_item(serve: Serve) -> None:
    served = await serve(TOLD, HELLO)
    async with client(served) as openai:
        made = await openai.responses.compact(model="default", input=HISTORY)  # type: ignore[arg-type]
        asked = seen(served)
        assert made.object == "response.compaction" and made.usage.output_tokens > 10
        assert 0 < made.usage.output_tokens_details.reasoning_tokens < made.usage.output_tokens
        *users, summary = made.output
        assert [getattr(item, "role", None) for item in users] == ["user", "user"]
        assert summary.type == "compaction" and "blue" not in summary.encrypted_content
        assert "So do I" in asked and "write a summary" in asked
        items: list[Any] = [
            item.model_dump(exclude_none=True, warnings=False) for item in made.output
        ]
        answer = await openai.responses.create(
            model="default", input=[*items, {"role": "user", "content": "What do I like?"}]
        )
        assert answer.status == "completed"
    told = seen(served)
    assert SUMMARY in told and "They like blue; the number is 7." in told
    assert "So do I" not in told and told.count("I like blue.") == 1 and "functions.f" not in told


async def test_what_followed_a_response_is_summarised_too(serve: Serve) -> None:
    served = await serve(HELLO, TOLD)
    async with client(served) as openai:
        first = await openai.responses.create(model="default", input="My name is Ada.")
        made = await openai.responses.compact(model="default", previous_response_id=first.id)
    asked = seen(served)
    assert "My name is Ada." in asked and "Hello there!" in asked
    assert [item.type for item in made.output] == ["message", "compaction"]


async def test_a_history_longer_than_the_context(serve: Serve) -> None:
    served = await serve(TOLD, context=600)
    async with client(served) as openai:
        made = await openai.responses.compact(model="default", input=HISTORY * 20)  # type: ignore[arg-type]
    assert made.output[-1].type == "compaction"
    assert len(made.output) < 30, "not all of the user's messages fit either"
    assert made.usage.input_tokens > 600, "more than one generation"


async def test_without_a_summary_there_is_an_error(serve: Serve) -> None:
    served = await serve(final(""))
    async with client(served) as openai:
        with pytest.raises(UnprocessableEntityError, match="the model wrote no summary"):
            await openai.responses.compact(model="default", input=HISTORY)  # type: ignore[arg-type]
        with pytest.raises(BadRequestError, match="input"):
            await openai.responses.compact(model="default")


async def test_a_foreign_item_is_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    async with client(served) as openai:
        for content in ("gAAAAABo", "ö", packed("x")[3:]):
            item: Any = {"type": "compaction", "encrypted_content": content}
            with pytest.raises(BadRequestError) as refused:
                await openai.responses.create(model="default", input=[item])
            assert refused.value.code == "invalid_encrypted_content"
            assert refused.value.param == "input[0].encrypted_content"


async def test_a_client_that_leaves_ends_it(serve: Serve) -> None:
    served = await serve(LONG)
    async with client(served) as openai:
        work = openai.responses.compact(model="default", input=HISTORY)  # type: ignore[arg-type]
        leaving = asyncio.create_task(work)
        begun = asyncio.get_running_loop().create_future()
        served.runtime.hub.listen(begun.set_result)
        turn: Turn = await begun
        async for batch in turn.log.follow():
            if any(event.type == "agent.prefill" for event in batch):
                leaving.cancel()
        assert (await turn.done()).status == "cancelled"

"""More requests than the engine, or the compiler of grammars, takes."""

import asyncio
from typing import Any

import pytest

from agent.engine.llama.engine import MAX_QUEUED_REQUESTS
from agent.engine.protocol import EngineError
from agent.server.input.token_memo import pretokenise
from agent.server.responses import request_planner
from tests.support.endpoint import Serve, api_error
from tests.support.engines import block_compiler
from tests.support.requests import ENDLESS
from tests.support.scripts import HELLO
from tests.support.websocket import error_event, open_socket, request_events


@pytest.mark.long
async def test_engine_queue_full_status_429(serve: Serve) -> None:
    import openai

    served = await serve(temperature=0, loop_guard=False)
    await served.runtime.ready()
    capacity = served.runtime.loaded.engine.placement.sequences + MAX_QUEUED_REQUESTS  # type: ignore[attr-defined]
    body = {"input": "x", "background": True, **ENDLESS}
    answers = await asyncio.gather(*(served.post(body) for _ in range(capacity + 1)))
    accepted = [answered.json()["id"] for answered in answers if answered.is_success]
    async with open_socket(served) as client:
        chat: Any = {"model": "default", "messages": [{"role": "user", "content": "x"}]}
        completions = served.client().chat.completions
        *refused, over_socket, chat_body, chat_stream = await asyncio.gather(
            served.post({"input": "x"}),
            served.post({"input": "x", "stream": True}),
            served.post({"model": "default", "input": "x"}, path="/compact"),
            request_events(client, input="x"),
            completions.create(**chat),
            completions.create(**chat, stream=True),
            return_exceptions=True,
        )
    for refusal in [*refused, *(answered for answered in answers if not answered.is_success)]:
        error = api_error(refusal, 429)
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert refusal.headers["retry-after"] == "5"  # type: ignore[union-attr]
    assert isinstance(chat_body, openai.RateLimitError)
    assert isinstance(chat_stream, openai.RateLimitError)
    assert error_event(over_socket, 429)["headers"] == {"retry-after": "5"}  # type: ignore[arg-type]
    assert {turn.response.id for turn in served.service.running} == set(accepted)
    assert len(accepted) == capacity
    served.service.stop_all()
    await served.service.wait_idle()
    assert (await served.post({"input": "x", "max_output_tokens": 16})).status_code == 200


@pytest.mark.slow
async def test_grammar_queue_full_status_429(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = await serve()
    await served.runtime.ready()

    def post_schema(number: int) -> Any:
        schema = {"type": "object", "properties": {f"n{number}": {"type": "integer"}}}
        form = {"type": "json_schema", "name": "x", "schema": schema}
        return served.post({"input": "x", "max_output_tokens": 16, "text": {"format": form}})

    form: Any = served.runtime.format
    monkeypatch.setattr(form.grammars, "max_awaited", 2)  # later tests have the same compiler
    gate = block_compiler(form.grammars)
    waiting = [asyncio.create_task(post_schema(number)) for number in range(6)]
    for answered in asyncio.as_completed(waiting):
        error = api_error(await answered, 429)
        assert error["code"] == "rate_limit_exceeded"
        if sum(task.done() for task in waiting) >= 4:
            break
    gate.set()
    answers = await asyncio.gather(*waiting)
    assert [answered.status_code for answered in answers].count(200) == 2


async def test_model_is_not_switched_while_request_is_planned(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    reading, resume = asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any, **keywords: Any) -> Any:
        reading.set()
        await resume.wait()
        return await pretokenise(*arguments, **keywords)

    monkeypatch.setattr(request_planner, "pretokenise", slowly)
    posted = asyncio.create_task(served.post({"input": "x"}))
    await reading.wait()
    with pytest.raises(EngineError, match="A turn is running"):
        await served.runtime.switch(served.runtime.model)
    resume.set()
    assert (await posted).json()["status"] == "completed"
    api_error(await served.post({"input": [{"type": "telepathy"}]}), 400)
    api_error(await served.post({"input": "x", "previous_response_id": "resp_0"}), 400)
    await served.runtime.switch(served.runtime.model)
    assert (await served.post({"input": "y"})).status_code == 200

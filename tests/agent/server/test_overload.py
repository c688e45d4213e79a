"""As many responses as the engine takes, and one more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import openai
import pytest

from agent.engine import grammars
from agent.engine.llama.worker import QUEUE
from agent.engine.protocol import EngineError
from agent.formats.harmony.token_ids import CALL, ENDOFTEXT, RETURN
from agent.server import planner
from agent.server.token_limits import tokenised
from tests.agent.server.test_errors import error_of
from tests.agent.server.test_websocket import answer, socket
from tests.agent.server.test_websocket import error_of as told
from tests.support.endpoint import Serve
from tests.support.scripts import HELLO

ENDLESS = {"logit_bias": {str(token): -100 for token in (RETURN, CALL, ENDOFTEXT)}}


@pytest.mark.slow
async def test_one_more_is_told_to_come_back(serve: Serve) -> None:
    served = await serve(temperature=0)
    await served.runtime.ready()
    most = served.runtime.engine.placement.sequences + QUEUE  # type: ignore[attr-defined]
    body = {"input": "x", "background": True, **ENDLESS}
    answers = await asyncio.gather(*(served.post(body) for _ in range(most + 1)))
    names = [made.json()["id"] for made in answers if made.is_success]
    async with socket(served) as client:
        chat: Any = {"model": "default", "messages": [{"role": "user", "content": "x"}]}
        completions = served.client().chat.completions
        *refused, over_socket, one, other = await asyncio.gather(
            served.post({"input": "x"}),
            served.post({"input": "x", "stream": True}),
            served.post({"input": "x"}, path="/compact"),
            answer(client, input="x"),
            completions.create(**chat),
            completions.create(**chat, stream=True),
            return_exceptions=True,
        )
    for got in [*refused, *(made for made in answers if not made.is_success)]:
        error = error_of(got, 429)
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert got.headers["retry-after"] == "5"  # type: ignore[union-attr]
    assert isinstance(one, openai.RateLimitError) and isinstance(other, openai.RateLimitError)
    assert told(over_socket, 429)["headers"] == {"retry-after": "5"}  # type: ignore[arg-type]
    assert {turn.response.id for turn in served.endpoint.running} == set(names)
    assert len(names) == most
    served.endpoint.stop_all()
    await served.endpoint.drained()
    assert (await served.post({"input": "x", "max_output_tokens": 3})).status_code == 200


@pytest.mark.slow
async def test_too_many_schemas_to_compile(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "WAITING", 2)
    served = await serve()
    await served.runtime.ready()

    def asked(number: int) -> Any:
        schema = {"type": "object", "properties": {f"n{number}": {"type": "integer"}}}
        form = {"type": "json_schema", "name": "x", "schema": schema}
        return served.post({"input": "x", "max_output_tokens": 3, "text": {"format": form}})

    form: Any = served.runtime.format
    gate = threading.Event()
    form.grammars._thread.submit(gate.wait)
    waiting = [asyncio.create_task(asked(number)) for number in range(6)]
    for made in asyncio.as_completed(waiting):
        error = error_of(await made, 429)
        assert error["code"] == "rate_limit_exceeded"
        if sum(task.done() for task in waiting) >= 4:
            break
    gate.set()
    answers = await asyncio.gather(*waiting)
    assert [made.status_code for made in answers].count(200) == 2


async def test_the_model_stays_while_a_request_is_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*given: Any, **how: Any) -> Any:
        reading.set()
        await go_on.wait()
        return await tokenised(*given, **how)

    monkeypatch.setattr(planner, "tokenised", slowly)
    asked = asyncio.create_task(served.post({"input": "x"}))
    await reading.wait()
    with pytest.raises(EngineError, match="A turn is running"):
        await served.runtime.switch(served.runtime.model)
    go_on.set()
    assert (await asked).json()["status"] == "completed"
    error_of(await served.post({"input": [{"type": "telepathy"}]}), 400)
    error_of(await served.post({"input": "x", "previous_response_id": "resp_0"}), 400)
    await served.runtime.switch(served.runtime.model)
    assert (await served.post({"input": "y"})).status_code == 200

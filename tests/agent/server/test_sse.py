"""Stream and body: the same response, in the events that clients know."""

import asyncio
from pathlib import Path

import httpx2

from agent import events as ev
from tests.support.endpoint import Serve, comparable, http_client
from tests.support.invariants import check, fold
from tests.support.requests import CODE_INTERPRETER
from tests.support.scripts import HELLO, WEATHER, final, hold, preamble, python, raw_call, thought
from tests.support.waiting import wait_until


async def test_repairs_are_in_the_response_for_strict_clients_too(serve: Serve) -> None:
    """The client of these tests validates what it gets."""
    broken = raw_call("functions.get_weather", '{"place": "Oslo"')
    served = await serve(thought("Hm.") + broken, HELLO)
    client, body = served.client(), {"model": "default", "input": "x", "tools": [WEATHER]}
    streamed = None
    async for event in await client.responses.create(stream=True, **body):  # type: ignore[call-overload]
        if event.type == "response.completed":
            streamed = event.response
    assert streamed is not None
    stored = await client.responses.retrieve(streamed.id)
    call = streamed.output[-1]
    assert call.arguments == '{"place": "Oslo"}'
    repair = {"rule": "arguments", "text": "", "item_id": call.id}
    assert streamed.model_extra["repairs"] == [repair] == (stored.model_extra or {})["repairs"]
    plain = await client.responses.create(**body)
    assert "repairs" not in (plain.model_extra or {}), "nothing was mended"


async def test_sse_folded_stream_equals_body(serve: Serve) -> None:
    served = await serve(HELLO)
    events = await served.stream(input="hello")
    body = (await served.post({"input": "hello"})).json()
    streamed = check(events)
    assert comparable(streamed) == comparable(body) == comparable(fold(events))
    assert [item["type"] for item in body["output"]] == ["reasoning", "message"]
    assert body["output"][1]["content"][0]["text"] == "Hello there!"
    assert body["status"] == "completed" and body["completed_at"] >= body["created_at"]
    on_request = {"input_messages", "output_messages", "prompt_cache_retention", "user"}
    on_request |= {"conversation", "repairs", "stop_sequence"}
    assert set(body) == set(ev.Response.model_fields) - on_request


async def test_sse_events_equal_turn_log(serve: Serve) -> None:
    served = await serve(preamble("I compute.") + python("print(6*7)"), final("42"), tools="python")
    events = await served.stream(input="6*7?", tools=[CODE_INTERPRETER])
    final_response = check(events)
    (turn,) = served.turns
    logged = [e.model_dump(mode="json") for e in turn.log.events if isinstance(e, ev.OfficialEvent)]
    assert events == logged
    assert final_response == turn.response.model_dump(mode="json")
    assert turn.source == "http"


async def test_sse_each_event_is_sent_at_once(serve: Serve, tmp_path: Path) -> None:
    """Whichever word is the last one so far, the client has it before the model goes on."""
    words = {after: tmp_path / f"go{after}" for after in (4, 5, 6, 7, 14, 15, 16)}
    served = await serve(*(hold(HELLO, after, go) for after, go in words.items()))
    chunks: list[bytes] = []
    async with http_client() as http:
        for count, go in enumerate(words.values(), 1):
            request = {"stream": True, "input": "x"}
            async with http.stream("POST", f"{served.url}/responses", json=request) as answer:
                assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
                parts, begun = answer.aiter_raw(), len(chunks)
                while b"".join(chunks[begun:]).count(b"_text.delta\n") < count:
                    chunks.append(await anext(parts))
                assert served.turns[-1].response.status == "in_progress"
                go.touch()
                chunks += [part async for part in parts]
    assert len(chunks) > 10, "events come one by one, not all at the end"
    assert all(chunk.startswith((b"event: ", b"data: [DONE]")) for chunk in chunks)
    assert all(chunk.endswith(b"\n\n") for chunk in chunks)
    assert b"\r" not in b"".join(chunks)


async def test_sse_read_by_openai_python(serve: Serve) -> None:
    from openai.types.responses import Response

    served = await serve(thought("Let me see.") + preamble("First this.") + final("Then that."))
    client = served.client()
    stream = await client.responses.create(model="default", input="x", stream=True)
    async for event in stream:
        last = event
    assert last.type == "response.completed"
    body = await client.responses.create(model="tiny", input="x")
    assert isinstance(body, Response)
    assert comparable(last.response.model_dump()) == comparable(body.model_dump())
    assert [item.phase for item in body.output if item.type == "message"] == [
        "commentary",
        "final_answer",
    ]


async def test_sse_read_by_sync_openai_python(serve: Serve) -> None:
    served = await serve(HELLO)

    def use() -> tuple[str, str]:
        with served.sync_client() as client:
            text = ""
            for event in client.responses.create(model="default", input="x", stream=True):
                if event.type == "response.output_text.delta":
                    text += event.delta
            return text, client.responses.create(model="default", input="x").output_text

    assert await asyncio.to_thread(use) == ("Hello there!", "Hello there!")


async def test_sse_read_by_openai_stream_helper(serve: Serve) -> None:
    served = await serve(HELLO)
    async with served.client().responses.stream(model="default", input="x") as stream:
        types = [event.type async for event in stream]
        final_response = await stream.get_final_response()
    assert types[0] == "response.created" and types[-1] == "response.completed"
    assert final_response.output_text == "Hello there!"


async def test_sse_concurrent_requests_all_finish(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    bodies = (served.post({"input": f"x{n}"}) for n in range(4))
    streams = (served.stream(input=f"x{n}") for n in range(4))
    answering = asyncio.gather(*bodies, *streams)
    await wait_until(lambda: len(served.service.running) == 8)
    go.touch()
    for answer in await answering:
        response = answer.json() if isinstance(answer, httpx2.Response) else check(answer)
        assert response["status"] == "completed"
        assert response["output"][1]["content"][0]["text"] == "Hello there!"
    assert len({turn.response.id for turn in served.turns}) == 8
    assert not served.service.running


async def test_sse_max_output_tokens_incomplete(serve: Serve) -> None:
    served = await serve(final("one two three four five six seven eight " * 3))
    response = check(await served.stream(input="x", max_output_tokens=16))
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][-1]["status"] == "incomplete"
    assert response["max_output_tokens"] == 16
    assert response["usage"]["output_tokens"] == 16
    body = await served.client().responses.create(model="default", input="x", max_output_tokens=16)
    assert comparable(body.model_dump(mode="json"))["status"] == "incomplete"

"""Stream and body: the same response, in the events that clients know."""

from __future__ import annotations

import asyncio

import httpx2
from openai.types.responses import Response

from agent import events as ev
from tests.support.endpoint import Serve, plain, plain_http
from tests.support.invariants import check, fold
from tests.support.scripts import HELLO, final, preamble, python, thought

CODE = {"type": "mcp", "server_label": "code_interpreter"}


async def test_the_folded_stream_is_the_body(serve: Serve) -> None:
    served = await serve(HELLO)
    events = await served.stream(input="hello")
    body = (await served.post({"input": "hello"})).json()
    streamed = check(events)
    assert plain(streamed) == plain(body) == plain(fold(events))
    assert [item["type"] for item in body["output"]] == ["reasoning", "message"]
    assert body["output"][1]["content"][0]["text"] == "Hello there!"
    assert body["status"] == "completed" and body["completed_at"] >= body["created_at"]
    asked_for = {"input_messages", "output_messages"}
    assert set(body) == set(ev.Response.model_fields) - asked_for


async def test_what_is_sent_is_what_the_turn_holds(serve: Serve) -> None:
    served = await serve(preamble("I compute.") + python("print(6*7)"), final("42"), tools="python")
    events = await served.stream(input="6*7?", tools=[CODE])
    final_response = check(events)
    (turn,) = served.turns
    held = [e.model_dump(mode="json") for e in turn.log.events if isinstance(e, ev.Official)]
    assert events == held
    assert final_response == turn.response.model_dump(mode="json")
    assert turn.source == "http"


async def test_each_event_is_one_piece_on_the_wire(serve: Serve) -> None:
    served = await serve({"markup": HELLO, "delay_ms": 20})
    pieces: list[bytes] = []
    async with (
        plain_http() as http,
        http.stream("POST", f"{served.url}/responses", json={"stream": True, "input": "x"}) as got,
    ):
        assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
        async for piece in got.aiter_raw():
            pieces.append(piece)
    assert len(pieces) > 10, "events come one by one, not all at the end"
    assert all(piece.startswith((b"event: ", b"data: [DONE]")) for piece in pieces)
    assert all(piece.endswith(b"\n\n") for piece in pieces)
    assert b"\r" not in b"".join(pieces)


async def test_openai_python(serve: Serve) -> None:
    served = await serve(thought("Let me see.") + preamble("First this.") + final("Then that."))
    client = served.client()
    stream = await client.responses.create(model="default", input="x", stream=True)
    async for event in stream:
        last = event
    assert last.type == "response.completed"
    body = await client.responses.create(model="tiny", input="x")
    assert isinstance(body, Response)
    assert plain(last.response.model_dump()) == plain(body.model_dump())
    assert [item.phase for item in body.output if item.type == "message"] == [
        "commentary",
        "final_answer",
    ]


async def test_openai_python_without_asyncio(serve: Serve) -> None:
    served = await serve(HELLO)

    def use() -> tuple[str, str]:
        with served.sync_client() as client:
            text = ""
            for event in client.responses.create(model="default", input="x", stream=True):
                if event.type == "response.output_text.delta":
                    text += event.delta
            return text, client.responses.create(model="default", input="x").output_text

    assert await asyncio.to_thread(use) == ("Hello there!", "Hello there!")


async def test_the_stream_helper(serve: Serve) -> None:
    served = await serve(HELLO)
    async with served.client().responses.stream(model="default", input="x") as stream:
        types = [event.type async for event in stream]
        final_response = await stream.get_final_response()
    assert types[0] == "response.created" and types[-1] == "response.completed"
    assert final_response.output_text == "Hello there!"


async def test_requests_at_the_same_time_all_finish(serve: Serve) -> None:
    served = await serve({"markup": HELLO, "delay_ms": 1})
    bodies = (served.post({"input": f"x{n}"}) for n in range(4))
    streams = (served.stream(input=f"x{n}") for n in range(4))
    answers = await asyncio.gather(*bodies, *streams)
    for answer in answers:
        response = answer.json() if isinstance(answer, httpx2.Response) else check(answer)
        assert response["status"] == "completed"
        assert response["output"][1]["content"][0]["text"] == "Hello there!"
    assert len({turn.response.id for turn in served.turns}) == 8
    assert not served.endpoint.running


async def test_a_limit_cuts_the_answer_off(serve: Serve) -> None:
    served = await serve(final("one two three four five six seven eight"))
    response = check(await served.stream(input="x", max_output_tokens=6))
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][-1]["status"] == "incomplete"
    assert response["max_output_tokens"] == 6
    assert response["usage"]["output_tokens"] == 6
    body = await served.client().responses.create(model="default", input="x", max_output_tokens=6)
    assert plain(body.model_dump(mode="json"))["status"] == "incomplete"

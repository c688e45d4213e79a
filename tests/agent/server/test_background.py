"""Background responses: they go on without their client, and their streams can be resumed."""

from __future__ import annotations

import asyncio

from tests.support.endpoint import Serve, events_of, first_turn, open_request
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG

SLOW_HELLO = {"markup": HELLO, "delay_ms": 20}


async def test_background_response_completes_without_client(serve: Serve) -> None:
    served = await serve(SLOW_HELLO)
    client = served.client()
    created = await client.responses.create(model="default", input="x", background=True)
    assert created.status in ("queued", "in_progress") and created.background
    turn = await first_turn(served)
    assert (await client.responses.retrieve(created.id)).status == "in_progress"
    refused = await served.post({"input": "y", "previous_response_id": created.id})
    assert refused.status_code == 400 and "in progress" in refused.text
    await turn.done()
    stored = await client.responses.retrieve(created.id)
    assert stored.status == "completed" and stored.output_text == "Hello there!"


async def test_background_stream_resumes_after_disconnect(serve: Serve) -> None:
    served = await serve(SLOW_HELLO)
    leaving = await open_request(served, {"input": "x", "stream": True, "background": True})
    turn = await first_turn(served)
    leaving.close()
    path = f"/v1/responses/{turn.response.id}?stream=true"
    live = asyncio.create_task(served.get(f"{path}&starting_after=3"))
    events_in_full = events_of((await served.get(path)).text)
    response = check(events_in_full)
    assert response["status"] == "completed" and response["background"]
    assert events_of((await live).text) == events_in_full[4:]
    replayed = events_of((await served.get(f"{path}&starting_after=5")).text)
    assert replayed == events_in_full[6:], "after its end too"
    assert events_of((await served.get(f"{path}&starting_after=900")).text) == []
    assert (await served.get(f"{path}&starting_after=x")).status_code == 400
    await served.end()
    served = await serve(HELLO)
    assert events_of((await served.get(path)).text) == events_in_full, "after a restart too"


async def test_background_stream_resumes_with_openai_python(serve: Serve) -> None:
    served = await serve(SLOW_HELLO)
    client = served.client()
    first = await client.responses.create(model="default", input="x", background=True, stream=True)
    seen = [await anext(first) for _ in range(4)]
    await first.close()
    name = seen[0].response.id  # type: ignore[union-attr]
    rest = await client.responses.retrieve(name, stream=True, starting_after=3)
    events = [event.model_dump(mode="json") async for event in rest]
    assert [event["sequence_number"] for event in events] == list(range(4, 4 + len(events)))
    assert events[-1]["response"]["status"] == "completed"


async def test_background_response_is_cancelled(serve: Serve) -> None:
    served = await serve(LONG)
    client = served.client()
    created = await client.responses.create(model="default", input="x", background=True)
    await first_turn(served)
    assert (await client.responses.cancel(created.id)).status == "cancelled"
    assert (await client.responses.retrieve(created.id)).status == "cancelled"
    events = events_of((await served.get(f"/v1/responses/{created.id}?stream=true")).text)
    assert check(events)["status"] == "cancelled"


async def test_background_response_deleted_while_running_is_not_stored(serve: Serve) -> None:
    served = await serve(SLOW_HELLO)
    client = served.client()
    created = await client.responses.create(model="default", input="x", background=True)
    turn = await first_turn(served)
    await client.responses.delete(created.id)
    await turn.done()
    await served.service.wait_idle()
    assert (await served.get(f"/v1/responses/{created.id}")).status_code == 404


async def test_background_invalid_combinations_are_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    refused = await served.post({"input": "x", "background": True, "store": False})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "background"
    created = check(await served.stream(input="x"))
    replayed = await served.get(f"/v1/responses/{created['id']}?stream=true")
    assert replayed.status_code == 400 and "background" in replayed.text


async def test_server_drain_waits_for_background_response(serve: Serve) -> None:
    served = await serve(SLOW_HELLO, HELLO)
    created = await served.client().responses.create(model="default", input="x", background=True)
    await first_turn(served)
    served.server.drain()
    async with asyncio.timeout(60):
        await served.serving
    served = await serve(HELLO)
    assert (await served.get(f"/v1/responses/{created.id}")).json()["status"] == "completed"


async def test_reasoning_events_open_responses_renames_them(serve: Serve) -> None:
    served = await serve(HELLO, server={"reasoning_events": "open-responses"})
    answer = await served.post({"input": "x", "stream": True, "background": True})
    events = events_of(answer.text)
    assert {e["type"] for e in events if "reasoning" in e["type"]} == {
        "response.reasoning.delta",
        "response.reasoning.done",
    }
    path = f"/v1/responses/{events[0]['response']['id']}?stream=true"
    assert events_of((await served.get(path)).text) == events
    for event in events:
        event["type"] = event["type"].replace(".reasoning.", ".reasoning_text.")
    check(events)

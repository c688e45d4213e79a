"""Responses that go on without their client, and clients that come back."""

from __future__ import annotations

import asyncio

from tests.agent.server.test_disconnect import connect, started
from tests.support.endpoint import Serve, events_of
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG

SLOW = {"markup": HELLO, "delay_ms": 20}


async def test_it_goes_on_by_itself(serve: Serve) -> None:
    served = await serve(SLOW)
    client = served.client()
    made = await client.responses.create(model="default", input="x", background=True)
    assert made.status in ("queued", "in_progress") and made.background
    turn = await started(served)
    assert (await client.responses.retrieve(made.id)).status == "in_progress"
    refused = await served.post({"input": "y", "previous_response_id": made.id})
    assert refused.status_code == 400 and "in progress" in refused.text
    await turn.done()
    found = await client.responses.retrieve(made.id)
    assert found.status == "completed" and found.output_text == "Hello there!"


async def test_its_client_may_leave_and_come_back(serve: Serve) -> None:
    served = await serve(SLOW)
    leaving = await connect(served, {"input": "x", "stream": True, "background": True})
    turn = await started(served)
    leaving.close()
    path = f"/v1/responses/{turn.response.id}?stream=true"
    live = asyncio.create_task(served.get(f"{path}&starting_after=3"))
    whole = events_of((await served.get(path)).text)
    response = check(whole)
    assert response["status"] == "completed" and response["background"]
    assert events_of((await live).text) == whole[4:]
    again = events_of((await served.get(f"{path}&starting_after=5")).text)
    assert again == whole[6:], "after its end too"
    assert events_of((await served.get(f"{path}&starting_after=900")).text) == []
    assert (await served.get(f"{path}&starting_after=x")).status_code == 400
    await served.end()
    served = await serve(HELLO)
    assert events_of((await served.get(path)).text) == whole, "after a restart too"


async def test_openai_streams_it_again(serve: Serve) -> None:
    served = await serve(SLOW)
    client = served.client()
    first = await client.responses.create(model="default", input="x", background=True, stream=True)
    seen = [await anext(first) for _ in range(4)]
    await first.close()
    name = seen[0].response.id  # type: ignore[union-attr]
    rest = await client.responses.retrieve(name, stream=True, starting_after=3)
    events = [event.model_dump(mode="json") async for event in rest]
    assert [event["sequence_number"] for event in events] == list(range(4, 4 + len(events)))
    assert events[-1]["response"]["status"] == "completed"


async def test_it_is_cancelled(serve: Serve) -> None:
    served = await serve(LONG)
    client = served.client()
    made = await client.responses.create(model="default", input="x", background=True)
    await started(served)
    assert (await client.responses.cancel(made.id)).status == "cancelled"
    assert (await client.responses.retrieve(made.id)).status == "cancelled"
    events = events_of((await served.get(f"/v1/responses/{made.id}?stream=true")).text)
    assert check(events)["status"] == "cancelled"


async def test_a_deleted_one_is_not_kept(serve: Serve) -> None:
    served = await serve(SLOW)
    client = served.client()
    made = await client.responses.create(model="default", input="x", background=True)
    turn = await started(served)
    await client.responses.delete(made.id)
    await turn.done()
    await served.endpoint.drained()
    assert (await served.get(f"/v1/responses/{made.id}")).status_code == 404


async def test_what_cannot_be(serve: Serve) -> None:
    served = await serve(HELLO)
    refused = await served.post({"input": "x", "background": True, "store": False})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "background"
    made = check(await served.stream(input="x"))
    again = await served.get(f"/v1/responses/{made['id']}?stream=true")
    assert again.status_code == 400 and "background" in again.text


async def test_a_server_that_ends_waits_for_it(serve: Serve) -> None:
    served = await serve(SLOW, HELLO)
    made = await served.client().responses.create(model="default", input="x", background=True)
    await started(served)
    served.server.end()
    async with asyncio.timeout(60):
        await served.serving
    served = await serve(HELLO)
    assert (await served.get(f"/v1/responses/{made.id}")).json()["status"] == "completed"


async def test_reasoning_by_the_other_name(serve: Serve) -> None:
    served = await serve(HELLO, face={"reasoning_events": "open-responses"})
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

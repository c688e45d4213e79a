"""Background responses: they go on without their client, and their streams can be resumed."""

import asyncio
from pathlib import Path

import pytest

from tests.support.endpoint import (
    Serve,
    api_error,
    events_of,
    first_turn,
    http_client,
    open_request,
)
from tests.support.invariants import check
from tests.support.requests import ENDLESS
from tests.support.scripts import HELLO, LONG, hold
from tests.support.waiting import HANG_SECONDS, wait_until


async def test_background_response_completes_without_client(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    client = served.client()
    created = await client.responses.create(model="default", input="x", background=True)
    assert created.status == "queued" and created.background
    turn = await first_turn(served)
    assert (await client.responses.retrieve(created.id)).status == "in_progress"
    refused = await served.post({"input": "y", "previous_response_id": created.id})
    assert refused.status_code == 400 and "in progress" in refused.text
    go.touch()
    await turn.done()
    stored = await client.responses.retrieve(created.id)
    assert stored.status == "completed" and stored.output_text == "Hello there!"


async def test_background_stream_resumes_after_disconnect(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    leaving = await open_request(served, {"input": "x", "stream": True, "background": True})
    turn = await first_turn(served)
    leaving.close()
    path = f"/v1/responses/{turn.response.id}?stream=true"
    async with (
        http_client() as http,
        http.stream("GET", f"{served.root}{path}&starting_after=3") as live,
        http.stream("GET", f"{served.root}{path}") as full,
    ):
        assert turn.response.status == "in_progress"
        go.touch()
        texts = [(await answer.aread()).decode() for answer in (live, full)]
    rest, events_in_full = map(events_of, texts)
    response = check(events_in_full)
    assert response["status"] == "completed" and response["background"]
    assert rest == events_in_full[4:]
    replayed = events_of((await served.get(f"{path}&starting_after=5")).text)
    assert replayed == events_in_full[6:], "after its end too"
    assert events_of((await served.get(f"{path}&starting_after=900")).text) == []
    assert (await served.get(f"{path}&starting_after=x")).status_code == 400
    await served.end()
    served = await serve(HELLO)
    assert events_of((await served.get(path)).text) == events_in_full, "after a restart too"


async def test_background_stream_resumes_with_openai_python(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    client = served.client()
    first = await client.responses.create(model="default", input="x", background=True, stream=True)
    seen = [await anext(first) for _ in range(4)]
    await first.close()
    name = seen[0].response.id  # type: ignore[union-attr]
    rest = await client.responses.retrieve(name, stream=True, starting_after=3)
    go.touch()
    events = [event.model_dump(mode="json") async for event in rest]
    assert [event["sequence_number"] for event in events] == list(range(4, 4 + len(events)))
    assert events[-1]["response"]["status"] == "completed"


async def test_background_response_is_cancelled(serve: Serve) -> None:
    served = await serve(LONG)
    client = served.client()
    created = await client.responses.create(model="default", input="x", background=True)
    await first_turn(served)
    assert (await client.responses.cancel(created.id)).status == "cancelled"
    assert (await client.responses.cancel(created.id)).status == "cancelled", "again: as it ended"
    assert (await client.responses.retrieve(created.id)).status == "cancelled"
    events = events_of((await served.get(f"/v1/responses/{created.id}?stream=true")).text)
    assert check(events)["status"] == "cancelled"


async def test_background_response_is_queued_until_the_engine_begins_with_it(serve: Serve) -> None:
    served = await serve(temperature=0, loop_guard=False)
    await served.runtime.ready()
    places = served.runtime.loaded.engine.placement.sequences  # type: ignore[attr-defined]
    client = served.client()
    endless = {"input": "x", "background": True, **ENDLESS}
    running = [(await served.post(endless)).json()["id"] for _ in range(places)]

    def statuses() -> list[str]:
        return [turn.response.status for turn in served.turns]

    # Only then: the engine may begin with another request first.
    await wait_until(lambda: statuses() == ["in_progress"] * places, statuses)
    following = asyncio.create_task(served.stream(**endless))
    await wait_until(lambda: len(served.turns) == places + 1 and served.turns[-1].log.events)
    last = served.turns[-1]
    waiting = last.response.id
    assert (await client.responses.retrieve(waiting)).status == "queued"
    assert (await client.responses.cancel(running[0])).status == "cancelled"
    await wait_until(lambda: last.response.status == "in_progress", statuses)
    for name in [*running[1:], waiting]:
        await client.responses.cancel(name)
    events = await following
    opening = [(event["type"], event["response"]["status"]) for event in events[:3]]
    assert opening == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
        ("response.in_progress", "in_progress"),
    ]
    assert check(events)["status"] == "cancelled"


async def test_cancel_of_completed_background_response_answers_with_it(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    await served.stream(input="x", background=True)
    ended = served.turns[0].response.id
    assert (await client.responses.cancel(ended)).status == "completed"
    assert (await client.responses.retrieve(ended)).status == "completed"
    api_error(await served.post({}, "/resp_none/cancel"), 404)


async def test_background_response_deleted_while_running_is_not_stored(
    serve: Serve, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    client = served.client()
    created = await client.responses.create(model="default", input="x", background=True)
    turn = await first_turn(served)
    await client.responses.delete(created.id)
    assert (await served.get(f"/v1/responses/{created.id}")).status_code == 404
    assert (await served.post({}, path=f"/{created.id}/cancel")).status_code == 404
    go.touch()
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


@pytest.mark.parametrize("value", ["true", "True", "1"])
async def test_replay_query_is_read_as_clients_spell_it(serve: Serve, value: str) -> None:
    """What is neither true nor false, and what only a stream can do, is refused by its name."""
    served = await serve(HELLO)
    created = check(await served.stream(input="x", background=True))
    path = f"/v1/responses/{created['id']}"
    events = events_of((await served.get(f"{path}?stream={value}&starting_after=4")).text)
    assert events[0]["sequence_number"] == 5
    assert events[-1]["type"] == "response.completed"
    past_the_end = await served.get(f"{path}?stream={value}&starting_after=10000")
    assert events_of(past_the_end.text) == []
    for query, param in (
        ("stream=maybe", "stream"),
        ("stream=false&starting_after=4", "starting_after"),
        ("starting_after=4", "starting_after"),
        (f"stream={value}&starting_after=-1", "starting_after"),
        (f"stream={value}&starting_after=x", "starting_after"),
    ):
        assert api_error(await served.get(f"{path}?{query}"), 400)["param"] == param, query
    for query in ("", "stream=False", f"stream={value}&include_obfuscation=true"):
        assert (await served.get(f"{path}?{query}")).status_code == 200, query


async def test_server_drain_waits_for_background_response(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    created = await served.client().responses.create(model="default", input="x", background=True)
    await first_turn(served)
    served.server.drain()
    go.touch()
    async with asyncio.timeout(HANG_SECONDS):
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

"""``response.steer``: what a client says over its WebSocket while one of its responses runs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from agent import events as ev
from agent.server.responses import steering, websocket
from tests.support.endpoint import Serve, Served, engine_markup
from tests.support.invariants import TERMINAL, check
from tests.support.requests import CODE_CONTAINER
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, hold, python, thought
from tests.support.websocket import open_socket, receive_event, send_request

Events = list[dict[str, Any]]


async def steer(client: ClientConnection, name: str, spoken: Any, **more: Any) -> None:
    body = {"type": "response.steer", "previous_response_id": name, "input": spoken}
    await client.send(json.dumps(body | more))


async def read_until(client: ClientConnection, *kinds: str) -> Events:
    """The events up to the first of one of these types."""
    events = [await receive_event(client)]
    while events[-1]["type"] not in kinds:
        events.append(await receive_event(client))
    return events


def apart(events: Events) -> tuple[Events, Events]:
    """The events of a response as its stream would have them over HTTP, and those of steers."""
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(len(events))), "all are numbered together"
    spoken = [event for event in events if ".steer." in event["type"]]
    rest = [event for event in events if event not in spoken]
    return [{**event, "sequence_number": n} for n, event in enumerate(rest)], spoken


class Running:
    """A connection with a response that a held reply keeps running."""

    def __init__(self, served: Served, client: ClientConnection, go: Path) -> None:
        self.served, self.client, self.go = served, client, go
        self.events: Events = []

    @property
    def id(self) -> str:
        name: str = self.events[0]["response"]["id"]
        return name

    async def steer(self, spoken: Any) -> dict[str, Any]:
        """Say something; the event that answers it."""
        await steer(self.client, self.id, spoken)
        kinds = ("response.steer.accepted", "response.steer.failed")
        self.events += await read_until(self.client, *kinds)
        return self.events[-1]


@asynccontextmanager
async def running(
    serve: Serve, go: Path, *replies: Any, body: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Running]:
    served = await serve(*replies, **options)
    async with open_socket(served) as client:
        await send_request(client, **{"input": "draw", **(body or {})})
        run = Running(served, client, go)
        run.events.append(await receive_event(client))
        yield run


async def test_steer_ends_response_before_its_next_generation(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = hold(thought("Count.") + python("print(6*7)"), 4, go)
    body = {"tools": [CODE_CONTAINER], "store": False, "stream_id": "a"}
    async with running(serve, go, first, final("Left."), tools="python", body=body) as run:
        accepted = await run.steer("to the left")
        assert accepted["steer"] == {"id": accepted["steer"]["id"], "previous_response_id": run.id}
        assert (await run.steer([{"role": "user", "content": "now"}]))["steer"]["id"]
        go.touch()
        run.events += await read_until(run.client, "response.incomplete")
        second = await read_until(run.client, "response.completed")
        assert {event.pop("stream_id") for event in [*run.events, *second]} == {"a"}
        events, spoken = apart(run.events)
        ended, answered = check(events), check(second)
        assert [event["type"] for event in spoken] == ["response.steer.accepted"] * 2
        assert ended["incomplete_details"] == {"reason": "steered"}
        assert [item["type"] for item in ended["output"]] == ["reasoning", "code_interpreter_call"]
        assert answered["previous_response_id"] == ended["id"]
        assert answered["tools"] == ended["tools"] and answered["store"] is False
        markup = engine_markup(run.served)
        assert markup.index("Count.") < markup.index("42") < markup.index("to the left<|end|>")
        assert "to the left<|end|><|start|>user<|message|>now<|end|>" in markup


async def test_steer_of_an_answer_follows_its_end(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with running(serve, go, hold(HELLO, 3, go), final("Left.")) as run:
        await run.steer("to the left")
        go.touch()
        run.events += await read_until(run.client, *TERMINAL)
        assert check(apart(run.events)[0])["status"] == "completed"
        second = check(await read_until(run.client, *TERMINAL))
        assert second["previous_response_id"] == run.id and second["output"]
        listed = await run.served.get(f"/v1/responses/{second['id']}/input_items")
        (item,) = listed.json()["data"]
        assert item["content"] == [{"type": "input_text", "text": "to the left"}]


async def test_steer_with_openai_python(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 3, go), final("To the left."))
    async with served.client().responses.connect() as client:
        await client.response.create(model="default", input="draw")
        kinds: list[str] = []
        async for event in client:
            kinds.append(event.type)
            if event.type == "response.created" and len(kinds) == 1:
                await client.response.steer(
                    input="to the left", previous_response_id=event.response.id
                )
            elif event.type == "response.steer.accepted":
                go.touch()
            elif event.type == "response.completed":
                text = event.response.output_text
                if event.response.previous_response_id:
                    break
    assert text == "To the left." and kinds.count("response.completed") == 2


async def test_steer_waits_for_results_of_the_client(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = hold(thought("Weather.") + call("get_weather", place="Oslo"), 4, go)
    body = {"tools": [WEATHER]}
    async with running(serve, go, first, final("Cold."), body=body) as run:
        spoken = (await run.steer("and be brief"))["steer"]["id"]
        go.touch()
        run.events += await read_until(run.client, "response.steer.pending")
        events, steers = apart(run.events)
        called = check(events)
        call_id = called["output"][1]["call_id"]
        needed = {"type": "function_call_output", "call_id": call_id, "name": "get_weather"}
        assert steers[-1]["steer"] == {"id": spoken, "previous_response_id": run.id}
        assert steers[-1]["required_input"] == [needed]
        assert steers[-1]["reason"] == "waiting_for_required_input"
        await steer(run.client, run.id, "too late")
        failed = (await receive_event(run.client))["error"]
        assert failed["code"] == "response_already_completed"
        result = {"type": "function_call_output", "call_id": call_id, "output": "-3 °C"}
        await send_request(run.client, **body, input=[result], previous_response_id=run.id)
        assert check(await read_until(run.client, *TERMINAL))["status"] == "completed"
        markup = engine_markup(run.served)
        assert markup.index("-3 °C") < markup.index("and be brief")
        assert "too late" not in markup


async def test_steer_waits_for_a_search_of_the_client(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    search = {"type": "tool_search", "execution": "client"}
    first = hold(thought("Weather.") + call("tool_search", query="weather"), 4, go)
    async with running(serve, go, first, body={"tools": [search]}) as run:
        await run.steer("and be brief")
        go.touch()
        run.events += await read_until(run.client, "response.steer.pending")
        events, steers = apart(run.events)
        call_id = check(events)["output"][1]["call_id"]
        needed = {"type": "tool_search_output", "call_id": call_id, "execution": "client"}
        assert steers[-1]["required_input"] == [needed]


async def test_steer_comes_back_where_no_response_can_follow(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    spoken = [{"type": "message", "role": "user", "content": [{"type": "input_file"}]}]
    async with running(serve, go, hold(HELLO, 3, go), LONG) as run:
        name = (await run.steer(spoken))["steer"]["id"]
        go.touch()
        events = await read_until(run.client, "response.steer.failed")
        assert events[-1]["error"]["code"] == "successor_creation_failed"
        assert events[-1]["steer"] == {"id": name, "previous_response_id": run.id, "input": spoken}
        assert events[-1]["sequence_number"] == events[-2]["sequence_number"] + 1
        await send_request(run.client, input="x")
        run.events = [await receive_event(run.client)]
        await run.steer("to the left")
        run.served.turns[-1].stop()
        events = await read_until(run.client, "response.steer.failed")
        assert events[-1]["error"]["code"] == "response_not_active"
        await steer(run.client, run.id, "x")
        failed = await receive_event(run.client)
        assert failed["error"]["code"] == "response_not_found" and "id" not in failed["steer"]


async def test_steer_comes_back_where_the_server_fails(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = websocket.official_batches

    async def broken(*arguments: Any) -> AsyncIterator[Any]:
        async for batch in batches(*arguments):
            if isinstance(batch[-1], ev.Terminal):
                raise OSError("no more memory")
            yield batch

    monkeypatch.setattr(websocket, "official_batches", broken)
    go = tmp_path / "go"
    async with running(serve, go, hold(HELLO, 3, go), HELLO) as run:
        accepted = await run.steer("to the left")
        go.touch()
        run.events += await read_until(run.client, "response.steer.failed")
        assert run.events[-1]["steer"] == accepted["steer"] | {"input": "to the left"}
        assert run.events[-1]["error"]["code"] == "response_not_active"
        assert (await receive_event(run.client))["error"]["code"] == "server_error"
        await steer(run.client, run.id, "x")
        assert (await receive_event(run.client))["type"] == "response.steer.failed"
        monkeypatch.undo()
        await send_request(run.client, input="x")
        assert check(await read_until(run.client, *TERMINAL))["status"] == "completed"


MESSAGE = {"role": "user", "content": "x"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("spoken", "more"),
    [
        ("", {}),
        ([], {}),
        (1, {}),
        ("x", {"stream_id": "a"}),
        ([{**MESSAGE, "role": "developer"}], {}),
        ([{**MESSAGE, "phase": "commentary"}], {}),
        ([{**MESSAGE, "content": [IMAGE]}], {}),
        ([MESSAGE, {"type": "function_call_output", "call_id": "c", "output": "y"}], {}),
    ],
)
async def test_steer_with_other_input_fails(
    serve: Serve, tmp_path: Path, spoken: Any, more: dict[str, Any]
) -> None:
    go = tmp_path / "go"
    async with running(serve, go, hold(HELLO, 3, go)) as run:
        body = {"type": "response.steer", "previous_response_id": run.id, "input": spoken, **more}
        await run.client.send(json.dumps(body))
        kinds = {"response.steer.failed"}
        while (event := json.loads(await run.client.recv()))["type"] not in kinds:
            run.events.append(event)
        assert event["error"]["code"] == "invalid_input" and event["error"]["message"]
        assert event["steer"] == {"previous_response_id": run.id, "input": spoken}
        go.touch()
        await read_until(run.client, "response.completed")
        assert len(run.served.turns) == 1


async def test_steer_without_its_response_fails(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with running(serve, go, hold(HELLO, 3, go)) as run, open_socket(run.served) as other:
        for name in (run.id, "resp_unknown", ""):
            await steer(other, name, "x")
            failed = await receive_event(other)
            assert failed["error"]["code"] == "response_not_found"
            assert failed["steer"] == {"previous_response_id": name, "input": "x"}
        conversation = (await run.served.post({}, url=f"{run.served.url}/conversations")).json()
        await send_request(other, input="x", conversation=conversation["id"])
        created = await receive_event(other)
        await steer(other, created["response"]["id"], "x")
        events = await read_until(other, "response.steer.failed")
        assert events[-1]["error"]["code"] == "steering_not_supported"
        go.touch()


async def test_steers_of_a_connection_are_limited(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    async with running(serve, go, hold(HELLO, 3, go)) as run:
        for number in range(steering.MAX_PENDING_STEERS + 1):
            event = await run.steer(f"{number}")
        assert event["error"]["code"] == "too_many_pending_steers"
    async with running(serve, go, hold(HELLO, 3, tmp_path / "never")) as run:
        event = await run.steer("x" * steering.MAX_PENDING_BYTES)
        assert event["error"]["code"] == "too_many_pending_steers"

"""``/v1/conversations``: nothing of what was deleted stays, and nothing is lost between two servers."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from agent.events import AgentSteered, Response
from agent.server.input.conversation_items import turn_items, without_item
from agent.server.responses import request_planner
from agent.store.api_conversations import ItemTurn
from agent.store.conversations import Store
from agent.store.event_codec import encode_line, pack, read_record
from agent.store.records import StoredTurn
from tests.support.endpoint import Serve, api_error, engine_markup, open_request
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, thought
from tests.support.waiting import wait_until

BLUE = thought("Blue.") + final("Blue!")
SECRET = "xylophone-7391"


def files_with(text: str, store: Path) -> list[str]:
    """Names of the store's files that have a text."""
    return [
        file.name
        for file in store.parent.glob(f"{store.name}*")
        if text.encode() in file.read_bytes()
    ]


async def test_deleted_item_is_in_no_file_of_the_store(serve: Serve) -> None:
    served = await serve(HELLO)
    client, store = served.client(), served.runtime.paths.store
    name = (await client.conversations.create()).id
    await client.responses.create(conversation=name, input=f"My word is {SECRET}.")
    await client.responses.create(conversation=name, input="Go on")
    assert files_with(SECRET, store)
    page = await client.conversations.items.list(name, order="asc")
    await client.conversations.items.delete(page.data[0].id or "", conversation_id=name)
    assert files_with(SECRET, store) == []


async def test_deleted_conversation_takes_its_cancelled_responses_along(serve: Serve) -> None:
    from openai import NotFoundError

    served = await serve(HELLO, LONG)
    client, store = served.client(), served.runtime.paths.store
    name = (await client.conversations.create()).id
    await client.responses.create(conversation=name, input=f"My word is {SECRET}.")
    leaving = await open_request(served, {"conversation": name, "input": "Go on", "stream": True})
    await wait_until(lambda: len(served.turns) == 2)
    async for batch in served.turns[1].log.follow():
        if any(event.type == "response.reasoning_text.delta" for event in batch):
            break
    leaving.close()
    await wait_until(lambda: not served.service.running)
    await client.conversations.delete(name)
    assert files_with(SECRET, store) == []
    with pytest.raises(NotFoundError):
        await client.responses.retrieve(served.turns[1].response.id)


async def test_conversation_is_free_after_a_turn_that_could_not_be_written(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create()).id

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(served.service.conversations.store, "keep", fail)
        api_error(await served.post({"conversation": name, "input": "Hi"}), 500)
    await wait_until(lambda: not served.service.running)
    await client.responses.create(conversation=name, input="Hi")


async def test_call_continues_after_another_server_deleted_an_item(serve: Serve) -> None:
    replies = thought("Look.") + call("get_weather", place="Rome"), BLUE
    served = await serve(*replies)
    client, other = served.client(), (await serve(*replies)).client()
    name = (await client.conversations.create(items=[{"role": "user", "content": SECRET}])).id
    tools: Any = [WEATHER]
    first = await client.responses.create(conversation=name, input="Weather?", tools=tools)
    (made,) = [item for item in first.output if item.type == "function_call"]
    page = await other.conversations.items.list(name, order="asc")
    await other.conversations.items.delete(page.data[0].id or "", conversation_id=name)
    output: Any = {"type": "function_call_output", "call_id": made.call_id, "output": "sunny"}
    await client.responses.create(conversation=name, input=[output], tools=tools)
    assert SECRET not in engine_markup(served)
    store = Store(served.runtime.paths.store)
    assert store.tree.read_entries(name)[1] is None, "nothing of it is damaged"
    store.close()
    assert len((await client.conversations.items.list(name)).data) == 6


@pytest.mark.parametrize("ended", [True, False])
async def test_turn_is_refused_that_another_process_was_faster_than(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """It read the conversation before the other process began its turn, and would become a branch."""
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create(items=[{"role": "user", "content": "Ann"}])).id
    response = Response(id="resp_other", created_at=0, model="m", status="completed")
    other = Store(served.runtime.paths.store)
    conversation = other.load(name)
    list_new_inputs = request_planner.list_new_inputs

    def begun_meanwhile(*args: Any) -> Any:
        other.begin(conversation, "First", response)
        if ended:
            other.finish(conversation, response)
        return list_new_inputs(*args)

    with monkeypatch.context() as slow:
        slow.setattr(request_planner, "list_new_inputs", begun_meanwhile)
        error = api_error(await served.post({"conversation": name, "input": "Second"}), 400)
    assert error["code"] == "conversation_locked"
    if not ended:
        added = served.post(
            {"items": [{"role": "user", "content": "x"}]},
            url=f"{served.url}/conversations/{name}/items",
        )
        assert api_error(await added, 400)["code"] == "conversation_locked"
        other.finish(conversation, response)
    other.close()
    await wait_until(lambda: not served.service.running)
    await client.responses.create(conversation=name, input="Third")
    page = await client.conversations.items.list(name, order="asc")
    assert [i.content[0].text for i in page.data if i.type == "message"] == [  # type: ignore
        "Ann", "First", "Third", "Hello there!",
    ]  # fmt: skip


def test_ids_of_what_a_person_wrote_meanwhile_stay_when_one_is_deleted() -> None:
    lines = [encode_line(0, AgentSteered(text=text)) for text in ("one", "two", "three")]
    turn = ItemTurn("resp_1", "conv_1", "Hi", {"output": [], "status": "completed"})
    turn.events = pack(lines)
    turn.steered = read_record(turn.events).steered
    before = [(item["id"], item["content"][0]["text"]) for item in turn_items(turn)]
    assert without_item(turn, before[1][0])
    assert turn.steered == read_record(turn.events).steered, "as it is read from the store"
    after = [(item["id"], item["content"][0]["text"]) for item in turn_items(turn)]
    assert after == [before[0], *before[2:]]
    response = Response(id="resp_1", created_at=0, model="m")
    stored = StoredTurn("Hi", response, 0, read_record(turn.events))
    assert list(stored.timeline()) == ["two", "three"]


async def test_preparing_a_turn_adds_nothing_to_its_conversation(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create()).id
    request: Any = {"type": "response.create", "conversation": name, "input": "Hi"}
    async with connect(served.url.replace("http", "ws") + "/responses") as socket:
        for message in (request | {"generate": False}, request):
            await socket.send(json.dumps(message))
            while json.loads(await socket.recv())["type"] != "response.completed":
                pass
    assert engine_markup(served).count("Hi") == 1
    assert len((await client.conversations.items.list(name)).data) == 3


async def test_references_to_items_of_the_conversation_and_the_connection(serve: Serve) -> None:
    served = await serve(HELLO, BLUE)
    client = served.client()
    name = (await client.conversations.create(items=[{"role": "user", "content": SECRET}])).id
    page = await client.conversations.items.list(name)
    async with connect(served.url.replace("http", "ws") + "/responses") as socket:

        async def answer(**fields: Any) -> Any:
            await socket.send(json.dumps({"type": "response.create", **fields}))
            while (event := json.loads(await socket.recv()))["type"] != "response.completed":
                assert event["type"] != "error", event
            return event["response"]

        unstored = await answer(input="Hi", store=False)
        ids = [page.data[0].id, unstored["output"][-1]["id"]]
        await answer(
            conversation=name,
            input=[{"type": "item_reference", "id": item} for item in ids]
            + [{"role": "user", "content": "So?"}],
        )
    markup = engine_markup(served)
    assert markup.count(SECRET) == 2 and markup.count("Hello there!") == 1
    listed = (await client.conversations.items.list(name, order="asc")).data
    assert [item.content[0].text for item in listed if item.type == "message"] == [  # type: ignore
        SECRET, SECRET, "Hello there!", "So?", "Blue!",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "a?b", "ü", "", 7, ["x"]])
async def test_item_can_be_read_and_deleted_whatever_id_it_was_sent_with(
    serve: Serve, name: Any
) -> None:
    served = await serve(HELLO)
    url = f"{served.url}/conversations"
    item = {"type": "message", "role": "user", "content": "x", "id": name}
    made = (await served.post({"items": [item]}, url=url)).json()["id"]
    client = served.client()
    (listed,) = (await client.conversations.items.list(made)).data
    await client.conversations.items.delete(listed.id or "", conversation_id=made)
    assert (await client.conversations.items.list(made)).data == []

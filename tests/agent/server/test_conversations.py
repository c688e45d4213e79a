"""``/v1/conversations``: what a conversation lists is what the model reads."""

import sqlite3
from typing import Any

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import EngineError, Generation
from agent.events import Response
from agent.store.conversations import Store
from agent.store.recorder import TurnRecorder
from agent.turn.loop import Turn
from agent.turn.options import APP, TurnOptions
from agent.util.ids import new_id
from tests.support.endpoint import Serve, api_error, engine_markup, first_turn, open_request
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, thought
from tests.support.waiting import wait_until

BLUE = thought("Blue.") + final("Blue!")


async def test_conversation_is_created_read_updated_deleted(serve: Serve) -> None:
    from openai import NotFoundError

    client = (await serve(HELLO)).client()
    created = await client.conversations.create(metadata={"topic": "demo"})
    assert created.id.startswith("conv_") and created.object == "conversation"
    assert created.metadata == {"topic": "demo"} and created.created_at > 1_700_000_000
    assert await client.conversations.retrieve(created.id) == created
    updated = await client.conversations.update(created.id, metadata={"a": "b"})
    assert updated.metadata == {"a": "b"} and updated.created_at == created.created_at
    deleted = await client.conversations.delete(created.id)
    assert deleted.model_dump() == {
        "id": created.id, "object": "conversation.deleted", "deleted": True,
    }  # fmt: skip
    with pytest.raises(NotFoundError) as error:
        await client.conversations.retrieve(created.id)
    assert error.value.code == "conversation_not_found"


async def test_turn_extends_its_conversation(serve: Serve) -> None:
    served = await serve(HELLO, BLUE)
    client = served.client()
    conversation = await client.conversations.create(
        items=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    )
    first = await client.responses.create(conversation=conversation.id)
    assert first.conversation is not None and first.conversation.id == conversation.id
    assert first.output_text == "Hello there!"
    await client.responses.create(conversation={"id": conversation.id}, input="Which colour?")
    markup = engine_markup(served)
    for text in ("Be brief.", "Hi", "Hello there!", "Which colour?"):
        assert markup.count(text) == 1, text
    page = await client.conversations.items.list(conversation.id, order="asc")
    seen = [(item.type, getattr(item, "role", None)) for item in page.data]
    assert seen == [
        ("message", "developer"), ("message", "user"), ("reasoning", None), ("message", "assistant"),
        ("message", "user"), ("reasoning", None), ("message", "assistant"),
    ]  # fmt: skip
    assert [item.id for item in page.data][2:4] == [item.id for item in first.output]
    kept = await client.responses.retrieve(first.id)
    assert kept.conversation is not None and kept.conversation.id == conversation.id


async def test_client_call_continues_over_its_conversation(serve: Serve) -> None:
    """The reasoning before a call stays in the prompt until the call's output has come."""
    served = await serve(thought("Look it up.") + call("get_weather", place="Rome"), BLUE)
    client = served.client()
    conversation = await client.conversations.create()
    tools: Any = [WEATHER]
    first = await client.responses.create(
        conversation=conversation.id, input="Weather in Rome?", tools=tools
    )
    (made,) = [item for item in first.output if item.type == "function_call"]
    output: Any = {"type": "function_call_output", "call_id": made.call_id, "output": "sunny"}
    answered = await client.responses.create(
        conversation=conversation.id, input=[output], tools=tools
    )
    assert answered.output_text == "Blue!"
    markup = engine_markup(served)
    assert "Look it up." in markup and "sunny" in markup and "was not run" not in markup
    page = await client.conversations.items.list(conversation.id, order="asc", limit=100)
    assert [item.type for item in page.data] == [
        "message", "reasoning", "function_call", "function_call_output", "reasoning", "message",
    ]  # fmt: skip


async def test_conversation_compacted_elsewhere_is_extended(serve: Serve) -> None:
    """The app writes a conversation without a turn when it compacts it."""
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create()).id
    await client.responses.create(conversation=name, input="Hi")
    store = Store(served.runtime.paths.store)
    store.finish(store.load(name), Response(id="resp_x", created_at=0, model="m"))
    store.close()
    await client.responses.create(conversation=name, input="Again")
    assert len((await client.conversations.items.list(name)).data) == 6


async def test_items_are_added_read_deleted(serve: Serve) -> None:
    from openai import NotFoundError

    served = await serve(HELLO, BLUE)
    client = served.client()
    conversation = await client.conversations.create()
    added = await client.conversations.items.create(
        conversation.id,
        items=[
            {"role": "user", "content": "My cat is Tom."},
            {"role": "assistant", "content": "Noted."},
            {"type": "function_call", "call_id": "c1", "name": "age", "arguments": "{}"},
        ],
    )
    assert [item.type for item in added.data] == ["message", "message", "function_call"]
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id)
    more = await client.conversations.items.create(
        conversation.id,
        items=[{"type": "function_call_output", "call_id": "c1", "output": "seven"}],
    )
    await client.responses.create(conversation=conversation.id, input="And now?")
    markup = engine_markup(served)
    assert markup.count("My cat is Tom.") == 1 and markup.count("seven") == 1
    assert markup.index("My cat") < markup.index("Noted.") < markup.index("seven")
    assert "was not run" not in markup
    name = more.data[0].id
    assert name is not None
    found = await client.conversations.items.retrieve(name, conversation_id=conversation.id)
    assert found.type == "function_call_output"
    answer = await client.conversations.items.delete(
        added.data[0].id or "", conversation_id=conversation.id
    )
    assert answer.id == conversation.id
    with pytest.raises(NotFoundError) as error:
        await client.conversations.items.retrieve(
            added.data[0].id or "", conversation_id=conversation.id
        )
    assert error.value.code == "item_not_found"
    await client.responses.create(conversation=conversation.id, input="Once more")
    markup = engine_markup(served)
    assert "My cat is Tom." not in markup and "Noted." in markup and "Hello there!" in markup
    assert markup.count("And now?") == 1


async def test_deleted_items_of_a_turn_leave_prompt_listing_and_response(serve: Serve) -> None:
    from openai import NotFoundError

    served = await serve(HELLO, BLUE)
    client = served.client()
    conversation = await client.conversations.create()
    first = await client.responses.create(conversation=conversation.id, input="Secret word: xylo")
    await client.responses.create(conversation=conversation.id, input="Colour?")
    page = await client.conversations.items.list(conversation.id, order="asc")
    for item in page.data[:3]:
        await client.conversations.items.delete(item.id or "", conversation_id=conversation.id)
    left = await client.conversations.items.list(conversation.id, order="asc")
    assert [item.id for item in left.data] == [item.id for item in page.data[3:]]
    with pytest.raises(NotFoundError):
        await client.responses.retrieve(first.id)
    await client.responses.create(conversation=conversation.id, input="Go on", store=False)
    await client.responses.create(conversation=conversation.id, input="Go on")
    markup = engine_markup(served)
    assert "xylo" not in markup and "Hello there!" not in markup and "Colour?" in markup


async def test_items_are_listed_in_pages(serve: Serve) -> None:
    client = (await serve(HELLO)).client()
    items: Any = [{"role": "user", "content": str(number)} for number in range(20)]
    conversation = await client.conversations.create(items=items)
    await client.conversations.items.create(conversation.id, items=items[:5])
    texts = [
        item.content[0].text  # type: ignore[union-attr]
        async for item in client.conversations.items.list(conversation.id, limit=7)
    ]
    assert texts == [str(n) for n in (4, 3, 2, 1, 0, *range(19, -1, -1))]
    page = await client.conversations.items.list(conversation.id, limit=100)
    assert len(page.data) == 25 and page.has_more is False


async def test_wrong_requests_are_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    url = f"{served.url}/conversations"
    made = (await served.post({}, url=url)).json()["id"]
    assert (await served.post(url=url, content=b"")).status_code == 200
    many = [{"role": "user", "content": "x"}] * 21
    refused: list[tuple[str, dict[str, Any], int, str | None, str]] = [
        ("", {"items": many}, 400, "items", "array_above_max_length"),
        ("", {"items": [{"type": "telepathy"}]}, 400, "items[0]", "invalid_value"),
        ("", {"metadata": {"k": "v" * 513}}, 400, "metadata.k", "string_above_max_length"),
        ("", {"metadata": {"k": 1}}, 400, "metadata.k", "invalid_type"),
        (f"/{made}", {}, 400, "metadata", "missing_required_parameter"),
        (f"/{made}/items", {}, 400, "items", "missing_required_parameter"),
        (f"/{made}/items", {"items": []}, 400, "items", "empty_array"),
        (
            f"/{made}/items",
            {"items": [{"type": "function_call_output", "call_id": "no", "output": "x"}]},
            400, "items[0].call_id", "invalid_value",
        ),
        (f"/{made}/items", {"items": [{"type": "item_reference", "id": "msg_x"}]}, 400, "items[0]",
         "item_not_found"),
        ("/conv_none", {"metadata": {}}, 404, None, "conversation_not_found"),
        ("/conv_none/items", {"items": many[:1]}, 404, None, "conversation_not_found"),
    ]  # fmt: skip
    for path, body, status, param, code in refused:
        error = api_error(await served.post(body, url=url + path), status)
        assert (error["param"], error["code"]) == (param, code), (path, error)
    error = api_error(await served.post({"conversation": "conv_none", "input": "x"}), 404)
    assert error["code"] == "conversation_not_found"
    for part in (made[:-1], made.removeprefix("conv_"), made[:13]):  # the command line takes these
        api_error(await served.get(f"/v1/conversations/{part}"), 404)
    error = api_error(await served.post({"conversation": made}), 400)
    assert (error["param"], error["code"]) == ("input", "missing_required_parameter")
    error = api_error(await served.post({"conversation": 7, "input": "x"}), 400)
    assert (error["param"], error["code"]) == ("conversation", "invalid_type")
    error = api_error(await served.post({"conversation": {"name": 7}, "input": "x"}), 400)
    assert (error["param"], error["code"]) == ("conversation.id", "missing_required_parameter")
    for name in (made, "conv_none"):
        both = {"conversation": name, "previous_response_id": "resp_x", "input": "x"}
        error = api_error(await served.post(both), 400)
        assert (error["param"], error["code"]) == ("conversation", "mutually_exclusive_parameters")
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=msg_x", "include=all"):
        api_error(await served.get(f"/v1/conversations/{made}/items?{query}"), 400)
    items = (await served.get(f"/v1/conversations/{made}/items")).json()
    assert items == {
        "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False,
    }  # fmt: skip


async def test_conversation_in_use_is_locked(serve: Serve) -> None:
    from openai import BadRequestError

    served = await serve(LONG, HELLO)
    client = served.client()
    conversation = await client.conversations.create(metadata={"a": "b"})
    name = conversation.id
    running = await client.responses.create(conversation=name, input="x", background=True)
    await first_turn(served)
    for attempt in (
        client.responses.create(conversation=name, input="y"),
        client.conversations.items.create(name, items=[{"role": "user", "content": "z"}]),
        client.conversations.delete(name),
    ):
        with pytest.raises(BadRequestError) as error:
            await attempt
        assert (error.value.code, error.value.param) == ("conversation_locked", "conversation")
    assert (await client.conversations.items.list(name)).data == [], "not before it has ended"
    await client.conversations.update(name, metadata={})
    await client.responses.cancel(running.id)
    await client.responses.create(conversation=name, input="y")


@pytest.mark.parametrize("ending", ["cancelled", "disconnected"])
async def test_turn_that_did_not_end_by_itself_leaves_the_conversation_as_it_was(
    serve: Serve, ending: str
) -> None:
    served = await serve(HELLO, LONG, BLUE)
    client = served.client()
    name = (await client.conversations.create()).id
    await client.responses.create(conversation=name, input="Hi")
    before = await client.conversations.items.list(name)
    body = {"conversation": name, "input": "Too long", "stream": True}
    leaving = await open_request(served, body | {"background": ending == "cancelled"})
    await wait_until(lambda: len(served.turns) == 2)
    turn = served.turns[1]
    async for batch in turn.log.follow():
        if any(event.type == "response.reasoning_text.delta" for event in batch):
            break
    if ending == "cancelled":
        await client.responses.cancel(turn.response.id)
    leaving.close()
    await wait_until(lambda: not served.service.running)
    assert (await client.responses.retrieve(turn.response.id)).status == "cancelled"
    assert (await client.conversations.items.list(name)).data == before.data
    await client.responses.create(conversation=name, input="Again")
    markup = engine_markup(served)
    assert "Too long" not in markup and "Again" in markup and "Hello there!" in markup
    await client.responses.create(previous_response_id=turn.response.id, input="So?")
    assert "Too long" in engine_markup(served), "the response itself can be continued"


async def test_failed_turn_leaves_the_conversation_as_it_was(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openai import InternalServerError

    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create(items=[{"role": "user", "content": "I am Ann."}])).id
    with monkeypatch.context() as broken:
        broken.setattr(served.runtime, "generate", lambda request: raise_error())
        with pytest.raises(InternalServerError, match=r"The engine has ended\."):
            await client.responses.create(conversation=name, input="Broken")
    assert len((await client.conversations.items.list(name)).data) == 1
    await client.responses.create(conversation=name, input="Hi")
    markup = engine_markup(served)
    assert "Broken" not in markup and markup.count("I am Ann.") == 1


def raise_error() -> Generation:
    raise EngineError("The engine has ended.")


async def test_input_tokens_count_the_conversation(serve: Serve) -> None:
    served = await serve(HELLO)
    name = (await served.client().conversations.create()).id
    text = "one two three four five six seven eight nine ten"
    counts = []
    for _ in range(2):
        counted = await served.post({"conversation": name, "input": "x"}, "/input_tokens")
        counts.append(counted.json()["input_tokens"])
        items: Any = [{"role": "user", "content": text}]
        await served.client().conversations.items.create(name, items=items)
    assert counts[1] >= counts[0] + 10
    assert len((await served.client().conversations.items.list(name)).data) == 2


async def test_response_not_stored_reads_the_conversation_and_adds_nothing(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create(items=[{"role": "user", "content": "I am Ann."}])).id
    await client.responses.create(conversation=name, input="Who am I?", store=False)
    assert "I am Ann." in engine_markup(served)
    assert len((await client.conversations.items.list(name)).data) == 1


async def test_previous_response_branches_off_its_conversation(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create()).id
    first = await client.responses.create(conversation=name, input="Hi")
    aside = await client.responses.create(previous_response_id=first.id, input="Aside")
    assert "Hello there!" in engine_markup(served) and aside.conversation is None
    assert len((await client.conversations.items.list(name)).data) == 3


async def test_deleted_response_leaves_its_items_in_the_conversation(serve: Serve) -> None:
    from openai import NotFoundError

    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create()).id
    first = await client.responses.create(conversation=name, input="Hi")
    await client.responses.delete(first.id)
    for attempt in (client.responses.retrieve(first.id), client.responses.delete(first.id)):
        with pytest.raises(NotFoundError):
            await attempt
    assert len((await client.conversations.items.list(name)).data) == 3
    await client.responses.create(conversation=name, input="Still there?")
    assert "Hello there!" in engine_markup(served)


async def test_conversation_outlives_a_restart_and_streams(serve: Serve) -> None:
    served = await serve(HELLO)
    name = (await served.client().conversations.create(metadata={"k": "v"})).id
    events = await served.stream(conversation=name, input="Hi")
    response = check(events)
    assert response["conversation"] == {"id": name}
    await served.end()
    served = await serve(HELLO)
    assert (await served.client().conversations.retrieve(name)).metadata == {"k": "v"}
    await served.client().responses.create(conversation=name, input="Again")
    assert "Hello there!" in engine_markup(served)


async def test_server_without_a_store_keeps_conversations_in_memory(serve: Serve) -> None:
    served = await serve(HELLO, server={"store": False})
    client = served.client()
    name = (await client.conversations.create(items=[{"role": "user", "content": "I am Ann."}])).id
    await client.responses.create(conversation=name, input="Hi")
    await client.responses.create(conversation=name, input="And?")
    markup = engine_markup(served)
    assert "I am Ann." in markup and "Hello there!" in markup
    assert len((await client.conversations.items.list(name)).data) == 7


async def test_include_chooses_what_items_list(serve: Serve) -> None:
    served = await serve()
    client = served.client()
    name = (await client.conversations.create()).id
    await client.responses.create(
        conversation=name,
        input="Hi",
        max_output_tokens=200,
        include=["message.output_text.logprobs"],
    )
    for include, there in (("", False), ("?include=message.output_text.logprobs", True)):
        data = (await served.get(f"/v1/conversations/{name}/items{include}")).json()["data"]
        assert bool(data[0]["content"][0]["logprobs"]) is there


@pytest.mark.parametrize("created", [True, False])
@pytest.mark.parametrize("lenient", [True, False])
async def test_images_among_items_are_refused_as_in_requests(
    serve: Serve, created: bool, lenient: bool
) -> None:
    served = await serve(HELLO, server={"lenient": lenient})
    url = f"{served.url}/conversations"
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    body = {"items": [{"role": "user", "content": [image]}]}
    if not created:
        url += f"/{(await served.post({}, url=url)).json()['id']}/items"
    answer = await served.post(body, url=url)
    if lenient:
        assert answer.status_code == 200, answer.text
    else:
        assert api_error(answer, 400)["param"] == "items[0].content[0].type"


@pytest.mark.parametrize("created", [True, False])
async def test_lenient_server_passes_over_unknown_items(serve: Serve, created: bool) -> None:
    served = await serve(HELLO, server={"lenient": True})
    url = f"{served.url}/conversations"
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    asked = {"role": "user", "content": [image]}
    body = {"items": [{"type": "agent_dream"}, asked, {**asked, "status": "odd"}]}
    name = ""
    if not created:
        name = (await served.post({}, url=url)).json()["id"]
        url += f"/{name}/items"
    answer = await served.post(body, url=url)
    assert answer.status_code == 200, answer.text
    assert answer.headers["agent-ignored"] == "items[0], items[2].status"
    name = name or answer.json()["id"]
    listed = (await served.get(f"/v1/conversations/{name}/items")).json()["data"]
    assert [item["type"] for item in listed] == ["message", "message"]


async def test_image_of_an_answered_message_is_an_item(serve: Serve) -> None:
    served = await serve(HELLO)
    url = f"{served.url}/conversations"
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    asked = {"role": "user", "content": [image]}
    answer = await served.post(
        {"items": [asked, {"role": "assistant", "content": "A fox."}]}, url=url
    )
    assert answer.status_code == 200, answer.text
    made = await served.post({"input": "Sure?", "conversation": answer.json()["id"]})
    assert made.status_code == 200 and "There was an image here" in engine_markup(served)


async def test_item_ids_stay_in_a_branch_of_the_app(serve: Serve) -> None:
    """What stands behind a deleted item becomes the branch's own, with the ids that it had."""
    served = await serve(HELLO)
    client, store = served.client(), Store(served.runtime.paths.store)
    talk, errors = Conversation(new_id("conv")), list[sqlite3.Error]()
    for text in ("one", "two", "three"):
        turn = Turn(served.runtime, talk, [User(text)], TurnOptions(), interface=APP)
        TurnRecorder(store, errors.append).record(turn, text)
        await turn.start().done()
    branch = store.fork(store.load(talk.id)).id
    before = (await client.conversations.items.list(branch, order="asc")).data
    messages = [item for item in before if getattr(item, "role", None) == "user"]
    await client.conversations.items.delete(before[1].id or "", conversation_id=branch)
    after = (await client.conversations.items.list(branch, order="asc")).data
    assert [item.id for item in after] == [item.id for item in before if item != before[1]]
    await client.conversations.items.delete(messages[1].id or "", conversation_id=branch)
    assert messages[2].id in {
        item.id for item in (await client.conversations.items.list(branch)).data
    }
    assert len((await client.conversations.items.list(talk.id)).data) == len(before)
    store.close()


async def test_deleting_an_open_call_leaves_the_call_before_it(serve: Serve) -> None:
    """The conversation still has the reasoning of its open turn, which its indexes do not count."""
    replies = [thought("So.") + call("get_weather", place=place) for place in ("Oslo", "Rome")]
    served = await serve(*replies, final("Done."))
    client = served.client()
    name = (await client.conversations.create()).id
    common: dict[str, Any] = {"conversation": name, "tools": [WEATHER], "model": "default"}
    first: Any = await client.responses.create(input="question", **common)
    output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "cold"}
    second: Any = await client.responses.create(input=[output], **common)
    await client.conversations.items.delete(second.output[-1].id, conversation_id=name)
    await client.responses.create(input="go on", **common)
    markup = engine_markup(served)
    assert '{"place": "Oslo"}' in markup and "cold" in markup and "Rome" not in markup
    assert markup.index('{"place": "Oslo"}') < markup.index("cold") < markup.index("go on")


def function_call(call_id: str, kind: str = "function_call") -> dict[str, Any]:
    more = (
        {"name": "get_weather", "arguments": "{}"} if kind == "function_call" else {"output": "R"}
    )
    return {"type": kind, "call_id": call_id, **more}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "items",
    [
        ["u1", function_call("a"), "never mind", ("assistant", "fine")],
        ["u1", function_call("a"), function_call("a", "function_call_output"), "u2"],
        ["u1", function_call("a"), "meanwhile", function_call("a", "function_call_output")],
        ["u1", function_call("a")],
    ],
    ids=["abandoned", "answered", "late", "open"],
)
@pytest.mark.parametrize("apart", [False, True])
async def test_added_items_read_as_one_input_does(
    serve: Serve, items: list[Any], apart: bool
) -> None:
    """A call without an output has its result before the message that follows it."""
    served = await serve(*[final("Done.")] * 2)
    sent = [
        {"type": "message", "role": item[0] if isinstance(item, tuple) else "user",
         "content": item[1] if isinstance(item, tuple) else item}
        if not isinstance(item, dict) else item
        for item in items
    ]  # fmt: skip
    if apart and sent[-1]["type"] == "function_call_output":
        pytest.skip("an output that is added after the message comes too late")
    name = (
        await served.post({"items": [] if apart else sent}, url=f"{served.url}/conversations")
    ).json()["id"]
    for item in sent if apart else ():
        added = await served.post({"items": [item]}, url=f"{served.url}/conversations/{name}/items")
        assert added.status_code == 200
    tools = [WEATHER]
    next_message = {"role": "user", "content": "next"}
    await served.post({"conversation": name, "input": [next_message], "tools": tools})
    over_conversation = engine_markup(served)
    await served.post({"input": [*sent, next_message], "tools": tools})
    assert engine_markup(served) == over_conversation
    await served.post({"conversation": name, "input": [next_message], "tools": tools})
    assert engine_markup(served).count("there is no result") == over_conversation.count(
        "there is no result"
    ), "it is said once"


async def test_deleted_call_takes_its_output_along(serve: Serve) -> None:
    served = await serve(*[final("Done.")] * 2)
    message = {"type": "message", "role": "user", "content": "u1"}
    items = [
        message, function_call("a"), function_call("a", "function_call_output"), message,
        function_call("a"), function_call("a", "function_call_output"),
    ]  # fmt: skip
    name = (await served.post({"items": items}, url=f"{served.url}/conversations")).json()["id"]
    path = f"/v1/conversations/{name}/items"

    async def listed() -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = (await served.get(f"{path}?order=asc")).json()["data"]
        return data

    first = (await listed())[1]
    assert first["type"] == "function_call"
    await served.client().conversations.items.delete(first["id"], conversation_id=name)
    left = await listed()
    assert [item["type"] for item in left] == [
        "message", "message", "function_call", "function_call_output",
    ]  # fmt: skip
    again = await served.post({"items": left}, url=f"{served.url}/conversations")
    assert again.status_code == 200, "the list can be sent to another conversation"


async def test_message_after_an_open_call_drops_the_reasoning_before_it(serve: Serve) -> None:
    """As where the same items are sent again."""
    served = await serve(thought("Secretly.") + call("get_weather", place="Rome"), *[BLUE] * 3)
    tools, message = [WEATHER], {"role": "user", "content": "never mind"}
    name = (await served.post({}, url=f"{served.url}/conversations")).json()["id"]
    first = await served.post({"conversation": name, "input": "Weather?", "tools": tools})
    created = first.json()
    prompts = []
    for body in (
        {"previous_response_id": created["id"], "input": [message]},
        {"input": [{"role": "user", "content": "Weather?"}, *created["output"], message]},
        {"conversation": name, "input": [message]},
    ):
        await served.post({**body, "tools": tools})
        prompts.append(engine_markup(served))
    assert "Secretly." not in prompts[0] and "no result" in prompts[0]
    assert prompts[0] == prompts[1] == prompts[2]

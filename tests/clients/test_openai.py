"""openai-python: its ways of asking; each answer is validated by its own types."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from pydantic import BaseModel, Field

from tests.clients.openai_requests import MODEL, MULTIPLY, WEATHER, GetWeather, function_output
from tests.clients.weather import AGAIN, OSLO, QUESTION, ROME

PYTHON: Any = [{"type": "code_interpreter", "container": {"type": "auto"}}]


class Pet(BaseModel):
    name: str = Field(max_length=12)
    tame: bool


@pytest.fixture
def client(url: str) -> OpenAI:
    return OpenAI(base_url=url, api_key="none", max_retries=0, _strict_response_validation=True)


def test_openai_python_continues_and_deletes(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input=MULTIPLY, tools=PYTHON)
    assert [item.type for item in first.output] == ["reasoning", "code_interpreter_call", "message"]
    assert "56088" in first.output_text
    second = client.responses.create(
        model=MODEL, input="And now times 3?", tools=PYTHON, previous_response_id=first.id
    )
    assert "168264" in second.output_text
    assert client.responses.retrieve(second.id) == second
    assert len(client.responses.input_items.list(second.id).data) >= 1
    client.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(first.id)


def test_openai_python_conversation(client: OpenAI) -> None:
    conversation = client.conversations.create(
        metadata={"topic": "sums"},
        items=[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hi!"}],
    )
    first = client.responses.create(
        model=MODEL, conversation=conversation.id, input="What is 12*34?"
    )
    assert first.conversation is not None and first.conversation.id == conversation.id
    with client.responses.stream(
        model=MODEL, conversation=conversation.id, input="thank you"
    ) as stream:
        last = stream.get_final_response()
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
    texts = [item.content[0].text for item in items if item.type == "message"]
    assert texts == [
        "hello", "Hi!", "What is 12*34?", first.output_text, "thank you", last.output_text,
    ]  # fmt: skip
    added = client.conversations.items.create(
        conversation.id, items=[{"role": "developer", "content": "Be brief."}]
    )
    assert (
        client.conversations.items.retrieve(added.data[0].id, conversation_id=conversation.id)
        == added.data[0]
    )
    kept = client.conversations.items.delete(items[0].id, conversation_id=conversation.id)
    assert kept.metadata == {"topic": "sums"}
    assert client.conversations.update(conversation.id, metadata={}).metadata == {}
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(
            model=MODEL, input="x", conversation=conversation.id, previous_response_id=first.id
        )
    assert refused.value.code == "mutually_exclusive_parameters"
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_openai_python_background(client: OpenAI) -> None:
    created = client.responses.create(model=MODEL, input="hello", background=True)
    assert created.status == "queued"
    response = created
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(created.id)
    assert response.output_text.startswith("Hello")
    assert client.responses.cancel(created.id).status == "completed"
    stream = client.responses.create(model=MODEL, input="hello", background=True, stream=True)
    opening = [event.type for event in stream][:3]
    assert opening == ["response.created", "response.queued", "response.in_progress"]


def test_openai_python_function_call_raw_events(client: OpenAI) -> None:
    items: Any = [{"role": "user", "content": QUESTION}]
    for _ in range(2):
        with client.responses.create(
            model=MODEL, input=items, tools=[WEATHER], store=False, stream=True
        ) as stream:
            *events, last = stream
        assert last.type == "response.completed"
        done = [event.item for event in events if event.type == "response.output_item.done"]
        assert done == last.response.output
        items += [item.model_dump(exclude_none=True) for item in done]
        if any(item.type == "function_call" for item in done):
            items += function_output(last.response)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == last.response.output_text and OSLO in text


async def test_openai_python_stream_helper(url: str) -> None:
    async with AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        body: dict[str, Any] = {}
        for question, weather in ((QUESTION, OSLO), (AGAIN, ROME)):
            body["input"] = question
            async with client.responses.stream(model=MODEL, tools=[WEATHER], **body) as stream:
                kinds = {event.type async for event in stream}
                first = await stream.get_final_response()
            assert "response.function_call_arguments.delta" in kinds
            (call,) = [item for item in first.output if item.type == "function_call"]
            assert isinstance(call.parsed_arguments, GetWeather)
            async with client.responses.stream(
                model=MODEL,
                tools=[WEATHER],
                input=function_output(first),
                previous_response_id=first.id,
            ) as stream:
                kinds = {event.type async for event in stream}
                second = await stream.get_final_response()
            assert "response.output_text.delta" in kinds
            assert weather in second.output_text
            body["previous_response_id"] = second.id


def test_openai_python_parses_structured_output(client: OpenAI) -> None:
    body = {"model": MODEL, "input": "A dog.", "text_format": Pet, "max_output_tokens": 300}
    assert isinstance(client.responses.parse(**body).output_parsed, Pet)
    with client.responses.stream(**body) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Pet)

"""openai-python: every way it has to ask, each answer held to its own types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import AsyncOpenAI, NotFoundError, OpenAI, pydantic_responses_function_tool
from openai.types.responses import Response
from pydantic import BaseModel, Field

from tests.clients.weather import AGAIN, OSLO, QUESTION, ROME, get_weather

MODEL = "default"
PYTHON: Any = [{"type": "code_interpreter", "container": {"type": "auto"}}]
MULTIPLY = "Multiply 123*456 using the mcp.code_interpreter tool."


class GetWeather(BaseModel):
    """Get the weather of a city."""

    city: str


WEATHER = pydantic_responses_function_tool(GetWeather, name="get_weather")


class Pet(BaseModel):
    name: str = Field(max_length=12)
    tame: bool


@pytest.fixture
def client(url: str) -> OpenAI:
    return OpenAI(base_url=url, api_key="none", max_retries=0, _strict_response_validation=True)


def result(response: Response) -> Any:
    """What the function that was called says, as the next request's input."""
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert call.name == "get_weather"
    output = get_weather(**json.loads(call.arguments))
    return [{"type": "function_call_output", "call_id": call.call_id, "output": output}]


def test_turns_that_go_on(client: OpenAI) -> None:
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


def test_a_function_there_and_back_as_raw_events(client: OpenAI) -> None:
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
            items += result(last.response)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == last.response.output_text and OSLO in text


async def test_the_stream_helper(url: str) -> None:
    async with AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        asked: dict[str, Any] = {}
        for question, weather in ((QUESTION, OSLO), (AGAIN, ROME)):
            asked["input"] = question
            async with client.responses.stream(model=MODEL, tools=[WEATHER], **asked) as stream:
                kinds = {event.type async for event in stream}
                first = await stream.get_final_response()
            assert "response.function_call_arguments.delta" in kinds
            (call,) = [item for item in first.output if item.type == "function_call"]
            assert isinstance(call.parsed_arguments, GetWeather)
            async with client.responses.stream(
                model=MODEL, tools=[WEATHER], input=result(first), previous_response_id=first.id
            ) as stream:
                kinds = {event.type async for event in stream}
                second = await stream.get_final_response()
            assert "response.output_text.delta" in kinds
            assert weather in second.output_text
            asked["previous_response_id"] = second.id


def test_an_answer_as_a_type(client: OpenAI) -> None:
    asked = {"model": MODEL, "input": "A dog.", "text_format": Pet, "max_output_tokens": 300}
    assert isinstance(client.responses.parse(**asked).output_parsed, Pet)
    with client.responses.stream(**asked) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Pet)

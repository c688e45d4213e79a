"""The WebSocket of openai-python and of openai-agents: many responses over one connection."""

from __future__ import annotations

from typing import Any

from agents import Agent, function_tool, responses_websocket_session
from openai import AsyncOpenAI, OpenAI

from tests.clients.openai_requests import MODEL, WEATHER, function_output
from tests.clients.weather import AGAIN, OSLO, QUESTION, ROME, get_weather


def test_websocket_client_function_call(url: str) -> None:
    client = OpenAI(base_url=url, api_key="none")
    body: dict[str, Any] = {"input": QUESTION}
    text = ""
    with client.responses.connect() as connection:
        for _ in range(2):
            # What is not stored can be gone on from over the same connection.
            connection.response.create(model=MODEL, tools=[WEATHER], store=False, **body)
            for event in connection:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type in ("response.completed", "response.failed", "error"):
                    break
            assert event.type == "response.completed"
            if any(item.type == "function_call" for item in event.response.output):
                body = {
                    "input": function_output(event.response),
                    "previous_response_id": event.response.id,
                }
    assert OSLO in text


async def test_websocket_client_async(url: str) -> None:
    async with (
        AsyncOpenAI(base_url=url, api_key="none") as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model=MODEL, input="hello")
        events = []
        async for event in connection:
            events.append(event)
            if event.type == "response.completed":
                break
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert event.response.output_text.startswith("Hello")


async def test_websocket_agents_sdk_several_turns(url: str) -> None:
    agent = Agent(name="Assistant", model=MODEL, tools=[function_tool(get_weather)])
    async with responses_websocket_session(base_url=url, api_key="none") as session:
        first = session.run_streamed(agent, QUESTION)
        async for _ in first.stream_events():
            pass
        assert OSLO in first.final_output
        second = await session.run(agent, AGAIN, previous_response_id=first.last_response_id)
        assert ROME in second.final_output

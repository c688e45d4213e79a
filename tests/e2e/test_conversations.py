"""One conversation, continued by the command line and over ``/v1/responses`` in turn."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import OpenAI

from tests.support.program import RunAgent
from tests.support.scripts import HELLO, final, hold, thought
from tests.support.serve_program import serve_program

pytestmark = pytest.mark.slow


def texts(client: OpenAI, conversation: str) -> list[str]:
    """What a conversation's messages say, the oldest first."""
    page = client.conversations.items.list(conversation, order="asc", limit=100)
    return [
        "".join(part.text for part in item.content)  # type: ignore[union-attr]
        for item in page.data
        if item.type == "message"
    ]


@pytest.mark.long
def test_conversation_of_the_command_line_continues_over_the_api(
    agent: RunAgent, home: Path
) -> None:
    first = agent("run", "What is 12*34?", "-q")
    assert first.code == 0
    (row,) = json.loads(agent("sessions", "list", "--all", "--json").out)
    with serve_program(home, "--model", "tiny") as (url, _):
        client = OpenAI(base_url=url, api_key="x", _strict_response_validation=True)
        assert client.conversations.retrieve(row["id"]).metadata == {}
        before = texts(client, row["id"])
        assert (before[0], before[-1]) == ("What is 12*34?", first.out.strip())
        answer = client.responses.create(
            conversation=row["id"],
            input="What is 2+3?",
            extra_body={"enable_response_messages": True},
        )
        read = json.dumps(answer.model_dump()["input_messages"])
        assert "What is 12*34?" in read and "What is 2+3?" in read
    third = agent("run", "--continue", "What is 4+4?", "-q")
    assert third.code == 0
    shown = agent("sessions", "show", row["id"]).out
    for text in ("What is 12*34?", "What is 2+3?", answer.output_text, "What is 4+4?"):
        assert text in shown
    (row,) = json.loads(agent("sessions", "list", "--all", "--json").out)
    assert row["turns"] == 3


@pytest.mark.long
def test_conversation_of_the_api_continues_on_the_command_line(agent: RunAgent, home: Path) -> None:
    with serve_program(home, "--model", "tiny") as (url, _):
        client = OpenAI(base_url=url, api_key="x", _strict_response_validation=True)
        conversation = client.conversations.create(
            items=[
                {"role": "user", "content": "What is 5*5?"},
                {"role": "assistant", "content": "It is 25."},
            ]
        )
        client.responses.create(conversation=conversation.id, input="What is 12*34?")
        events = agent("run", "--resume", conversation.id, "What is 2+3?", "--json-events").events
        assert events[-1]["response"]["status"] == "completed"
        prefill = [event for event in events if event["type"] == "agent.prefill"]
        alone = agent("run", "What is 2+3?", "--json-events").events
        lone = [event for event in alone if event["type"] == "agent.prefill"]
        assert prefill[-1]["total"] > lone[-1]["total"], "it read the whole conversation"
        listed = texts(client, conversation.id)
        assert listed[:3] == ["What is 5*5?", "It is 25.", "What is 12*34?"]
        assert "What is 2+3?" in listed
        user = client.conversations.items.list(conversation.id, order="asc").data
        (asked,) = [
            item.id
            for item in user
            if item.type == "message" and "2+3" in item.content[0].text  # type: ignore[union-attr]
        ]
        client.conversations.items.delete(asked or "", conversation_id=conversation.id)
        assert "What is 2+3?" not in texts(client, conversation.id)
    shown = agent("sessions", "show", conversation.id).out
    assert "It is 25." in shown and "What is 12*34?" in shown and "What is 2+3?" not in shown
    (row,) = [
        row
        for row in json.loads(agent("sessions", "list", "--all", "--json").out)
        if row["id"] == conversation.id
    ]
    assert row["title"] == "What is 5*5?"


@pytest.mark.long
def test_turn_of_a_killed_server_leaves_the_conversation_as_it_was(
    home: Path, script: Callable[..., str]
) -> None:
    lost = hold(thought("First.") + final("word " * 2000), after=50)
    with serve_program(home, "--engine", script(HELLO, lost)) as (url, process):
        client = OpenAI(base_url=url, api_key="x")
        name = client.conversations.create().id
        client.responses.create(conversation=name, input="Hi")
        before = texts(client, name)
        stream = client.responses.create(conversation=name, input="Lost", stream=True)
        for event in stream:
            if event.type == "response.output_text.delta":
                break
        process.kill()
        process.wait()
    with serve_program(home, "--engine", script(HELLO)) as (url, _):
        client = OpenAI(base_url=url, api_key="x")
        assert texts(client, name) == before
        answer = client.responses.create(
            conversation=name, input="Again", extra_body={"enable_response_messages": True}
        )
        read = json.dumps(answer.model_dump()["input_messages"])
        assert "Lost" not in read and "Hi" in read and "Again" in read
        assert texts(client, name)[-2:] == ["Again", "Hello there!"]

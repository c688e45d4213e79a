"""Conversations that go on with a model of another vocabulary."""

import json
from typing import NamedTuple

import pytest

from agent import events as ev
from agent.conversation.convert import convert_vocabulary
from agent.formats.markup.known import SYNTAXES
from agent.turn.exposure import conversation_exposure
from tests.support.markup import format_of
from tests.support.runtimes import MakeRuntime


class Turn(NamedTuple):
    """A turn of a store."""

    prompt: str
    response: ev.Response


def turn(prompt: str, *items: ev.Item) -> Turn:
    response = ev.Response(id="resp_1", created_at=0, model="tiny", output=list(items))
    return Turn(prompt, response)


def call(server: str, name: str, output: str | None, **arguments: str) -> ev.McpCallItem:
    return ev.McpCallItem(
        id="mcp_1",
        server_label=server,
        name=name,
        arguments=json.dumps(arguments),
        output=output,
        error=None if output else ev.McpProtocolError(code=1, message="it broke"),
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["harmony", *SYNTAXES])
async def test_convert_calls_and_results_stay_and_count_as_read(
    make_runtime: MakeRuntime, name: str
) -> None:
    """A secret that was read before the change of model must not leave unasked after it."""
    runtime = await make_runtime()
    assert runtime.format is not None
    form = format_of(name, runtime.format)
    turns = [
        turn(
            "Read it.",
            call("files", "read", "password: hunter2", path="notes.txt"),
            call("code_interpreter", "python", None, code="1 / 0"),
            call("gone", "fetch", "found", url="u"),
        ),
        turn("And?"),
    ]
    names = {("files", "read"): "files__read", ("code_interpreter", "python"): "python"}
    past = [(turn.prompt, turn.response) for turn in turns]
    converted = convert_vocabulary(form, past, "theirs", names)
    assert converted.vocabulary == "theirs"
    text = b"".join(map(form.token_bytes, converted.ids())).decode()
    for part in ("notes.txt", "password: hunter2", "1 / 0", "it broke", "gone__fetch", "And?"):
        assert part in text
    exposure = conversation_exposure(converted, form, runtime.host)
    assert {name for _, name in exposure.private} == {"read", "python", "fetch"}

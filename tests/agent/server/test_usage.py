"""What a response says it took is what the engine counted, on the embedded model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from agent.engine.protocol import Finished, Generation, Request
from agent.formats.harmony.token_ids import ANALYSIS, CHANNEL, END, MESSAGE
from tests.agent.server.test_tool_selection import CODE
from tests.support.endpoint import Serve, Served
from tests.support.invariants import check
from tests.support.scripts import WEATHER

pytestmark = pytest.mark.slow

MULTIPLY = {"role": "user", "content": "Multiply 123*456 using the mcp.code_interpreter tool."}
AGAIN = {"role": "user", "content": "Multiply 17*23 using the mcp.code_interpreter tool."}
THINKS = [CHANNEL, ANALYSIS, MESSAGE]


class Counted:
    """A generation that is listened to."""

    def __init__(self, generation: Generation, ends: list[Finished]) -> None:
        self._generation, self._ends = generation, ends
        self.cancel = generation.cancel

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._generation:
            if isinstance(event, Finished):
                self._ends.append(event)
            yield event


def listen(served: Served, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Finished]]:
    """The ends of each turn's generations, by their responses' ids."""
    found: dict[str, list[Finished]] = {}
    generate = served.runtime.generate

    def counted(request: Request) -> Any:
        task = asyncio.current_task()
        turn = next(turn for turn in served.turns if turn._task is task)
        return Counted(generate(request), found.setdefault(turn.response.id, []))

    monkeypatch.setattr(served.runtime, "generate", counted)
    return found


def thoughts(ids: Sequence[int]) -> int:
    """Tokens of reasoning among those of a generation, counted without our parser."""
    number, place = 0, 0
    while place < len(ids):
        place += 1
        if list(ids[place - 3 : place]) == THINKS:
            until = next((at for at in range(place, len(ids)) if ids[at] == END), len(ids))
            number, place = number + until - place, until
    return number


def agree(served: Served, counted: dict[str, list[Finished]], response: dict[str, Any]) -> None:
    ends, usage = counted[response["id"]], response["usage"]
    turn = next(turn for turn in served.turns if turn.response.id == response["id"])
    assert usage == {
        "input_tokens": sum(end.prompt_tokens for end in ends),
        "input_tokens_details": {
            "cached_tokens": sum(end.cached_tokens for end in ends),
            "cache_write_tokens": 0,
        },
        "output_tokens": sum(end.output_tokens for end in ends),
        "output_tokens_details": {"reasoning_tokens": sum(map(thoughts, turn.generated))},
        "total_tokens": sum(end.prompt_tokens + end.output_tokens for end in ends),
    }


async def test_several_turns_with_tools(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = await serve(temperature=0, tools="python")
    counted = listen(served, monkeypatch)
    first = check(await served.stream(input=[MULTIPLY], tools=[CODE]))
    assert len(counted[first["id"]]) == 2, "it called the tool, and answered"
    assert first["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    resent = [MULTIPLY, *first["output"]]
    bodies: list[dict[str, Any]] = [
        {"input": [AGAIN], "previous_response_id": first["id"]},
        {"input": [*resent, AGAIN], "store": False},
        {"input": [AGAIN], "previous_response_id": first["id"], "max_output_tokens": 20},
    ]
    for body in bodies:
        response = check(await served.stream(**body, tools=[CODE]))
        agree(served, counted, response)
        asked, followed = counted[first["id"]][0], counted[response["id"]][0]
        assert followed.cached_tokens > asked.prompt_tokens, "the call and its result too"
    agree(served, counted, first)
    body = (await served.post({"input": [MULTIPLY], "tools": [CODE]})).json()
    agree(served, counted, body)


async def test_held_to_a_form_and_side_by_side(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(tools="python", seed=1)
    counted = listen(served, monkeypatch)
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
              "required": ["city"], "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "name": "city", "schema": schema, "strict": True}
    bodies: list[dict[str, Any]] = [
        {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "get_weather"}},
        {"tools": [WEATHER], "tool_choice": "required"},
        {"text": {"format": form}},
        {"tools": [CODE], "temperature": 2.0},
        {"top_logprobs": 2, "max_output_tokens": 30},
        {"tools": [CODE]},
    ]
    streams = (
        served.stream(**{"input": [MULTIPLY], "max_output_tokens": 150, **b}) for b in bodies
    )
    for events in await asyncio.gather(*streams):
        agree(served, counted, check(events))

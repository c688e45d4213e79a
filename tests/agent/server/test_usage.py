"""The usage of a response is what the engine counted, on the embedded model."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from agent.engine.protocol import Finished, Generation, Request
from agent.formats.harmony.token_ids import ANALYSIS_ID, CHANNEL_ID, END_ID, MESSAGE_ID
from tests.support.endpoint import Serve, Served
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER
from tests.support.scripts import WEATHER

pytestmark = pytest.mark.slow

MULTIPLY = {"role": "user", "content": "Multiply 123*456 using the mcp.code_interpreter tool."}
AGAIN = {"role": "user", "content": "Multiply 17*23 using the mcp.code_interpreter tool."}
THINKS = [CHANNEL_ID, ANALYSIS_ID, MESSAGE_ID]


class ObservedGeneration:
    """A generation whose end is recorded."""

    def __init__(self, generation: Generation, ends: list[Finished]) -> None:
        self._generation, self._ends = generation, ends
        self.cancel = generation.cancel

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._generation:
            if isinstance(event, Finished):
                self._ends.append(event)
            yield event


def observe_generations(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[Finished]]:
    """The ends of each turn's generations, by their responses' ids."""
    ends: dict[str, list[Finished]] = {}
    generate = served.runtime.generate

    def counted(request: Request) -> Any:
        task = asyncio.current_task()
        turn = next(turn for turn in served.turns if turn._task is task)
        return ObservedGeneration(generate(request), ends.setdefault(turn.response.id, []))

    monkeypatch.setattr(served.runtime, "generate", counted)
    return ends


def count_reasoning(ids: Sequence[int]) -> int:
    """Tokens of reasoning among those of a generation, counted without our parser."""
    number, index = 0, 0
    while index < len(ids):
        index += 1
        if list(ids[index - 3 : index]) == THINKS:
            end = next((at for at in range(index, len(ids)) if ids[at] == END_ID), len(ids))
            number, index = number + end - index, end
    return number


def assert_usage_agrees(
    served: Served, counted: dict[str, list[Finished]], response: dict[str, Any]
) -> None:
    ends, usage = counted[response["id"]], response["usage"]
    turn = next(turn for turn in served.turns if turn.response.id == response["id"])
    assert usage == {
        "input_tokens": sum(end.prompt_tokens for end in ends),
        "input_tokens_details": {
            "cached_tokens": sum(end.cached_tokens for end in ends),
            "cache_write_tokens": 0,
        },
        "output_tokens": sum(end.output_tokens for end in ends),
        "output_tokens_details": {
            "reasoning_tokens": sum(count_reasoning(one.ids) for one in turn.generations)
        },
        "total_tokens": sum(end.prompt_tokens + end.output_tokens for end in ends),
    }


async def test_usage_equals_engine_counts_with_tools(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(temperature=0, tools="python")
    counted = observe_generations(served, monkeypatch)
    first = check(await served.stream(input=[MULTIPLY], tools=[CODE_INTERPRETER]))
    assert len(counted[first["id"]]) == 2, "it called the tool, and answered"
    assert first["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    resent = [MULTIPLY, *first["output"]]
    bodies: list[dict[str, Any]] = [
        {"input": [AGAIN], "previous_response_id": first["id"]},
        {"input": [*resent, AGAIN], "store": False},
        {"input": [AGAIN], "previous_response_id": first["id"], "max_output_tokens": 20},
    ]
    for body in bodies:
        response = check(await served.stream(**body, tools=[CODE_INTERPRETER]))
        assert_usage_agrees(served, counted, response)
        first_end, second_end = counted[first["id"]][0], counted[response["id"]][0]
        assert second_end.cached_tokens > first_end.prompt_tokens, "the call and its result too"
    assert_usage_agrees(served, counted, first)
    body = (await served.post({"input": [MULTIPLY], "tools": [CODE_INTERPRETER]})).json()
    assert_usage_agrees(served, counted, body)


@pytest.mark.long
async def test_usage_equals_engine_counts_with_constraints(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(tools="python", seed=1)
    counted = observe_generations(served, monkeypatch)
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
              "required": ["city"], "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "name": "city", "schema": schema, "strict": True}
    bodies: list[dict[str, Any]] = [
        {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "get_weather"}},
        {"tools": [WEATHER], "tool_choice": "required"},
        {"text": {"format": form}},
        {"tools": [CODE_INTERPRETER], "temperature": 2.0},
        {"top_logprobs": 2, "max_output_tokens": 30},
        {"tools": [CODE_INTERPRETER]},
    ]
    streams = (
        served.stream(**{"input": [MULTIPLY], "max_output_tokens": 150, **b}) for b in bodies
    )
    for events in await asyncio.gather(*streams):
        assert_usage_agrees(served, counted, check(events))

"""/metrics counts what the turns did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.events import AgentApprovalResolved, AgentRepair
from agent.observability import metrics
from agent.turn.loop import Turn
from tests.agent.server.test_hosted_tools import CONTAINER, browse
from tests.agent.server.test_tool_selection import SEEDS
from tests.support.endpoint import Serve
from tests.support.fake_app import PlayedTurn, calls
from tests.support.scripts import HELLO, LONG, final, python


def samples(page: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_what_was_done_is_counted(serve: Serve) -> None:
    served = await serve(tools="python")
    answer = (await served.post({**SEEDS, "stream": False})).json()
    page = await served.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=")
    found = samples(page.text)
    usage = answer["usage"]
    reasoning = usage["output_tokens_details"]["reasoning_tokens"]
    cached = usage["input_tokens_details"]["cached_tokens"]
    assert found["agent_turns_total", "completed"] == 1
    assert found["agent_tokens_total", "reasoning"] == reasoning > 0
    assert found["agent_tokens_total", "output"] == usage["output_tokens"] - reasoning
    assert found["agent_tokens_total", "cached"] == cached
    assert found["agent_tokens_total", "prefilled"] == usage["input_tokens"] - cached
    assert found["agent_tool_seconds_count", "code_interpreter"] == 1
    assert found["agent_time_to_first_token_seconds_count",] == 1
    assert found["agent_model_loaded",] == 1 and found["agent_engine_requests",] == 0
    assert not any(name.endswith("_created") for name, *_ in found)


async def test_a_generation_that_runs_is_told(serve: Serve) -> None:
    served = await serve(LONG)
    async with served.client().responses.stream(model="default", input="x") as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        found = samples((await served.get("/metrics")).text)
        assert found["agent_engine_requests",] == found["agent_turns_running",] == 1


async def test_calls_of_hosted_tools_are_counted(serve: Serve) -> None:
    served = await serve(python("1"), browse("open", cursor=9), final("ok"), tools="python,browser")
    tools = [CONTAINER, {"type": "web_search"}]
    assert (await served.post({"input": "x", "tools": tools})).status_code == 200
    found = samples((await served.get("/metrics")).text)
    assert found["agent_tool_seconds_count", "code_interpreter"] == 1
    assert found["agent_tool_seconds_count", "browser"] == 1


async def test_waiting_for_a_persons_yes_is_no_work_of_a_tool(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    now = iter([10.0, 70.0, 71.5, 80.0])  # asked, allowed, done; asked in vain
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: next(now)))
    turn = PlayedTurn("x")
    served.runtime.hub.announce(cast(Turn, turn))
    for decision in ("approved", "refused"):
        call = calls(turn, "files", "write", "{}")
        call.arguments_done("{}")
        turn.emit(AgentApprovalResolved(item_id=call.id, decision=decision, by="person"))
        call.completed("ok")
    turn.log.close()
    page = ""
    while "agent_turns_total{" not in page:
        page = (await served.get("/metrics")).text
    found = samples(page)
    assert found["agent_tool_seconds_count", metrics.GUEST] == 1
    assert found["agent_tool_seconds_sum", metrics.GUEST] == 1.5


async def test_repairs_are_counted_by_rule(serve: Serve) -> None:
    served = await serve("<|channel|>analysis to=python code<|message|>1<|end|><|start|>hello")
    await served.post({"input": "x"})
    rules = {event.rule for event in served.turns[0].log.events if isinstance(event, AgentRepair)}
    page = (await served.get("/metrics")).text
    assert rules and all(f'agent_repairs_total{{rule="{rule}"}}' in page for rule in rules)


async def test_it_needs_the_key(serve: Serve) -> None:
    served = await serve(HELLO, api_key="a-key")
    assert (await served.get("/metrics")).status_code == 401

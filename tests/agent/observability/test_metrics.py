"""/metrics counts turns, tokens, tools and repairs."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.events import AgentApprovalResolved, AgentRepair, AgentStats, ResponseCompleted
from agent.observability import metrics
from agent.turn.loop import Turn
from tests.support.endpoint import Serve, open_request
from tests.support.fake_app import FakeTurn, emit_call
from tests.support.requests import CODE_CONTAINER, SEED_REQUEST
from tests.support.scripts import HELLO, LONG, browser_call, final, python
from tests.support.waiting import HANG_SECONDS, wait_until


def samples(page: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_metrics_turn_is_counted(serve: Serve) -> None:
    served = await serve(tools="python")
    answer = (await served.post({**SEED_REQUEST, "stream": False})).json()
    page = await served.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=")
    values = samples(page.text)
    usage = answer["usage"]
    reasoning = usage["output_tokens_details"]["reasoning_tokens"]
    cached = usage["input_tokens_details"]["cached_tokens"]
    assert values["agent_turns_total", "completed"] == 1
    assert values["agent_tokens_total", "reasoning"] == reasoning > 0
    assert values["agent_tokens_total", "output"] == usage["output_tokens"] - reasoning
    assert values["agent_tokens_total", "cached"] == cached
    assert values["agent_tokens_total", "prefilled"] == usage["input_tokens"] - cached
    assert values["agent_tool_seconds_count", "code_interpreter"] == 1
    assert values["agent_time_to_first_token_seconds_count",] == 1
    assert values["agent_model_loaded",] == 1 and values["agent_engine_requests",] == 0
    assert not any(name.endswith("_created") for name, *_ in values)


async def test_metrics_raw_completions_are_counted(serve: Serve) -> None:
    served = await serve()
    body = {"prompt": "One two three", "max_tokens": 5, "n": 2, "ignore_eos": True}
    usages = []
    for fields in ({}, {"echo": True, "logprobs": 1, "max_tokens": 0, "n": 1}):
        answer = await served.post({**body, **fields}, url=f"{served.url}/completions")
        usages.append(answer.json()["usage"])
    values = samples((await served.get("/metrics")).text)
    assert values["agent_completions_total", "completed"] == 3
    assert values["agent_tokens_total", "output"] == usages[0]["completion_tokens"] == 10
    read = values["agent_tokens_total", "prefilled"] + values["agent_tokens_total", "cached"]
    prompt = usages[0]["prompt_tokens"]
    assert read == 2 * prompt + prompt - 1, "of two choices, and of a prompt that was scored"
    assert ("agent_turns_total", "completed") not in values
    long = {**body, "max_tokens": 3000, "stream": True}
    leaving = await open_request(served, long, "/v1/completions")
    runtime = served.runtime
    await wait_until(lambda: runtime.loaded and runtime.loaded.engine.unfinished)
    leaving.close()
    async with asyncio.timeout(HANG_SECONDS):
        while ("agent_completions_total", "cancelled") not in values:
            values = samples((await served.get("/metrics")).text)
    assert values["agent_completions_total", "completed"] == 3


async def test_metrics_running_generation_is_gauged(serve: Serve) -> None:
    served = await serve(LONG)
    async with served.client().responses.stream(model="default", input="x") as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        values = samples((await served.get("/metrics")).text)
        assert values["agent_engine_requests",] == values["agent_turns_running",] == 1


async def test_metrics_hosted_tools_are_counted(serve: Serve) -> None:
    served = await serve(
        python("1"), browser_call("open", cursor=9), final("ok"), tools="python,browser"
    )
    tools = [CODE_CONTAINER, {"type": "web_search"}]
    assert (await served.post({"input": "x", "tools": tools})).status_code == 200
    values = samples((await served.get("/metrics")).text)
    assert values["agent_tool_seconds_count", "code_interpreter"] == 1
    assert values["agent_tool_seconds_count", "browser"] == 1


async def test_metrics_approval_wait_is_not_tool_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    now = iter([10.0, 70.0, 71.5, 80.0])  # asked, allowed, done; asked in vain
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: next(now)))
    turn = FakeTurn("x")
    served.runtime.hub.publish(cast(Turn, turn))
    for decision in ("approved", "refused"):
        call = emit_call(turn, "files", "write", "{}")
        call.arguments_done("{}")
        turn.emit(AgentApprovalResolved(item_id=call.id, decision=decision, by="person"))
        call.completed("ok")
    turn.emit(ResponseCompleted(response=turn.response))
    values = samples((await served.get("/metrics")).text)
    assert values["agent_tool_seconds_count", metrics.CLIENT_SERVER_LABEL] == 1
    assert values["agent_tool_seconds_sum", metrics.CLIENT_SERVER_LABEL] == 1.5


async def test_metrics_drafted_tokens_are_counted(serve: Serve) -> None:
    served = await serve(HELLO)
    turn = FakeTurn("x")
    served.runtime.hub.publish(cast(Turn, turn))
    turn.emit(
        AgentStats(
            prefill_tokens=1, cached_tokens=0, output_tokens=30, drafted_tokens=20,
            accepted_tokens=15, tokens_per_second=1, time_to_first_token_ms=1, tool_ms=0, total_ms=1,
        )
    )  # fmt: skip
    turn.emit(ResponseCompleted(response=turn.response))
    values = samples((await served.get("/metrics")).text)
    assert values["agent_draft_tokens_total", "accepted"] == 15
    assert values["agent_draft_tokens_total", "rejected"] == 5


async def test_metrics_repairs_are_counted_by_rule(serve: Serve) -> None:
    served = await serve("<|channel|>analysis to=python code<|message|>1<|end|><|start|>hello")
    await served.post({"input": "x"})
    rules = {event.rule for event in served.turns[0].log.events if isinstance(event, AgentRepair)}
    page = (await served.get("/metrics")).text
    assert rules and all(f'agent_repairs_total{{rule="{rule}"}}' in page for rule in rules)


async def test_metrics_need_the_api_key(serve: Serve) -> None:
    served = await serve(HELLO, api_key="a-key")
    assert (await served.get("/metrics")).status_code == 401

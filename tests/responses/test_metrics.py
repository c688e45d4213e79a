"""/metrics counts what the turns did."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from agent.events import AgentRepair
from tests.responses.conftest import Serve
from tests.responses.scripts import HELLO
from tests.responses.test_tools import SEEDS


async def test_what_was_done_is_counted(serve: Serve) -> None:
    served = await serve(tools="python")
    answer = (await served.post({**SEEDS, "stream": False})).json()
    page = await served.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }
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


async def test_repairs_are_counted_by_rule(serve: Serve) -> None:
    served = await serve("<|channel|>analysis to=python code<|message|>1<|end|><|start|>hello")
    await served.post({"input": "x"})
    rules = {event.rule for event in served.turns[0].log.events if isinstance(event, AgentRepair)}
    page = (await served.get("/metrics")).text
    assert rules and all(f'agent_repairs_total{{rule="{rule}"}}' in page for rule in rules)


async def test_it_needs_the_key(serve: Serve) -> None:
    served = await serve(HELLO, api_key="a-key")
    assert (await served.get("/metrics")).status_code == 401

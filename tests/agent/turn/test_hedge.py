"""What an answer after a call ends with if the embedded model was unsure in that turn."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.conversation.conversation import Conversation
from agent.conversation.messages import Message, ToolResultMessage, User
from agent.engine.protocol import Sampling
from agent.formats.protocol import FunctionTool
from agent.runtime.runtime import Runtime
from agent.turn.decoder import CALL_HEDGE, HEDGE
from agent.turn.loop import Turn
from agent.turn.options import AnswerForm, TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.turns import read_events

SUM = "What is 12 plus 30?"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = FunctionTool("get_weather", "Get the weather of a city.", CITY)


async def ask(
    runtime: Runtime, prompt: str | Message, talk: Conversation | None = None, **options: Any
) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """The answer, the response and the events of one turn at temperature 0."""
    settings = TurnOptions(sampling=Sampling(temperature=0), **options)
    message = User(prompt) if isinstance(prompt, str) else prompt
    turn = Turn(runtime, talk or Conversation("c"), [message], settings).start()
    events = await read_events(turn)
    response = check(events)
    texts = [
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    ]
    return "".join(texts), response, events


async def test_unsure_call_answer_ends_with_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    plain, before, _ = await ask(runtime, SUM, hedge_below=1e-9)
    runtime.token_events = True
    talk = Conversation("c")
    hedged, after, events = await ask(runtime, SUM, talk, hedge_below=1.0)
    assert plain == "12 + 30 = 42." and hedged == f"{plain}\n\n{HEDGE}"
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == hedged
    assert after["usage"]["output_tokens"] == before["usage"]["output_tokens"]
    # The model never reads it.
    ids = [token for e in events if e["type"] == "agent.tokens" for token in e["ids"]]
    decode = runtime.format.encoding.decode  # type: ignore[attr-defined]
    assert HEDGE not in decode(ids) and HEDGE not in decode(talk.ids())
    assert (await ask(runtime, "times 2", talk, hedge_below=1e-9))[0] == "42 * 2 = 84."


@pytest.mark.long
async def test_unsure_call_of_client_is_followed_by_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    ask_weather = partial(ask, runtime, "What is the weather in Paris?", functions=(WEATHER,))
    silent, sure, _ = await ask_weather(hedge_below=1e-9)
    talk = Conversation("c")
    said, unsure, events = await ask_weather(talk=talk, hedge_below=1.0)
    assert silent == "" and said == CALL_HEDGE
    kinds = [item["type"] for item in sure["output"]]
    assert kinds == ["reasoning", "function_call"]
    assert [item["type"] for item in unsure["output"]] == [*kinds, "message"]
    assert unsure["output"][-1]["phase"] == "commentary"
    assert unsure["output"][1]["arguments"] == sure["output"][1]["arguments"]
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == CALL_HEDGE
    assert unsure["usage"]["output_tokens"] == sure["usage"]["output_tokens"]
    assert CALL_HEDGE not in runtime.format.encoding.decode(talk.ids())  # type: ignore[attr-defined]
    assert (await ask_weather(hedge_below=1.0, tool_choice="must"))[0] == ""
    form = AnswerForm({"type": "object"})
    assert (await ask_weather(hedge_below=1.0, answer_form=form))[0] == ""


async def test_answer_after_result_of_client_ends_with_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    for hedge_below, end in ((1e-9, ""), (1.0, f"\n\n{HEDGE}")):
        ask_next = partial(
            ask, runtime, talk=Conversation("c"), functions=(WEATHER,), hedge_below=hedge_below
        )
        await ask_next("What is the weather in Paris?")
        said, _, _ = await ask_next(ToolResultMessage("get_weather", "Paris: 18 degrees"))
        assert said.endswith(f"Paris: 18 degrees{end}")


async def test_no_call_no_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    answer, response, _ = await ask(runtime, "Hello!", hedge_below=1.0)
    assert HEDGE not in answer
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


async def test_answer_with_schema_has_no_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    form = AnswerForm({"enum": [41, 42]})
    answer, response, _ = await ask(runtime, SUM, hedge_below=1.0, answer_form=form)
    assert "mcp_call" in [item["type"] for item in response["output"]]
    assert json.loads(answer) in (41, 42)


async def test_answer_that_client_stops_has_no_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    answer, _, _ = await ask(runtime, SUM, hedge_below=1.0, stop=("nowhere",))
    assert answer == "12 + 30 = 42."


@pytest.mark.long
async def test_answer_that_is_cut_off_has_no_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    _, response, _ = await ask(runtime, SUM, hedge_below=1.0)
    most = response["usage"]["output_tokens"] - 3
    answer, response, _ = await ask(runtime, SUM, hedge_below=1.0, max_output_tokens=most)
    assert response["status"] == "incomplete" and answer and HEDGE not in answer


async def test_tokens_of_hedge_have_no_logprobs(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    _, response, _ = await ask(runtime, SUM, hedge_below=1.0, logprobs=0)
    (message,) = [item for item in response["output"] if item["type"] == "message"]
    (part,) = message["content"]
    assert "".join(row["token"] for row in part["logprobs"]) == "12 + 30 = 42."
    assert part["text"].endswith(HEDGE)


async def test_model_settings_are_those_of_its_entry(make_runtime: MakeRuntime) -> None:
    model = (await make_runtime(tools="python")).model
    own = bootstrap.turn_options(LaunchOptions(), model)
    assert own.hedge_below == model.hedge_below > 0
    other = bootstrap.turn_options(LaunchOptions(system="Be brief."), replace(model, hedge_below=0))
    switched = other.with_model_settings(own)
    assert switched.hedge_below == own.hedge_below and switched.instructions == "Be brief."
    assert bootstrap.turn_options(LaunchOptions(engine="script:x"), model).hedge_below == 0

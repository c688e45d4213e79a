"""What an answer after a call ends with if the embedded model was unsure in that turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Hedge, Sampling
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import AnswerForm, TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.turns import read_events

WORDS = "I may be wrong."
ALWAYS, NEVER = Hedge(1.0, WORDS), Hedge(1e-9, WORDS)
SUM = "What is 12 plus 30?"


async def ask(
    runtime: Runtime, prompt: str, talk: Conversation | None = None, **options: Any
) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """The answer, the response and the events of one turn at temperature 0."""
    settings = TurnOptions(sampling=Sampling(temperature=0), **options)
    turn = Turn(runtime, talk or Conversation("c"), [User(prompt)], settings).start()
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
    plain, before, _ = await ask(runtime, SUM, hedge=NEVER)
    runtime.token_events = True
    talk = Conversation("c")
    hedged, after, events = await ask(runtime, SUM, talk, hedge=ALWAYS)
    assert plain == "12 + 30 = 42." and hedged == f"{plain}\n\n{WORDS}"
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == hedged
    added = len(runtime.format.encode_text(f"\n\n{WORDS}"))
    assert after["usage"]["output_tokens"] == before["usage"]["output_tokens"] + added
    ids = [token for e in events if e["type"] == "agent.tokens" for token in e["ids"]]
    assert len(ids) == after["usage"]["output_tokens"]
    # The model reads it in the next turn, as the client does.
    assert WORDS in runtime.format.encoding.decode(talk.ids())  # type: ignore[attr-defined]
    assert (await ask(runtime, "times 2", talk, hedge=NEVER))[0] == "42 * 2 = 84."


async def test_no_call_no_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    answer, response, _ = await ask(runtime, "Hello!", hedge=ALWAYS)
    assert WORDS not in answer
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


async def test_answer_with_schema_has_no_hedge(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    form = AnswerForm({"enum": [41, 42]})
    answer, response, _ = await ask(runtime, SUM, hedge=ALWAYS, answer_form=form)
    assert "mcp_call" in [item["type"] for item in response["output"]]
    assert json.loads(answer) in (41, 42)


@pytest.mark.parametrize(("spare", "hedged"), [(-1, False), (0, True)])
async def test_hedge_is_within_max_output_tokens(
    make_runtime: MakeRuntime, spare: int, hedged: bool
) -> None:
    runtime = await make_runtime(tools="python")
    answer, response, _ = await ask(runtime, SUM, hedge=ALWAYS)
    most = response["usage"]["output_tokens"] + spare
    answer, response, _ = await ask(runtime, SUM, hedge=ALWAYS, max_output_tokens=most)
    assert response["status"] == "completed"
    assert answer.endswith(WORDS) == hedged and answer.startswith("12 + 30 = 42.")


async def test_tokens_of_hedge_have_no_logprobs(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    _, response, _ = await ask(runtime, SUM, hedge=ALWAYS, logprobs=0)
    (message,) = [item for item in response["output"] if item["type"] == "message"]
    (part,) = message["content"]
    assert "".join(row["token"] for row in part["logprobs"]) == "12 + 30 = 42."
    assert part["text"].endswith(WORDS)


async def test_embedded_model_hedges_as_its_entry_says(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="python")
    options = bootstrap.turn_options(LaunchOptions(), runtime.model)
    assert options.hedge == runtime.model.hedge is not None
    scripted = bootstrap.turn_options(LaunchOptions(engine="script:x"), runtime.model)
    assert scripted.hedge is None

"""A model that has no tools answers; a call that it writes all the same reaches no client."""

import json
from pathlib import Path

import pytest

from agent import events as ev
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Sampling
from agent.turn.constraints import TurnConstraints
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.endpoint import Serve
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import REASONING, WEATHER, final, python, raw_call

GREEDY = TurnOptions(sampling=Sampling(temperature=0), max_output_tokens=80, tools=())
PROMPTS = ("Hello!", "What is 12 * 31?", "Thank you.")


@pytest.mark.long
@pytest.mark.parametrize("prompt", PROMPTS)
async def test_greedy_tokens_equal_unconstrained(
    make_runtime: MakeRuntime, prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make_runtime()
    written = []
    for constrained in (True, False):
        if not constrained:
            monkeypatch.setattr(TurnConstraints, "_next_constraints", lambda *_, **__: None)
        turn = Turn(runtime, Conversation("c"), [User(prompt)], GREEDY).start()
        await turn.done()
        (generation,) = turn.generations
        written.append(generation.ids)
    assert written[0] == written[1]


async def test_eager_model_without_tools_answers(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    """Biased towards a recipient, the embedded model calls; without tools it cannot."""
    runtime = await make_runtime()
    to = runtime.format.encode_text("commentary to=functions")
    sampling = Sampling(temperature=0, logit_bias=tuple((token, 40.0) for token in to))
    options = TurnOptions(sampling=sampling, max_output_tokens=40, tools=())
    turn = Turn(runtime, Conversation("c"), [User("List src")], options).start()
    response = await turn.done()
    assert {item.type for item in response.output} <= {"reasoning", "message"}
    assert not [event for event in turn.log.events if isinstance(event, ev.AgentRepair)]


CALLS = [
    python("print(1)"),
    raw_call("functions.look", '{"at": "it"}'),
    raw_call("repo_browser.list", '{"path":'),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}], ids=str)
async def test_unoffered_call_is_no_item(
    serve: Serve, call: str, fields: dict[str, object]
) -> None:
    """A scripted model cannot be constrained: it is told, and what it wrote is in the repair."""
    served = await serve(REASONING + call, final("Then I answer."), tools="python")
    response = check(await served.stream(input="x", **fields))
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["status"] == "completed"
    events = served.turns[0].log.events
    (repair,) = [
        event
        for event in events
        if isinstance(event, ev.AgentRepair) and event.rule == "call_not_offered"
    ]
    body = call.partition("<|message|>")[2].removesuffix("<|call|>")
    assert body in repair.text or json.dumps(body)[1:-1] in repair.text
    chat = {"messages": [{"role": "user", "content": "x"}], **fields}
    if "tools" in chat:
        chat["tools"] = [{"type": "function", "function": WEATHER}]
    answer = (await served.post(chat, url=f"{served.url}/chat/completions")).json()
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "Then I answer."
    assert choice["finish_reason"] == "stop" and not choice["message"].get("tool_calls")


async def test_unoffered_call_among_functions_is_no_item(serve: Serve) -> None:
    """What a client with functions alone cannot express is no item of its response either."""
    served = await serve(raw_call("repo_browser.list", "{}"), final("No."))
    response = check(await served.stream(input="x", tools=[WEATHER]))
    assert [item["type"] for item in response["output"]] == ["message"]


async def test_unoffered_call_repeated_ends_the_turn(serve: Serve) -> None:
    served = await serve(raw_call("look", "{}"))
    response = check(await served.stream(input="x"))
    (message,) = response["output"]
    assert "failed 3 times in a row" in message["content"][0]["text"]

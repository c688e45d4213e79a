"""A turn ends with one terminal event and whole items, whatever the model and the engine do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from agent.conversation.compaction import starts
from agent.conversation.conversation import Conversation, User
from agent.engine.protocol import EngineError, Finished, Prefill, Request, Sampling, Tokens
from agent.events import Event
from agent.formats.protocol import FunctionTool
from agent.runtime.runtime import Runtime
from agent.store.conversations import Store
from agent.store.recorder import Journal, as_if_ended
from agent.turn.loop import Turn
from agent.turn.options import Options
from tests.support.invariants import check
from tests.support.program import ROOT
from tests.support.runtimes import MakeRuntime

CASES = json.loads((ROOT / "tests" / "support" / "harmony_cases.json").read_text())
FINAL = "<|channel|>final<|message|>ok<|return|>"


async def play(runtime: Runtime, options: Options | None = None) -> list[dict[str, Any]]:
    """One turn; its events as a client sees them."""
    turn = Turn(runtime, Conversation("c"), [User("go")], options or Options()).start()
    return await seen(turn)


async def seen(turn: Turn) -> list[dict[str, Any]]:
    events: list[Event] = [event async for batch in turn.log.follow() for event in batch]
    return [json.loads(event.model_dump_json()) for event in events]


def script(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


async def test_every_malformed_stream_is_a_whole_response(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    """Each case is one generation, then an answer: in turn, so that each has a turn of its own."""
    lines = [line for case in CASES["cases"] for line in ({"tokens": case["tokens"]},)]
    runtime = await make_runtime(script(tmp_path / "cases.jsonl", *lines, {"markup": FINAL}))
    functions = tuple(
        FunctionTool(name.removeprefix("functions."), "", {"type": "object"})
        for name in CASES["tools"]
        if name.startswith("functions.")
    )
    options = Options(functions=functions, max_tool_calls=0, max_output_tokens=2000)
    for _ in range(len(lines)):
        events = await play(runtime, options)
        final = check(events)
        assert final["status"] in ("completed", "incomplete")


class Breaks:
    """An engine that fails in the middle of what it says."""

    name = "breaks"
    context_length = 1000

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def generate(self, request: Request) -> Breaks:
        return self

    async def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        yield Prefill(1, 1, 0)
        yield Tokens(self.ids)
        raise EngineError("The engine died.")

    def cancel(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    "said",
    [
        "<|channel|>final<|message|>It is",
        "<|channel|>analysis<|message|>Hm",
        "<|channel|>analysis to=python code<|message|>1+",
        "<|channel|>analysis to=python code<|message|>1+1<|call|>",
    ],
)
async def test_what_an_engine_left_open_is_closed(
    make_runtime: MakeRuntime, tmp_path: Path, said: str
) -> None:
    runtime = await make_runtime(script(tmp_path / "s.jsonl", {"markup": FINAL}), tools="python")
    ids = runtime.format.encoding.encode(said, allowed_special="all")  # type: ignore[attr-defined]
    runtime.engine = Breaks(ids)  # type: ignore[assignment]
    final = check(await play(runtime))
    assert final["status"] == "failed" and final["error"]["message"] == "The engine died."
    assert final["output"][-1]["status"] in ("incomplete", "failed")


async def test_a_follow_up_costs_only_its_own_tokens(make_runtime: MakeRuntime) -> None:
    """On the real model: while the person reads, the finished turn is laid again without what was
    thought, so the next prompt finds all of it in memory."""
    runtime = await make_runtime(tools="python")
    conversation = Conversation("c")
    options = Options(sampling=Sampling(temperature=0))
    for number, prompt in enumerate(("What is 12*34?", "hello there", "What is 7*8?")):
        before = len(conversation.ids())
        turn = Turn(runtime, conversation, [User(prompt)], options, source="app").start()
        events = await seen(turn)
        check(events)
        if number:
            first = next(e for e in events if e["type"] == "agent.prefill")
            asked = len(runtime.format.user(prompt) + runtime.format.open_assistant())
            assert first["total"] == before + asked
            assert first["cached"] >= before - 1
        background = runtime._background
        assert background is not None
        await background


async def test_what_is_said_in_the_middle_is_read_by_the_next_generation(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    call = {"markup": "<|channel|>commentary to=functions.look<|message|>{}<|call|>"}
    runtime = await make_runtime(script(tmp_path / "s.jsonl", call, {"markup": FINAL}))
    store, talk = Store(tmp_path / "store.sqlite"), Conversation("c")
    turn = Turn(runtime, talk, [User("go")], Options())
    store.begin(talk, "go", turn.response)
    journal = Journal(store, turn.start())
    events = []
    async for batch in turn.log.follow():
        for event in batch:
            events.append(json.loads(event.model_dump_json()))
            match event:
                case ev.OutputItemAdded(item=ev.McpCallItem()):
                    turn.steer("To the left.")
                case ev.OutputItemAdded(item=ev.MessageItem()):
                    turn.steer("Too late.")
    check(events)
    kinds = [event["type"] for event in events]
    assert kinds.index("agent.steered") > kinds.index("response.mcp_call.failed")
    roles = [entry.role for entry in talk.entries]
    assert roles == ["user", "assistant", "result", "steering", "assistant"]
    assert starts(runtime.format, talk.entries) == [0], "it is one turn"
    assert turn.steering == ["Too late."]
    journal.finish(turn.response)
    (kept,) = store.turns("c")
    assert [one if isinstance(one, str) else one.type for one in kept.said()] == [
        "mcp_call", "To the left.", "message",
    ]  # fmt: skip
    assert store.load("c").entries[3].role == "steering"


async def test_a_listener_that_comes_late_sees_the_whole_turn(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = await make_runtime(script(tmp_path / "s.jsonl", {"markup": FINAL}))
    announced: list[Turn] = []
    stop = runtime.hub.listen(announced.append)
    turn = Turn(runtime, Conversation("c"), [User("go")], Options()).start()
    early = await seen(turn)
    await turn.done()
    assert announced == [turn] and await seen(turn) == early
    stop()
    assert len(await play(runtime)) and announced == [turn]


async def test_a_turn_that_waits_for_the_engine_can_be_stopped(make_runtime: MakeRuntime) -> None:
    """On the real model, which says one thing at a time."""
    runtime = await make_runtime()
    options = Options(sampling=Sampling(temperature=1.5, seed=1), max_output_tokens=3000)
    first = Turn(runtime, Conversation("a"), [User("tell me all")], options).start()
    async for batch in first.log.follow():
        if any(event.type == "response.reasoning_text.delta" for event in batch):
            break
    second = Turn(runtime, Conversation("b"), [User("hello")], options).start()
    async for batch in second.log.follow():
        if any(event.type == "response.in_progress" for event in batch):
            break
    second.stop()
    assert (await second.done()).status == "cancelled"
    first.stop()
    await first.done()
    check(await seen(first))
    check(await seen(second))


async def test_a_call_that_is_stopped_while_it_runs_keeps_what_it_printed(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    code = "import time\nprint('the first line')\ntime.sleep(600)"
    calls = {"markup": f"<|channel|>analysis to=python code<|message|>{code}<|call|>"}
    runtime = await make_runtime(script(tmp_path / "s.jsonl", calls), tools="python")
    turn = Turn(runtime, Conversation("c"), [User("go")], Options()).start()
    async for batch in turn.log.follow():
        if any(isinstance(event, ev.AgentToolOutputDelta) for event in batch):
            break
    decode = runtime.format.encoding.decode  # type: ignore[attr-defined]
    if_killed = decode(as_if_ended(turn)[-1].ids)
    assert "the first line\nError: the program ended while it ran" in if_killed
    turn.stop()
    final = check(await seen(turn))
    said = final["output"][0]["error"]["message"]
    assert final["status"] == "cancelled"
    # Between the two, if it was quick, how python took the interrupt.
    assert said.startswith("the first line\n") and said.endswith(
        "\nError: interrupted while it ran"
    )
    assert said in decode(turn.conversation.entries[-1].ids)

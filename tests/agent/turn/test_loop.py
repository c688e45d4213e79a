"""A turn ends with one terminal event and complete items, whatever the model and the engine do."""

import errno
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from agent.conversation.compaction import turn_starts
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import (
    EngineBusyError,
    EngineError,
    Finished,
    Generation,
    Prefill,
    Request,
    Sampling,
    Tokens,
)
from agent.formats.protocol import FunctionTool
from agent.store.conversations import Store
from agent.store.recorder import TurnRecorder
from agent.turn.loop import Turn
from agent.turn.options import APP, TurnOptions
from tests.support.invariants import check
from tests.support.program import ROOT
from tests.support.runtimes import MakeRuntime
from tests.support.turns import FINAL, read_events, run_turn, write_script

CASES = json.loads((ROOT / "tests" / "support" / "harmony_cases.json").read_text())


@pytest.mark.long
async def test_malformed_stream_gives_complete_response(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    """Each case is one generation, then an answer: in turn, so that each has a turn of its own."""
    lines = [line for case in CASES["cases"] for line in ({"tokens": case["tokens"]},)]
    runtime = await make_runtime(write_script(tmp_path / "cases.jsonl", *lines, {"markup": FINAL}))
    functions = tuple(
        FunctionTool(name.removeprefix("functions."), "", {"type": "object"})
        for name in CASES["tools"]
        if name.startswith("functions.")
    )
    options = TurnOptions(functions=functions, max_tool_calls=0, max_output_tokens=2000)
    for _ in range(len(lines)):
        events = await run_turn(runtime, options)
        final = check(events)
        assert final["status"] in ("completed", "incomplete")


class FailingEngine:
    """An engine that fails after the ids it was made with."""

    name = "breaks"
    context_length = 1000

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def generate(self, request: Request) -> "FailingEngine":
        return self

    async def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        yield Prefill(1, 1, 0)
        yield Tokens(self.ids)
        raise EngineError("The engine died.")

    def cancel(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    "markup",
    [
        "<|channel|>final<|message|>It is",
        "<|channel|>analysis<|message|>Hm",
        "<|channel|>analysis to=python code<|message|>1+",
        "<|channel|>analysis to=python code<|message|>1+1<|call|>",
    ],
)
async def test_engine_failure_closes_open_items(
    make_runtime: MakeRuntime, tmp_path: Path, markup: str
) -> None:
    runtime = await make_runtime(
        write_script(tmp_path / "s.jsonl", {"markup": FINAL}), tools="python"
    )
    ids = runtime.format.encoding.encode(markup, allowed_special="all")  # type: ignore[attr-defined]
    failing: Any = FailingEngine(ids)
    assert runtime.loaded is not None
    runtime.loaded = replace(runtime.loaded, engine=failing)
    final = check(await run_turn(runtime))
    assert final["status"] == "failed" and final["error"]["message"] == "The engine died."
    assert final["output"][-1]["status"] in ("incomplete", "failed")


async def test_follow_up_turn_prefills_only_its_own_tokens(make_runtime: MakeRuntime) -> None:
    """On the embedded model: a finished turn is prefetched without its reasoning, so the next prompt
    finds all of it in memory."""
    runtime = await make_runtime(tools="python")
    conversation = Conversation("c")
    options = TurnOptions(sampling=Sampling(temperature=0))
    for number, prompt in enumerate(("What is 12*34?", "hello there", "What is 7*8?")):
        before = len(conversation.ids())
        turn = Turn(runtime, conversation, [User(prompt)], options, interface=APP).start()
        events = await read_events(turn)
        check(events)
        if number:
            first = next(e for e in events if e["type"] == "agent.prefill")
            new = len(runtime.format.user_message(prompt) + runtime.format.open_assistant())
            assert first["total"] == before + new
            assert first["cached"] >= before - 1
        await runtime.prefetcher.wait()


async def test_steering_is_read_by_next_generation(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    call = {"markup": "<|channel|>commentary to=functions.look<|message|>{}<|call|>"}
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", call, {"markup": FINAL}))
    store, conversation = Store(tmp_path / "store.sqlite"), Conversation("c")
    turn = Turn(runtime, conversation, [User("go")], TurnOptions())
    errors: list[sqlite3.Error] = []
    TurnRecorder(store, errors.append).record(turn, "go")
    turn.start()
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
    roles = [entry.role for entry in conversation.entries]
    assert roles == ["user", "assistant", "result", "steering", "assistant"]
    assert turn_starts(conversation.entries) == [0], "it is one turn"
    assert turn.queued_steering() == ["Too late."] and not errors
    (stored,) = store.turns("c")
    assert [item if isinstance(item, str) else item.type for item in stored.timeline()] == [
        "mcp_call", "To the left.", "message",
    ]  # fmt: skip
    assert store.load("c").entries[3].role == "steering"


async def test_late_subscriber_reads_all_events(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": FINAL}))
    announced: list[Turn] = []
    stop = runtime.hub.subscribe(announced.append)
    turn = Turn(runtime, Conversation("c"), [User("go")], TurnOptions()).start()
    early = await read_events(turn)
    await turn.done()
    assert announced == [turn] and await read_events(turn) == early
    stop()
    assert len(await run_turn(runtime)) and announced == [turn]


async def test_turn_waiting_for_engine_can_be_stopped(make_runtime: MakeRuntime) -> None:
    """On the embedded model, which runs one generation at a time."""
    runtime = await make_runtime()
    options = TurnOptions(sampling=Sampling(temperature=1.5, seed=1), max_output_tokens=3000)
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
    check(await read_events(first))
    check(await read_events(second))


async def test_stopped_call_keeps_printed_output(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    code = "import time\nprint('the first line')\ntime.sleep(600)"
    calls = {"markup": f"<|channel|>analysis to=python code<|message|>{code}<|call|>"}
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", calls), tools="python")
    turn = Turn(runtime, Conversation("c"), [User("go")], TurnOptions()).start()
    async for batch in turn.log.follow():
        if any(isinstance(event, ev.AgentToolOutputDelta) for event in batch):
            break
    decode = runtime.format.encoding.decode  # type: ignore[attr-defined]
    if_killed = decode(turn.pending_entries()[-1].ids)
    assert "the first line\nError: the program ended while it ran" in if_killed
    turn.stop()
    final = check(await read_events(turn))
    message = final["output"][0]["error"]["message"]
    assert final["status"] == "cancelled"
    # Between the two, if it was quick, how python took the interrupt.
    assert message.startswith("the first line\n") and message.endswith(
        "\nError: interrupted while it ran"
    )
    assert message in decode(turn.conversation.entries[-1].ids)


async def test_busy_engine_fails_turn_with_rate_limit(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()

    def refuse(request: Request) -> Generation:
        raise EngineBusyError("68 requests are being served: try again later.")

    runtime.generate = refuse  # type: ignore[method-assign]
    turn = Turn(runtime, Conversation("c"), [User("Hello!")], TurnOptions()).start()
    response = await turn.done()
    assert response.error and response.error.code == "rate_limit_exceeded"
    assert "try again" in response.error.message


async def test_refusal_of_the_system_is_named(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()

    def refuse(request: Request) -> Generation:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/tmp/agent-process-x")

    runtime.generate = refuse  # type: ignore[method-assign]
    turn = Turn(runtime, Conversation("c"), [User("Hello!")], TurnOptions()).start()
    response = await turn.done()
    assert response.error
    assert response.error.message == "Input/output error: /tmp/agent-process-x."


async def test_token_events_hold_every_id_read_and_written(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    call = {"markup": "<|channel|>commentary to=functions.look<|message|>{}<|call|>"}
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", call, {"markup": FINAL}))
    conversation = Conversation("c")
    runtime.token_events = True
    turn = Turn(runtime, conversation, [User("go")], TurnOptions())
    turn.prepare()
    before = conversation.prompt(turn.format)
    events = await read_events(turn.start())
    check([event for event in events if event["type"] not in ("agent.prompt", "agent.tokens")])
    first, second = [event["ids"] for event in events if event["type"] == "agent.prompt"]
    assert first == before
    opening = turn.format.open_assistant()
    (result,) = [entry.ids for entry in conversation.entries if entry.role == "result"]
    assert second == result + opening
    tokens = [event["ids"] for event in events if event["type"] == "agent.tokens"]
    written = [token for decoder in turn.generations for token in decoder.ids]
    assert [token for ids in tokens for token in ids] == written
    kinds = [event["type"] for event in events]
    assert kinds.index("agent.prompt") < kinds.index("agent.prefill") < kinds.index("agent.tokens")
    assert kinds.index("agent.tokens") < kinds.index("response.output_item.added")

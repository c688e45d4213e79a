"""What is left of a turn whose process was killed, and how a turn is seen again."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent import events as ev
from agent.config.text_files import project_name
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.store.conversations import Store
from agent.store.recorder import TurnRecorder
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.journal import noted_text
from tests.support.program import RunAgent
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import HELLO, hold
from tests.support.turns import write_script
from tests.support.waiting import HANG_SECONDS, wait_until

CALL = (
    "<|channel|>analysis<|message|>Better count.<|end|><|start|>assistant<|channel|>commentary"
    ' to=functions.files__list <|constrain|>json<|message|>{"path":"."}<|call|>'
)
ANSWER = "<|channel|>final<|message|>" + "And so it goes on. " * 200 + "<|return|>"
OK = "<|channel|>final<|message|>ok<|return|>"
STORE = "state/store.sqlite"


TEXT, TOOL_OUTPUT = "response.output_text.delta", "agent.tool_output.delta"


def killed(home: Path, script: str, cwd: Path, deltas: int, *, noted: str, of: str = TEXT) -> str:
    """Run it until so many pieces of the answer were seen, and the journal has what is ``noted``; then
    kill -9. What was seen."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "agent", "run", "--json-events", "--engine", script, "go"],
        env={**os.environ, "AGENT_HOME": str(home)}, cwd=cwd, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        seen: list[str] = []
        assert process.stdout
        while len(seen) < deltas:
            event = json.loads(process.stdout.readline())
            if event["type"] == of:
                seen.append(event["delta"])
        asyncio.run(wait_until(lambda: noted in noted_text(home, of)))
        process.kill()
    return "".join(seen)


@pytest.mark.slow
def test_killed_turn_keeps_noted_text_and_can_continue(
    home: Path, tmp_path: Path, script: Callable[..., str], agent: RunAgent
) -> None:
    written = [CALL, hold(ANSWER, after=120)]
    seen = killed(home, script(*written), tmp_path / "work", 100, noted="And so it goes on. And")
    store = Store(home / STORE, folder=project_name(tmp_path / "work"))
    lost = store.turns(store.find(None))[0].response
    assert lost.status == "failed" and lost.error and "process ended" in lost.error.message
    thought, call, answer = lost.output
    assert isinstance(thought, ev.ReasoningItem) and thought.content[0].text == "Better count."
    assert isinstance(call, ev.McpCallItem) and call.status == "completed" and call.output
    assert isinstance(answer, ev.MessageItem) and answer.status == "incomplete"
    kept = answer.content[0].text
    assert "And so it goes on. And" in kept and (kept.startswith(seen) or seen.startswith(kept))
    before = store.load(None)
    assert [entry.role for entry in before.entries] == ["user", "assistant", "result", "assistant"]
    more = agent("run", "--continue", "and now?", "--engine", script(OK))
    assert more.code == 0 and more.out == "ok\n"
    after = store.load(None)
    assert after.id == before.id and after.entries[:4] == before.entries


@pytest.mark.long
def test_killed_turn_keeps_output_of_running_call(
    home: Path, tmp_path: Path, script: Callable[..., str]
) -> None:
    code = "import time\nprint('the first line')\ntime.sleep(600)"
    calls = f"<|channel|>analysis to=python code<|message|>{code}<|call|>"
    killed(home, script(calls), tmp_path, 1, noted="the first line\n", of=TOOL_OUTPUT)
    store = Store(home / STORE, folder=project_name(tmp_path))
    (call,) = store.turns(store.find(None))[0].response.output
    assert isinstance(call, ev.McpCallItem) and isinstance(call.error, ev.McpProtocolError)
    assert call.error.message.startswith("the first line\n") and call.status == "failed"
    assert call.error.message.endswith("The process ended during this turn.")


def test_finished_turn_stores_events_with_times(
    home: Path, tmp_path: Path, script: Callable[..., str], agent: RunAgent
) -> None:
    done = agent("run", "--json-events", "--engine", script(CALL, OK), "go")
    store = Store(home / STORE, folder=project_name(tmp_path / "work"))
    response = store.turns(store.find(None))[0].response
    times, events = zip(*store.events(response.id), strict=True)
    assert list(times) == sorted(times) and times[0] < HANG_SECONDS
    assert [e.type for e in events][-1] == done.events[-1]["type"] == "response.completed"
    assert {e.type for e in events} == {e["type"] for e in done.events}
    assert events[-1].response == response
    again = agent("sessions", "replay", store.find(None), "--json-events", "--speed", "1000")
    numbers = [e["sequence_number"] for e in again.events if not e["type"].startswith("agent.")]
    assert numbers == list(range(len(numbers)))
    assert again.events[-1]["response"] == done.events[-1]["response"]


async def test_terminal_event_finds_turn_stored_without_reasoning(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": HELLO}))
    store, conversation = Store(tmp_path / "store.sqlite"), Conversation("c")
    errors: list[sqlite3.Error] = []
    recorder = TurnRecorder(store, errors.append)
    turn = Turn(runtime, conversation, [User("Hi.")], TurnOptions())
    recorder.record(turn, "Hi.")
    turn.start()
    async for batch in turn.log.follow():
        if isinstance(batch[-1], ev.Terminal):
            (stored,) = store.turns("c")
            assert stored.response == batch[-1].response
            entries = store.load("c").entries
            assert [(entry.role, entry.reasoning) for entry in entries] == [
                ("user", False),
                ("assistant", False),
            ]
    assert not errors


async def test_recorder_whose_store_breaks_tells_and_turn_goes_on(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": HELLO}))
    store = Store(tmp_path / "store.sqlite")
    errors: list[sqlite3.Error] = []
    recorder = TurnRecorder(store, errors.append)
    turn = Turn(runtime, Conversation("c"), [User("Hi.")], TurnOptions())
    recorder.record(turn, "Hi.")
    store.close()
    response = await turn.start().done()
    assert response.status == "completed" and len(errors) == 1
    late = Turn(runtime, Conversation("d"), [User("Hi.")], TurnOptions())
    recorder.record(late, "Hi.")
    assert (await late.start().done()).status == "completed" and len(errors) == 2


async def test_turn_recorded_after_its_end_is_written_completely(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": HELLO}))
    store, conversation = Store(tmp_path / "store.sqlite"), Conversation("c")
    turn = Turn(runtime, conversation, [User("Hi.")], TurnOptions()).start()
    response = await turn.done()
    errors: list[sqlite3.Error] = []
    await TurnRecorder(store, errors.append).record(turn, "Hi.", start=turn.first_entry)
    (stored,) = store.turns("c")
    assert (stored.response, stored.start, errors) == (response, 0, [])
    assert [type(event) for _, event in store.events(response.id)][-1] is ev.ResponseCompleted


async def test_turn_goes_on_while_another_program_writes_and_ends_once_it_is_stored(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": HELLO}))
    store, errors = Store(tmp_path / "store.sqlite"), list[sqlite3.Error]()
    with closing(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)) as other:
        other.execute("begin immediate")
        turn = Turn(runtime, Conversation("c"), [User("Hi.")], TurnOptions())
        begun = TurnRecorder(store, errors.append).record(turn, "Hi.")
        turn.start()
        seen = list[ev.Event]()
        async for batch in turn.log.follow():
            seen += batch
            if any(isinstance(event, ev.AgentStats) for event in batch):
                break  # the last event before the terminal one
        assert any(isinstance(event, ev.OutputItemDone) for event in seen)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert turn.response.status == "in_progress", "its end is not stored yet"
        assert not other.execute("select * from turns").fetchall()
        other.execute("rollback")
    response = await turn.done()
    await begun
    (stored,) = store.turns("c")
    assert (stored.response, errors) == (response, []) and response.status == "completed"
    assert not store.db.execute("select * from journal").fetchall()


async def test_cancelled_turn_is_stored_before_its_task_ends(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": HELLO}))
    store, errors = Store(tmp_path / "store.sqlite"), list[sqlite3.Error]()
    with closing(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)) as other:
        other.execute("begin immediate")
        turn = Turn(runtime, Conversation("c"), [User("Hi.")], TurnOptions())
        TurnRecorder(store, errors.append).record(turn, "Hi.")
        task = turn.start()._task
        assert task is not None
        async for batch in turn.log.follow():
            if any(isinstance(event, ev.AgentStats) for event in batch):
                break
        for _ in range(9):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        other.execute("rollback")
    await asyncio.gather(task, return_exceptions=True)
    (stored,) = store.turns("c")
    assert (stored.response.status, stored.response, errors) == ("completed", turn.response, [])
    assert isinstance(turn.log.events[-1], ev.ResponseCompleted) and turn.log.closed


async def test_reader_sees_no_item_that_is_not_stored(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    """Of a process that is killed at that moment, the journal has the item."""
    replies = ({"markup": reply} for reply in (CALL, HELLO))
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", *replies))
    store, errors = Store(tmp_path / "store.sqlite"), list[sqlite3.Error]()
    turn, done = Turn(runtime, Conversation("c"), [User("Hi.")], TurnOptions()), list[str]()
    TurnRecorder(store, errors.append).record(turn, "Hi.")
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as other:
        async for batch in turn.start().log.follow():
            done += [event.item.id for event in batch if isinstance(event, ev.OutputItemDone)]
            rows = other.execute("select status from turns").fetchall()
            noted = "".join(note for (note,) in other.execute("select note from journal"))
            assert rows == [("completed",)] or all(name in noted for name in done)
    assert len(done) >= 3 and not errors

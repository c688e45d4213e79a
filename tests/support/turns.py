"""Runs turns on a runtime in this process and reads their events as a client does."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Generation, Request
from agent.runtime.runtime import Runtime
from agent.store.conversations import Store
from agent.store.recorder import TurnRecorder
from agent.turn.continuation import Begin
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import final

FINAL = final("ok")


def write_script(path: Path, *lines: dict[str, Any]) -> Path:
    """Write the replies of a scripted engine: JSON objects, one per line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


async def read_events(turn: Turn) -> list[dict[str, Any]]:
    """All events of a turn, once it has ended, as JSON objects."""
    events = [event async for batch in turn.log.follow() for event in batch]
    return [json.loads(event.model_dump_json()) for event in events]


async def run_turn(
    runtime: Runtime, options: TurnOptions | None = None, **settings: Any
) -> list[dict[str, Any]]:
    """Run one turn in a new conversation and return its events; ``settings``: of its options."""
    options = options or TurnOptions(**settings)
    turn = Turn(runtime, Conversation("c"), [User("go")], options).start()
    return await read_events(turn)


class Recorded:
    """A runtime whose turns are stored, and the requests that its engine got."""

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self.runtime, self.store, self.requests = runtime, store, list[Request]()
        generate = runtime.generate

        def record(request: Request) -> Generation:
            self.requests.append(request)
            return generate(request)

        runtime.generate = record  # type: ignore[method-assign]

    async def run(
        self, talk: Conversation, begin: Begin | None = None, **options: Any
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The response of one turn, and its events."""
        turn = Turn(self.runtime, talk, [User("go")], TurnOptions(**options), begin=begin)
        TurnRecorder(self.store, lambda error: None).record(turn, "go")
        events = await read_events(turn.start())
        return check(events), events


@pytest.fixture
def recorded(make_runtime: MakeRuntime, tmp_path: Path) -> Any:
    async def make(*replies: str, **more: Any) -> Recorded:
        path = write_script(tmp_path / "s.jsonl", *({"markup": reply} for reply in replies))
        runtime = await make_runtime(path if replies else None, **more)
        return Recorded(runtime, Store(tmp_path / "store.sqlite"))

    return make

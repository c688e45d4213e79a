"""Runs turns on a runtime in this process and reads their events as a client does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
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

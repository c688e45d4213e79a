"""How the app looks in each state: pictures, compared with those that were looked at and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tui.played import (
    Person,
    Played,
    PlayedTurn,
    app_of,
    calls,
    says,
    screen_text,
    thinks,
)
from tui.widgets.approval import Approval
from tui.widgets.message import Message

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
CODE = '{"code":"a = 123\\nb = 456\\nprint(a * b)"}'
ANSWER = """# The product

123 × 456 is **56088**; the tool says so too.

- 123 × 400 = 49200
- 123 × 56 = 6888

| step | value |
|---|---|
| 123 × 400 | 49200 |
| sum | 56088 |

```python
print(123 * 456)
```
"""


Scene = Callable[[Person], Awaitable[None]]


async def empty(someone: Person) -> None:
    await someone.sees("ready")


async def loading(someone: Person) -> None:
    someone.session.loaded.clear()
    someone.session.progress(0.45)
    await someone.sees("loading the model 45%")


async def thinking(someone: Person) -> None:
    turn = await someone.ask("What is 123*456?")
    thinks(turn, "I can do it in my head: 123*400 = 49200, 123*56 = 6888. Better ask the tool.")
    await someone.sees("Better ask")


async def calling(someone: Person) -> None:
    turn = await someone.ask("What is 123*456?")
    reasoning = thinks(turn, "Better ask the tool.")
    await someone.sees("Better ask")
    someone.clock.now += 1.2
    reasoning.close(True)
    calls(turn, "code_interpreter", "python", CODE[:24])
    await someone.pilot.press(*"And then?", "enter", *"a draft")
    await someone.sees("b = 4")


async def waiting(someone: Person) -> None:
    turn = await someone.ask("Write it down.")
    call = calls(turn, "files", "write", '{"path":"sum.txt","text":"56088"}')
    call.arguments_done(call_arguments := '{"path":"sum.txt","text":"56088"}')
    tool = SimpleNamespace(server="files", name="write")
    asked = asyncio.ensure_future(someone.session.approver(tool, call_arguments))
    someone.app.asked = asked  # type: ignore[attr-defined]
    await someone.see(lambda: someone.app.query(Approval))
    await someone.see(lambda: someone.app.query_one(Approval).has_focus)


async def answered(someone: Person) -> None:
    turn = await someone.ask("What is 123*456?")
    reasoning = thinks(turn, "Better ask the tool.")
    await someone.sees("Better ask")
    someone.clock.now += 1.2
    reasoning.close(True)
    call = calls(turn, "code_interpreter", "python", CODE)
    call.arguments_done(CODE)
    await someone.sees("running")
    someone.clock.now += 0.3
    call.completed("56088")
    await someone.see(lambda: "56088" in screen_text(someone.app))
    says(turn, ANSWER).close(True)
    turn.end()
    await someone.see(lambda: someone.app.turn is None)
    await someone.see(lambda: all(message.settled for message in someone.app.query(Message)))


async def conversation(someone: Person) -> None:
    await answered(someone)
    await someone.pilot.press("f2")
    await someone.sees("thought for 1.2 s")


async def light(someone: Person) -> None:
    await conversation(someone)
    await someone.pilot.press("f4")


async def failed(someone: Person) -> None:
    turn = await someone.ask("Read the list.")
    call = calls(turn, "files", "read", '{"path":"list.txt"}')
    call.arguments_done('{"path":"list.txt"}')
    call.completed("apples\npears")
    turn.end("failed", "The engine ran out of memory: ask for a shorter context.")
    await someone.see(lambda: someone.app.turn is None)


async def served(someone: Person) -> None:
    turn = PlayedTurn("What is the capital of France?", "http").start()
    someone.session.runtime.hub.announce(turn)  # type: ignore[arg-type]
    await someone.sees("Served · 1 running")
    await someone.pilot.press("f3")
    thinks(turn, "Paris, of course.")
    await someone.sees("Paris, of course.")


async def keys(someone: Person) -> None:
    await someone.sees("ready")
    await someone.pilot.press("f1")
    await someone.sees("Leaving")


SCENES: list[Scene] = [
    empty, loading, thinking, calling, waiting, answered, conversation, light, failed, served, keys,
]  # fmt: skip


@SIZES
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_it_looks_as_before(snap_compare: Any, scene: Scene, size: tuple[int, int]) -> None:
    session = Played(loads=scene is not loading)
    app = app_of(session)

    async def play(pilot: Any) -> None:
        someone = Person(app, session, pilot)
        await someone.see(lambda: app.begun)
        app.prompt.cursor_blink = False
        await scene(someone)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=play)

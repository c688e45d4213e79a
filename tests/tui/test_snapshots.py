"""How the app looks in each state: pictures, compared with those that were looked at and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from pytest_textual_snapshot import SVGImageExtension
from syrupy import SnapshotAssertion
from textual.widgets import Input

from agent import events as ev
from tests.tui.played import (
    Person,
    Played,
    PlayedTurn,
    calls,
    person,
    says,
    screen_text,
    thinks,
)
from tui.widgets.approval import Approval
from tui.widgets.message import Message

SIZES = [(80, 24), (120, 40), (200, 50)]
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
    turn.emit(
        ev.AgentApprovalRequested(
            item_id=call.id, server="files", tool="write", arguments=call_arguments, reason=""
        )
    )
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
    await someone.sees("Writing")


async def palette(someone: Person) -> None:
    await someone.pilot.press("ctrl+p")
    someone.app.screen.query_one(Input).cursor_blink = False
    await someone.sees("/effort")


async def contrast(someone: Person) -> None:
    await answered(someone)
    await someone.pilot.press("f4", "f4")
    await someone.see(lambda: someone.app.theme == "high-contrast")


async def ansi(someone: Person) -> None:
    await conversation(someone)
    await someone.pilot.press("f4", "f4", "f4")
    await someone.see(lambda: someone.app.theme == "ansi")


SCENES: list[Scene] = [
    empty, loading, thinking, calling, waiting, answered, conversation, light, failed, served, keys,
    palette, contrast, ansi,
]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_it_looks_as_before(snapshot: SnapshotAssertion, scene: Scene) -> None:
    pictures = snapshot.use_extension(SVGImageExtension)
    async with person(Played(loads=scene is not loading), size=SIZES[0]) as someone:
        someone.app.prompt.cursor_blink = False
        await scene(someone)
        someone.app.clear_notifications()  # they go when their time has come
        changed = []
        for size in SIZES:
            await someone.resizes(*size)
            name = "{}x{}".format(*size)
            if someone.app.export_screenshot() != pictures(name=name):
                changed.append(name)
        told = "look at them: pytest --snapshot-update, then git diff"
        assert not changed, f"{scene.__name__} looks different at {', '.join(changed)}; {told}"


async def test_on_a_small_screen_nothing_that_is_needed_is_missing() -> None:
    async with person(size=(60, 15)) as someone:
        await waiting(someone)
        text = screen_text(someone.app)
        assert "Run files · write?" in text and "sum.txt" in text
        assert "y once" in text and "r no" in text and "MCP" in text

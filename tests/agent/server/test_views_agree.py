"""One run watched over HTTP, as JSON lines and by the app, all at once."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from typing import Any

from agent import events as ev
from agent.cli.run import JsonLines
from agent.turn.loop import Turn
from tests.support.endpoint import Serve
from tests.support.invariants import check
from tests.support.scripts import final, python, thought
from tui.state.turn_view import Said

CODE = {"type": "mcp", "server_label": "code_interpreter"}


async def json_lines(turn: Turn) -> list[dict[str, Any]]:
    out = StringIO()
    face = JsonLines(out)
    async for batch in turn.log.follow():
        for event in batch:
            face.show(event)
        face.flush()
    return [json.loads(line) for line in out.getvalue().splitlines()]


async def in_the_app(turn: Turn) -> Said:
    """What the app's widgets show of it."""
    said = Said("6*7?", source="http")
    async for batch in turn.log.follow():
        for event in batch:
            said.take(event)
    return said


async def late_and_slow(turn: Turn) -> list[ev.Item]:
    """Like a pane that is opened late and paints one item after the other."""
    await turn.done()
    items = []
    async for batch in turn.log.follow():
        for event in batch:
            if isinstance(event, ev.OutputItemDone):
                items.append(event.item)
                await asyncio.sleep(0)
    return items


async def test_all_see_the_same(serve: Serve) -> None:
    served = await serve(thought("I compute.") + python("print(6*7)"), final("42"), tools="python")
    watching: list[asyncio.Task[Any]] = []
    served.runtime.hub.listen(
        lambda turn: watching.extend(
            asyncio.create_task(watch(turn)) for watch in (json_lines, late_and_slow, in_the_app)
        )
    )
    over_http = check(await served.stream(input="6*7?", tools=[CODE]))
    lines, items, said = await asyncio.gather(*watching)
    assert check(lines) == over_http
    assert [item.model_dump(mode="json") for item in items] == over_http["output"]
    assert [item["type"] for item in over_http["output"]] == [
        "mcp_list_tools",
        "reasoning",
        "mcp_call",
        "message",
    ]
    assert [part.id for part in said.parts] == [item["id"] for item in over_http["output"]]
    _, thinking, call, answer = said.parts
    assert str(thinking.text) == over_http["output"][1]["content"][0]["text"]
    assert str(call.text) == json.loads(over_http["output"][2]["arguments"])["code"]
    assert call.result == over_http["output"][2]["output"] == "42"
    assert str(answer.text) == said.answer == over_http["output"][3]["content"][0]["text"]
    assert said.status == over_http["status"]
    assert any(line["type"] == "agent.stats" for line in lines), "only HTTP leaves these out"

"""One run watched over HTTP, as JSON lines and by the app, all at once."""

import asyncio
import json
from io import StringIO
from typing import Any

from agent import events as ev
from agent.cli.render import JsonLinesRenderer
from agent.turn.loop import Turn
from tests.support.endpoint import Serve
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER
from tests.support.scripts import final, python, thought
from tui.state.turn_view import TurnView


async def json_lines(turn: Turn) -> list[dict[str, Any]]:
    out = StringIO()
    renderer = JsonLinesRenderer(out)
    async for batch in turn.log.follow():
        for event in batch:
            renderer.show(event)
        renderer.flush()
    return [json.loads(line) for line in out.getvalue().splitlines()]


async def app_view(turn: Turn) -> TurnView:
    """What the app's widgets show of it."""
    view = TurnView("6*7?", source="http")
    async for batch in turn.log.follow():
        for event in batch:
            view.apply(event)
    return view


async def slow_reader(turn: Turn) -> list[ev.Item]:
    """Like a pane that is opened late and paints one item after the other."""
    await turn.done()
    items = []
    async for batch in turn.log.follow():
        for event in batch:
            if isinstance(event, ev.OutputItemDone):
                items.append(event.item)
                await asyncio.sleep(0)
    return items


async def test_http_json_lines_and_app_agree(serve: Serve) -> None:
    served = await serve(thought("I compute.") + python("print(6*7)"), final("42"), tools="python")
    watching: list[asyncio.Task[Any]] = []
    served.runtime.hub.subscribe(
        lambda turn: watching.extend(
            asyncio.create_task(watch(turn)) for watch in (json_lines, slow_reader, app_view)
        )
    )
    over_http = check(await served.stream(input="6*7?", tools=[CODE_INTERPRETER]))
    lines, items, view = await asyncio.gather(*watching)
    assert check(lines) == over_http
    assert [item.model_dump(mode="json") for item in items] == over_http["output"]
    assert [item["type"] for item in over_http["output"]] == [
        "mcp_list_tools",
        "reasoning",
        "mcp_call",
        "message",
    ]
    assert [part.id for part in view.items] == [item["id"] for item in over_http["output"]]
    _, thinking, call, answer = view.items
    assert str(thinking.text) == over_http["output"][1]["content"][0]["text"]
    assert str(call.text) == json.loads(over_http["output"][2]["arguments"])["code"]
    assert call.result == over_http["output"][2]["output"] == "42"
    assert str(answer.text) == view.answer == over_http["output"][3]["content"][0]["text"]
    assert view.status == over_http["status"]
    assert any(line["type"] == "agent.stats" for line in lines), "only HTTP leaves these out"

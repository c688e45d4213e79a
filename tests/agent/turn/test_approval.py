"""Calls that ask: for approval, and what their servers want to know."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.conversation import Conversation, User
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import Options
from tests.agent.turn.test_loop import FINAL, script, seen
from tests.support.invariants import check
from tests.support.program import ROOT
from tests.support.runtimes import MakeRuntime
from tools.mcp.client_requests import Elicitation, Elicited
from tools.types import Answer, Tool

SERVERS = ROOT / "tests" / "support" / "mcp_servers"


def calling(tool: str, arguments: str = "{}") -> dict[str, str]:
    return {
        "markup": f"<|channel|>commentary to=functions.{tool} <|constrain|>json<|message|>"
        f"{arguments}<|call|>"
    }


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Any]:
    """What ``assemble`` is told of the person's own servers, which are asked about."""
    servers = {
        "plain": {"command": sys.executable, "args": ["-I", str(SERVERS / "plain.py")]},
        "hostile": {
            "command": sys.executable,
            "args": ["-I", str(SERVERS / "hostile.py"), "change", str(tmp_path / "mark")],
        },
    }
    user = tmp_path / "mcp.json"
    user.write_text(json.dumps({"mcpServers": servers}))
    return {"user": user, "approvals": tmp_path / "approvals.json", "root": tmp_path}


async def play(runtime: Runtime, **options: Any) -> list[dict[str, Any]]:
    turn = Turn(runtime, Conversation("c"), [User("go")], Options(**options)).start()
    return await seen(turn)


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


async def test_a_person_answers_and_is_not_asked_again(
    make_runtime: MakeRuntime, tmp_path: Path, own: dict[str, Any]
) -> None:
    say = calling("plain__echo", '{"text":"hi"}')
    lines = script(tmp_path / "s.jsonl", say, say, {"markup": FINAL})
    asked: list[tuple[str, str]] = []

    async def always(tool: Tool, arguments: str) -> Answer:
        asked.append((tool.name, arguments))
        return Answer("always")

    events = await play(await make_runtime(lines, tools="plain", **own), approver=always)
    first, second, _ = check(events)["output"]
    assert (first["output"], second["output"]) == ("hi", "hi")
    assert asked == [("echo", '{"text":"hi"}')]
    (resolved,) = of(events, "agent.approval.resolved")
    assert (resolved["decision"], resolved["by"]) == ("approved", "person")
    assert resolved["scope"] == "always"
    headless = await play(await make_runtime(lines, tools="plain", **own))
    assert check(headless)["output"][0]["output"] == "hi", "also in a later process"


async def test_the_model_reads_why_a_call_was_refused(
    make_runtime: MakeRuntime, tmp_path: Path, own: dict[str, Any]
) -> None:
    lines = script(tmp_path / "s.jsonl", calling("plain__fail"), {"markup": FINAL})
    runtime = await make_runtime(lines, tools="plain", **own)

    async def no(tool: Tool, arguments: str) -> Answer:
        return Answer("no", "the moon is not ready")

    conversation = Conversation("c")
    turn = Turn(runtime, conversation, [User("go")], Options(approver=no)).start()
    events = await seen(turn)
    call = check(events)["output"][0]
    assert "refused: by the user: the moon is not ready" in call["error"]["message"]
    assert of(events, "agent.approval.resolved")[0]["reason"] == "the moon is not ready"
    told = runtime.format.encoding.decode(conversation.ids())  # type: ignore[attr-defined]
    assert "the moon is not ready" in told


async def test_a_tool_that_changes_after_it_was_allowed_is_asked_about_with_the_change(
    make_runtime: MakeRuntime, tmp_path: Path, own: dict[str, Any]
) -> None:
    lines = script(
        tmp_path / "s.jsonl",
        calling("hostile__ping"),
        calling("hostile__die"),
        calling("hostile__ping"),
        {"markup": FINAL},
    )
    runtime = await make_runtime(lines, tools="hostile", **own)

    async def session(tool: Tool, arguments: str) -> Answer:
        return Answer("session")

    turn = Turn(runtime, Conversation("c"), [User("go")], Options(approver=session)).start()
    events = await seen(turn)
    check(events)
    first, _, again = of(events, "agent.approval.requested")
    assert first["diff"] is None
    assert "-description: First." in again["diff"] and "+description: Second." in again["diff"]


async def test_a_servers_question_is_an_event_and_its_answer_another(
    make_runtime: MakeRuntime, tmp_path: Path, own: dict[str, Any]
) -> None:
    lines = script(tmp_path / "s.jsonl", calling("plain__ask"), {"markup": FINAL})
    runtime = await make_runtime(lines, tools="plain", approve="plain", **own)

    async def ada(question: Elicitation) -> Elicited:
        return Elicited("accept", {"name": "Ada"})

    events = await play(runtime, answerer=ada)
    assert check(events)["output"][0]["output"] == "accept Ada"
    (asked,) = of(events, "agent.elicitation.requested")
    assert (asked["server"], asked["message"]) == ("plain", "Who are you?")
    assert asked["requested_schema"]["required"] == ["name"]
    assert of(events, "agent.elicitation.resolved")[0]["action"] == "accept"

    headless = await play(runtime)
    assert "so it was declined" in check(headless)["output"][0]["output"]
    assert of(headless, "agent.elicitation.resolved")[0]["action"] == "decline"

    async def late(question: Elicitation) -> Elicited:
        turn.stop()
        return await ada(question)

    turn = Turn(runtime, Conversation("c"), [User("go")], Options(answerer=late))
    final = check(await seen(turn.start()))
    assert final["status"] == "cancelled"


async def test_a_server_may_use_the_model_where_that_is_approved(
    make_runtime: MakeRuntime, tmp_path: Path, own: dict[str, Any]
) -> None:
    lines = script(
        tmp_path / "s.jsonl",
        calling("plain__write"),
        {"markup": "<|channel|>final<|message|>An old silent pond.<|return|>"},
        {"markup": FINAL},
    )
    runtime = await make_runtime(lines, tools="plain", **own)
    asked: list[tuple[str, str]] = []

    async def once(tool: Tool, arguments: str) -> Answer:
        asked.append((tool.name, arguments))
        return Answer("once")

    events = await play(runtime, approver=once)
    assert check(events)["output"][0]["output"] == "tiny: An old silent pond."
    assert [name for name, _ in asked] == ["write", "sampling"]
    (stats,) = [event for event in events if event["type"] == "agent.stats"]
    assert stats["aside_input_tokens"] and stats["aside_output_tokens"], "no part of the response"
    assert json.loads(asked[1][1]) == {
        "messages": ["user: Write about frogs."], "system": None, "max_tokens": 20,
    }  # fmt: skip

    runtime = await make_runtime(
        script(tmp_path / "t.jsonl", calling("plain__write"), {"markup": FINAL}),
        tools="plain", approve="plain.write", **own,
    )  # fmt: skip
    refused = check(await play(runtime))["output"][0]
    assert refused["status"] == "failed" and "refused" in json.dumps(refused["error"])


async def test_the_embedded_model_writes_for_a_server(
    make_runtime: MakeRuntime, tmp_path: Path, own: dict[str, Any]
) -> None:
    """Sampling on the real engine, in the middle of a turn: driven by a call made by hand."""
    from agent.turn.approval import Asking
    from agent.turn.output import McpCallWriter
    from tools.mcp.client_requests import Sampling

    runtime = await make_runtime(tools="plain", approve="plain.sampling", **own)
    turn = Turn(runtime, Conversation("c"), [User("hello")], Options())
    asking = Asking(turn, McpCallWriter(turn.output, "plain", "write"))
    wrote = await asking.sample(Sampling("plain", (("user", "What is 12*34?"),), 50))
    assert wrote is not None and wrote.model == "tiny"
    assert wrote.text or wrote.cut

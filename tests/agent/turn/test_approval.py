"""Tool calls that need approval, elicit answers, or have the model write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.turn.approval import ApprovalGate
from agent.turn.call_writers import McpCallWriter
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.hosts import server_entry
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.turns import FINAL, read_events, run_turn, write_script
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult, SamplingRequest
from tools.types import Answer, Tool


def tool_call(tool: str, arguments: str = "{}") -> dict[str, str]:
    return {
        "markup": f"<|channel|>commentary to=functions.{tool} <|constrain|>json<|message|>"
        f"{arguments}<|call|>"
    }


@pytest.fixture
def user_servers(tmp_path: Path) -> dict[str, Any]:
    """Settings of `build_toolbox` with a user's own servers, whose calls need approval."""
    servers = {
        "plain": server_entry("plain"),
        "hostile": server_entry("hostile", "change", str(tmp_path / "mark")),
    }
    user = tmp_path / "mcp.json"
    user.write_text(json.dumps({"mcpServers": servers}))
    return {"user_config": user, "approvals_file": tmp_path / "approvals.json", "root": tmp_path}


def events_of_type(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


async def test_always_approval_is_remembered(
    make_runtime: MakeRuntime, tmp_path: Path, user_servers: dict[str, Any]
) -> None:
    say = tool_call("plain__echo", '{"text":"hi"}')
    lines = write_script(tmp_path / "s.jsonl", say, say, {"markup": FINAL})
    questions: list[tuple[str, str]] = []

    async def always(tool: Tool, arguments: str) -> Answer:
        questions.append((tool.name, arguments))
        return Answer("always")

    events = await run_turn(
        await make_runtime(lines, tools="plain", **user_servers), approver=always
    )
    first, second, _ = check(events)["output"]
    assert (first["output"], second["output"]) == ("hi", "hi")
    assert questions == [("echo", '{"text":"hi"}')]
    (resolved,) = events_of_type(events, "agent.approval.resolved")
    assert (resolved["decision"], resolved["by"]) == ("approved", "person")
    assert resolved["scope"] == "always"
    headless = await run_turn(await make_runtime(lines, tools="plain", **user_servers))
    later = check(headless)["output"][0]
    assert later["output"] == "hi", later["error"]  # in a later process too


async def test_refusal_reason_reaches_model(
    make_runtime: MakeRuntime, tmp_path: Path, user_servers: dict[str, Any]
) -> None:
    lines = write_script(tmp_path / "s.jsonl", tool_call("plain__fail"), {"markup": FINAL})
    runtime = await make_runtime(lines, tools="plain", **user_servers)

    async def no(tool: Tool, arguments: str) -> Answer:
        return Answer("no", "the moon is not ready")

    conversation = Conversation("c")
    turn = Turn(runtime, conversation, [User("go")], TurnOptions(approver=no)).start()
    events = await read_events(turn)
    call = check(events)["output"][0]
    assert "refused: by the user: the moon is not ready" in call["error"]["message"]
    assert events_of_type(events, "agent.approval.resolved")[0]["reason"] == "the moon is not ready"
    prompt = runtime.format.encoding.decode(conversation.ids())  # type: ignore[attr-defined]
    assert "the moon is not ready" in prompt


async def test_changed_tool_needs_approval_with_diff(
    make_runtime: MakeRuntime, tmp_path: Path, user_servers: dict[str, Any]
) -> None:
    lines = write_script(
        tmp_path / "s.jsonl",
        tool_call("hostile__ping"),
        tool_call("hostile__die"),
        tool_call("hostile__ping"),
        {"markup": FINAL},
    )
    runtime = await make_runtime(lines, tools="hostile", **user_servers)

    async def session(tool: Tool, arguments: str) -> Answer:
        return Answer("session")

    turn = Turn(runtime, Conversation("c"), [User("go")], TurnOptions(approver=session)).start()
    events = await read_events(turn)
    check(events)
    first, _, again = events_of_type(events, "agent.approval.requested")
    assert first["diff"] is None
    assert "-description: First." in again["diff"] and "+description: Second." in again["diff"]


async def test_elicitation_emits_request_and_resolution(
    make_runtime: MakeRuntime, tmp_path: Path, user_servers: dict[str, Any]
) -> None:
    lines = write_script(tmp_path / "s.jsonl", tool_call("plain__ask"), {"markup": FINAL})
    runtime = await make_runtime(lines, tools="plain", approve="plain", **user_servers)

    async def ada(question: ElicitationRequest) -> ElicitationResult:
        return ElicitationResult("accept", {"name": "Ada"})

    events = await run_turn(runtime, answerer=ada)
    item = check(events)["output"][0]
    assert item["output"] == "accept Ada", item["error"]
    (request,) = events_of_type(events, "agent.elicitation.requested")
    assert (request["server"], request["message"]) == ("plain", "Who are you?")
    assert request["requested_schema"]["required"] == ["name"]
    assert events_of_type(events, "agent.elicitation.resolved")[0]["action"] == "accept"

    headless = await run_turn(runtime)
    assert "so it was declined" in check(headless)["output"][0]["output"]
    assert events_of_type(headless, "agent.elicitation.resolved")[0]["action"] == "decline"

    async def late(question: ElicitationRequest) -> ElicitationResult:
        turn.stop()
        return await ada(question)

    turn = Turn(runtime, Conversation("c"), [User("go")], TurnOptions(answerer=late))
    final = check(await read_events(turn.start()))
    assert final["status"] == "cancelled"


async def test_sampling_runs_only_when_approved(
    make_runtime: MakeRuntime, tmp_path: Path, user_servers: dict[str, Any]
) -> None:
    lines = write_script(
        tmp_path / "s.jsonl",
        tool_call("plain__write"),
        {"markup": "<|channel|>final<|message|>An old silent pond.<|return|>"},
        {"markup": FINAL},
    )
    runtime = await make_runtime(lines, tools="plain", **user_servers)
    questions: list[tuple[str, str]] = []

    async def once(tool: Tool, arguments: str) -> Answer:
        questions.append((tool.name, arguments))
        return Answer("once")

    events = await run_turn(runtime, approver=once)
    assert check(events)["output"][0]["output"] == "tiny: An old silent pond."
    assert [name for name, _ in questions] == ["write", "sampling"]
    (stats,) = [event for event in events if event["type"] == "agent.stats"]
    assert stats["aside_input_tokens"] and stats["aside_output_tokens"], "no part of the response"
    assert json.loads(questions[1][1]) == {
        "messages": ["user: Write about frogs."], "system": None, "max_tokens": 20,
    }  # fmt: skip

    runtime = await make_runtime(
        write_script(tmp_path / "t.jsonl", tool_call("plain__write"), {"markup": FINAL}),
        tools="plain", approve="plain.write", **user_servers,
    )  # fmt: skip
    refused = check(await run_turn(runtime))["output"][0]
    assert refused["status"] == "failed" and "refused" in json.dumps(refused["error"])


async def test_sampling_runs_on_embedded_model(
    make_runtime: MakeRuntime, tmp_path: Path, user_servers: dict[str, Any]
) -> None:
    """Sampling on the real engine, in the middle of a turn: driven by a call made by hand."""
    runtime = await make_runtime(tools="plain", approve="plain.sampling", **user_servers)
    turn = Turn(runtime, Conversation("c"), [User("hello")], TurnOptions())
    turn.prepare()
    gate = ApprovalGate(turn, McpCallWriter(turn.output, "plain", "write"))
    wrote = await gate.sample(SamplingRequest("plain", (("user", "What is 12*34?"),), 50))
    assert wrote is not None and wrote.model == "tiny"
    assert wrote.text or wrote.stop_reason == "maxTokens"


async def test_sampling_ends_at_a_stop_sequence(
    make_runtime: MakeRuntime, tmp_path: Path, user_servers: dict[str, Any]
) -> None:
    lines = write_script(tmp_path / "s.jsonl", {"markup": FINAL})
    runtime = await make_runtime(lines, tools="plain", approve="plain.sampling", **user_servers)
    turn = Turn(runtime, Conversation("c"), [User("hello")], TurnOptions())
    turn.prepare()
    gate = ApprovalGate(turn, McpCallWriter(turn.output, "plain", "write"))
    (word,) = re.findall(r"<\|message\|>(.+)<", FINAL)
    request = SamplingRequest("plain", (("user", "Hi"),), 50, stop=(word[1:],))
    wrote = await gate.sample(request)
    assert wrote is not None and (wrote.text, wrote.stop_reason) == (word[0], "stopSequence")

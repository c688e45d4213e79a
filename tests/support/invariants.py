"""Checks what must be true of every event stream; used wherever a test reads one.

``check(events)`` takes the parsed JSON events of one turn and returns the final response (a dict).
"""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from agent.events import Event
from agent.turn.response_builder import ResponseBuilder

OUR_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


@cache
def openai_types() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """Those of openai-python of an event and of a response; the import takes a second."""
    from openai.types.responses import Response, ResponseStreamEvent

    return TypeAdapter(ResponseStreamEvent), TypeAdapter(Response)


TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
# The events between an item's added and done: x* is any number of x, x|y is either.
ORDER = {
    "reasoning": [
        "content_part.added",
        "reasoning_text.delta*",
        "reasoning_text.done",
        "content_part.done",
    ],
    "message": [
        "content_part.added",
        "output_text.delta*",
        "output_text.annotation.added*",
        "output_text.done",
        "content_part.done",
    ],
    "function_call": ["function_call_arguments.delta*", "function_call_arguments.done"],
    "mcp_list_tools": [
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed|mcp_list_tools.failed",
    ],
    "mcp_call": [
        "mcp_call.in_progress",
        "mcp_call_arguments.delta*",
        "mcp_call_arguments.done",
        "mcp_call.completed|mcp_call.failed",
    ],
    "mcp_approval_request": [],
    "tool_search_call": [],
    "apply_patch_call": [],
    "shell_call": [
        "shell_call_command.added",
        "shell_call_command.delta*",
        "shell_call_command.done",
    ],
    "compaction": ["compaction.compacting"],
    "tool_search_output": [],
    "custom_tool_call": ["custom_tool_call_input.delta*", "custom_tool_call_input.done"],
    "code_interpreter_call": [
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta*",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting*",
        "code_interpreter_call.completed*",
    ],
    "web_search_call": [
        "web_search_call.in_progress",
        "web_search_call.searching*",
        "web_search_call.completed*",
    ],
}


def check(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Check all invariants of a turn's events; returns the response of the terminal event."""
    for event in events:  # which have a number of their own, and no type in the SDK
        assert event["type"] != "keepalive" or set(event) == {"type", "sequence_number"}
    events = [event for event in events if event["type"] != "keepalive"]
    official = [e for e in events if not e["type"].startswith("agent.")]
    for event in official:
        openai_types()[0].validate_python(event, strict=False)
        assert next(iter(event)) == "type", "type is the first key"
    assert [e["sequence_number"] for e in official] == list(range(len(official)))
    queued = ["response.queued"] if official[0]["response"]["background"] else []
    opening = ["response.created", *queued, "response.in_progress"]
    # One that ended before the model was loaded was never in progress.
    seen = [e["type"] for e in official[: len(opening)] if e["type"] not in TERMINAL]
    assert seen == opening[: len(seen)] and len(seen) >= 2
    assert events[-1]["type"] in TERMINAL, "the terminal event is the last line"
    assert sum(e["type"] in TERMINAL for e in official) == 1
    final: dict[str, Any] = official[-1]["response"]
    openai_types()[1].validate_python(final)
    assert len({e["response"]["id"] for e in official if "response" in e}) == 1
    assert fold(official) == final
    builder = ResponseBuilder()
    for event in events:
        builder.apply(OUR_EVENT.validate_python(event))
    assert [item.model_dump(mode="json") for item in builder.items] == final["output"]
    _check_items(official)
    _check_ending(official[-1]["type"], final)
    return final


def mcp_calls(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of MCP tools in a response."""
    return [item for item in response["output"] if item["type"] == "mcp_call"]


def fold(official: list[dict[str, Any]]) -> dict[str, Any]:
    """Build the response from the stream as a client does; the terminal event completes it."""
    response = json.loads(json.dumps(official[0]["response"]))
    output: list[Any] = []
    for event in official:
        match event["type"]:
            case "response.output_item.added":
                assert event["output_index"] == len(output), "indexes grow by one"
                output.append(None)
            case "response.output_item.done":
                output[event["output_index"]] = event["item"]
    terminal = official[-1]["response"]
    assert None not in output, "every item that was added is done"
    required = ("status", "error", "incomplete_details", "completed_at", "usage")
    optional = ("input_messages", "output_messages", "repairs", "stop_sequence")
    fields = {key: terminal[key] for key in required}
    fields |= {key: terminal[key] for key in optional if key in terminal}
    return {**response, "output": output, **fields}


def _check_items(official: list[dict[str, Any]]) -> None:
    by_index: dict[int, list[dict[str, Any]]] = {}
    for event in official:
        if "output_index" in event:
            by_index.setdefault(event["output_index"], []).append(event)
    ids = set()
    for group in by_index.values():
        added, *between, done = group
        assert added["type"] == "response.output_item.added"
        assert done["type"] == "response.output_item.done"
        item = done["item"]
        assert all(e["item_id"] == item["id"] for e in between), "one id throughout"
        assert added["item"]["id"] == item["id"] and added["item"]["type"] == item["type"]
        if "status" in item and item["type"] != "custom_tool_call":  # only where it is cut off
            assert added["item"]["status"] == "in_progress" != item["status"]
        assert item["id"] not in ids
        ids.add(item["id"])
        if item["type"] == "reasoning":
            between = _check_summary(between, item)
        order = ORDER[item["type"]]
        if item["type"] == "shell_call":  # once for each command
            order = order * len(item["action"].get("commands", ()))
        _check_order([e["type"].removeprefix("response.") for e in between], order)
        _check_texts(between, item)


def _check_summary(between: list[dict[str, Any]], item: dict[str, Any]) -> list[dict[str, Any]]:
    """Check the summary's events, which stand among the others; returns the others."""
    steps = [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta*",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    events = [e for e in between if e["type"].startswith("response.reasoning_summary_")]
    parts = []
    for index in range(len(item["summary"])):
        part = [e for e in events if e["summary_index"] == index]
        assert part == events[: len(part)], "one part after the other"
        events = events[len(part) :]
        _check_order([e["type"].removeprefix("response.") for e in part], steps)
        added, *deltas, done, closed = part
        text = "".join(e["delta"] for e in deltas)
        assert text == done["text"] == closed["part"]["text"] == text.strip() != ""
        assert added["part"]["text"] == ""
        parts.append(closed["part"])
    assert not events and parts == item["summary"]
    return [e for e in between if not e["type"].startswith("response.reasoning_summary_")]


def _check_order(names: list[str], pattern: list[str]) -> None:
    at = 0
    for step in pattern:
        if step.endswith("*"):
            while at < len(names) and names[at] == step[:-1]:
                at += 1
        else:
            assert at < len(names) and names[at] in step.split("|"), (names, pattern)
            at += 1
    assert at == len(names), (names, pattern)


def _check_texts(between: list[dict[str, Any]], item: dict[str, Any]) -> None:
    joined = "".join(e["delta"] for e in between if e["type"].endswith(".delta"))
    assert all(e["delta"] for e in between if e["type"].endswith(".delta")), "no empty delta"
    match item["type"]:
        case "reasoning" | "message":
            done = next(e for e in between if e["type"].endswith("_text.done"))
            part = item["content"][0]
            assert joined == done["text"] == part["text"]
            _check_citations(between, part)
        case "function_call" | "mcp_call":
            done = next(e for e in between if e["type"].endswith("arguments.done"))
            assert done["arguments"] == item["arguments"]
            arguments = json.loads(item["arguments"])
            assert isinstance(arguments, dict)
            if joined != item["arguments"]:  # repaired or cut off: the item differs from the deltas
                try:
                    streamed = json.loads(joined)
                except ValueError:
                    streamed = None
                assert not isinstance(streamed, dict), "valid JSON stays byte-exact"
        case "shell_call":
            done = [e["command"] for e in between if e["type"].endswith("command.done")]
            assert done == item["action"].get("commands", []) and joined == "".join(done)
        case "custom_tool_call":
            done = next(e for e in between if e["type"].endswith("input.done"))
            assert joined == done["input"] == item["input"]
        case "code_interpreter_call":
            done = next(e for e in between if e["type"].endswith("code.done"))
            assert joined == done["code"] == item["code"]
    if item["type"] in ("code_interpreter_call", "web_search_call"):
        completed = [e for e in between if e["type"].endswith("call.completed")]
        assert len(completed) == (item["status"] == "completed")
        running = [e for e in between if e["type"].endswith(("interpreting", "searching"))]
        assert len(completed) <= len(running) <= 1, "only a call that runs is in progress"
    if item["type"] == "mcp_call":
        ran = item["status"] == "completed"
        assert (item["output"] is not None) == ran and (item["error"] is None) == ran


def _check_citations(between: list[dict[str, Any]], part: dict[str, Any]) -> None:
    added = [e for e in between if e["type"].endswith("annotation.added")]
    assert [e["annotation_index"] for e in added] == list(range(len(added)))
    assert [e["annotation"] for e in added] == part.get("annotations", [])
    text = part["text"]
    for citation in part.get("annotations", []):
        start, end = citation["start_index"], citation["end_index"]
        assert text[start] == "【" and text[end - 1] == "】"


def _check_ending(terminal: str, final: dict[str, Any]) -> None:
    expected = {
        "response.completed": {"completed"},
        "response.incomplete": {"incomplete", "cancelled"},
        "response.failed": {"failed"},
    }[terminal]
    assert final["status"] in expected
    assert (final["error"] is not None) == (final["status"] == "failed")
    assert (final["incomplete_details"] is not None) == (final["status"] == "incomplete")
    usage = final["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]
    if final["status"] == "completed":
        # But for a client's call that the model cut off, and then wrote again.
        calls = ("function_call", "custom_tool_call", "shell_call", "apply_patch_call")
        others = (item for item in final["output"] if item["type"] not in calls)
        assert all(item.get("status") != "incomplete" for item in others)

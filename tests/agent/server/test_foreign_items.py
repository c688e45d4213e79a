"""Histories that began at another server: what its items say is read as text."""

import json
from typing import Any

import pytest

from agent.util.images import CANNOT_SEE
from tests.support.endpoint import Serve, api_error, engine_markup
from tests.support.scripts import HELLO, WEATHER

USER = {"role": "user", "content": "Go on."}
COMMAND = {"type": "exec", "command": ["ls"], "env": {}}
PICTURE = f"[There was an image here; {CANNOT_SEE}.]"
PAIRS: dict[str, tuple[list[dict[str, Any]], str, str, str]] = {
    "shell": (
        [
            {"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}},
            {
                "type": "shell_call_output",
                "call_id": "a",
                "output": [
                    {"stdout": "x", "stderr": "y", "outcome": {"type": "exit", "exit_code": 2}},
                    {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
                ],
            },
        ],
        "shell",
        '{"commands": ["ls"]}',
        "x\ny\nExit code: 2\nIt ran out of time.",
    ),
    "local shell, as the reference has it": (
        [
            {"type": "local_shell_call", "id": "i", "call_id": "a", "action": COMMAND},
            {"type": "local_shell_call_output", "id": "i", "output": "x"},
        ],
        "local_shell",
        json.dumps(COMMAND),
        "x",
    ),
    "local shell, as Codex sends it": (
        [
            {"type": "local_shell_call", "id": "i", "call_id": "a", "action": COMMAND},
            {"type": "function_call_output", "call_id": "a", "output": "x"},
        ],
        "local_shell",
        json.dumps(COMMAND),
        "x",
    ),
    "patch": (
        [
            {"type": "apply_patch_call", "call_id": "a", "operation": {"path": "f"}},
            {"type": "apply_patch_call_output", "call_id": "a", "status": "failed", "output": "x"},
        ],
        "apply_patch",
        '{"path": "f"}',
        "failed\nx",
    ),
    "computer": (
        [
            {"type": "computer_call", "call_id": "a", "id": "i", "actions": [{"type": "wait"}]},
            {"type": "computer_call_output", "call_id": "a", "output": {"image_url": "data:"}},
        ],
        "computer",
        '[{"type": "wait"}]',
        PICTURE,
    ),
    "search of tools that the server ran": (
        [
            {"type": "tool_search_call", "id": "i", "call_id": None, "arguments": {"q": "x"}},
            {"type": "tool_search_output", "id": "j", "call_id": None, "tools": []},
        ],
        "tool_search",
        '{"q": "x"}',
        "Found: nothing.",
    ),
    "search of files": (
        [
            {
                "type": "file_search_call",
                "id": "i",
                "queries": ["q"],
                "results": [{"filename": "f", "text": "x"}, {"filename": "g", "text": "y"}],
            }
        ],
        "file_search",
        '{"queries": ["q"]}',
        "f: x\n\ng: y",
    ),
    "picture": (
        [
            {
                "type": "image_generation_call",
                "id": "i",
                "result": "AAAA",
                "revised_prompt": "A fox.",
            }
        ],
        "image_generation",
        '{"prompt": "A fox."}',
        PICTURE,
    ),
}


@pytest.mark.parametrize("case", PAIRS)
async def test_foreign_call_and_its_output_are_read(serve: Serve, case: str) -> None:
    served = await serve(HELLO)
    items, tool, arguments, result = PAIRS[case]
    answer = await served.post({"input": [{"role": "user", "content": "x"}, *items, USER]})
    assert answer.status_code == 200, answer.text
    markup = engine_markup(served)
    assert (
        f"<|start|>assistant<|channel|>commentary to=functions.{tool} <|constrain|>json"
        f"<|message|>{arguments}<|call|>"
        f"<|start|>functions.{tool} to=assistant<|channel|>commentary<|message|>{result}<|end|>"
    ) in markup


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("name", "declared_only"),
    [
        ("functions.get_weather", False),
        ("functions.get_weather<|channel|>analysis", False),
        ("<|channel|>get_weather", False),
        ("get_weather..commentary", True),
        ("get_weather.commentary", True),
    ],
)
async def test_rest_of_a_header_is_no_part_of_a_name(
    serve: Serve, name: str, declared_only: bool, declared: bool
) -> None:
    served = await serve(HELLO)
    call = {"type": "function_call", "call_id": "a", "name": name, "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "Cold."}
    tools = [WEATHER] if declared else []
    answer = await served.post({"input": [call, output, USER], "tools": tools})
    assert answer.status_code == 200, answer.text
    tool = name if declared_only and not declared else "get_weather"
    markup = engine_markup(served)
    assert f"commentary to=functions.{tool} <|constrain|>json<|message|>" in markup
    assert f"<|start|>functions.{tool} to=assistant" in markup


async def test_program_is_read_as_code(serve: Serve) -> None:
    served = await serve(HELLO)
    program = {"type": "program", "id": "i", "call_id": "a", "code": "f()", "fingerprint": "x"}
    output = {"type": "program_output", "id": "j", "call_id": "a", "result": "3"}
    answer = await served.post({"input": [program, output, USER]})
    assert answer.status_code == 200, answer.text
    assert "<|message|>f()<|call|>" in engine_markup(served)


async def test_foreign_calls_without_output_and_outputs_without_call(serve: Serve) -> None:
    served = await serve(HELLO)
    call = {"type": "shell_call", "call_id": "a", "action": {}}
    answer = await served.post({"input": [call, USER]})
    assert answer.status_code == 200 and "the call was not run" in engine_markup(served)
    output = {"type": "shell_call_output", "call_id": "b", "output": []}
    answer = await served.post({"input": [call, output, USER]})
    assert api_error(answer, 400)["param"] == "input[1].call_id"


async def test_foreign_items_of_any_shape_are_no_fault(serve: Serve) -> None:
    served = await serve(HELLO)
    for value in (None, 1, "x", [None, 1, {"stdout": 1, "outcome": 3}], {"a": [{}]}):
        items = [
            {
                "type": kind,
                "call_id": "a",
                **dict.fromkeys(("action", "operation", "output"), value),
            }
            | dict.fromkeys(("results", "tools", "arguments", "error", "queries", "status"), value)
            for pair in PAIRS.values()
            for kind in (item["type"] for item in pair[0])
            if kind != "function_call_output"
        ]
        answer = await served.post({"input": [*items, USER]})
        assert answer.status_code in (200, 400), (value, answer.text)
        assert answer.status_code == 200 or "status" not in answer.json()["error"]["param"]


async def test_foreign_items_of_a_conversation_are_read_and_listed(serve: Serve) -> None:
    served = await serve(HELLO)
    url = f"{served.url}/conversations"
    items = PAIRS["shell"][0]
    name = (await served.post({"items": items}, url=url)).json()["id"]
    answer = await served.post({"input": [USER], "conversation": name})
    assert answer.status_code == 200 and "Exit code: 2" in engine_markup(served)
    listed = (await served.get(f"/v1/conversations/{name}/items?order=asc")).json()["data"]
    assert listed[1]["output"] == items[1]["output"]

"""Clients of Anthropic's API: its libraries, and Claude Code with a session of twenty steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.clients.claude_code import SETTINGS
from tests.clients.conftest import Run, Scripted
from tests.clients.weather import OSLO
from tests.support.scripts import call, final, thought

TOOLS: list[Any] = [
    {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]


def client_of(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=url.removesuffix("/v1"),
        api_key="none",
        max_retries=0,
        _strict_response_validation=True,
    )


def test_anthropic_python_tool_loop(scripted: Scripted) -> None:
    url = scripted(
        thought("I look it up.") + call("get_weather", city="Oslo"),
        thought("It is cold.") + final(f"In Oslo: {OSLO}"),
    )
    client, messages = client_of(url), list[Any]([{"role": "user", "content": "Oslo?"}])
    options: dict[str, Any] = {"model": "default", "max_tokens": 1000, "tools": TOOLS}
    with client.messages.stream(messages=messages, **options) as stream:
        kinds = {event.type for event in stream}
        first = stream.get_final_message()
    assert {"thinking", "signature", "input_json", "message_stop"} <= kinds
    used = first.content[-1]
    assert first.stop_reason == "tool_use" and used.type == "tool_use"
    assert used.input == {"city": "Oslo"}
    result = {"type": "tool_result", "tool_use_id": used.id, "content": OSLO}
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    counted = client.messages.count_tokens(model="default", messages=messages, tools=TOOLS)
    second = client.messages.create(messages=messages, **options)
    assert second.stop_reason == "end_turn" and OSLO in getattr(second.content[-1], "text", "")
    cached = second.usage.cache_read_input_tokens or 0
    assert cached == first.usage.input_tokens + first.usage.output_tokens
    assert counted.input_tokens == cached + second.usage.input_tokens


def test_anthropic_python_errors_and_models(scripted: Scripted) -> None:
    client = client_of(scripted(final("Hello.")))
    with pytest.raises(anthropic.NotFoundError, match="ANTHROPIC_MODEL") as refused:
        client.messages.create(
            model="claude-opus-5", max_tokens=10, messages=[{"role": "user", "content": "x"}]
        )
    assert refused.value.request_id
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("default").id == "tiny"


def test_claude_code_twenty_steps(scripted: Scripted, node: Path, tmp_path: Path, run: Run) -> None:
    if not (node / "node_modules" / "@anthropic-ai" / "claude-code").is_dir():
        pytest.skip("Claude Code is not installed: make test-clients")
    shop, test = tmp_path / "shop.py", tmp_path / "test_shop.py"
    shop.write_text("def total(price, count):\n    return price - count\n")
    test.write_text('from shop import total\n\nassert total(2, 3) == 6\nprint("passed")\n')
    check = {"command": f"python3 {test}", "description": "Run the test"}
    steps = [
        ("Read", {"file_path": str(shop)}),
        ("Bash", check),
        (
            "Edit",
            {"file_path": str(shop), "old_string": "price - count", "new_string": "price * count"},
        ),
        ("Bash", check),
        *(
            ("Bash", {"command": f"echo {n} >> steps.txt", "description": "Note"})
            for n in range(15)
        ),
    ]
    replies = [thought("I go on.") + call(name, **arguments) for name, arguments in steps]
    url = scripted(*replies, final("The test passes."))
    run("node", node / "node_modules" / "@anthropic-ai" / "claude-code" / "install.cjs")
    out = run(
        "claude",
        *("-p", "Fix total().", "--dangerously-skip-permissions"),
        *("--output-format", "stream-json", "--verbose"),
        ANTHROPIC_BASE_URL=url.removesuffix("/v1"),
        **SETTINGS,
    )
    events = [json.loads(line) for line in out.splitlines()]
    result = events[-1]
    assert (result["subtype"], result["is_error"]) == ("success", False), out
    assert result["result"] == "The test passes." and result["num_turns"] == 20
    assert "price * count" in shop.read_text()
    assert (tmp_path / "steps.txt").read_text().split() == [str(n) for n in range(15)]
    usage = result["usage"]
    assert usage["cache_read_input_tokens"] > 15 * usage["input_tokens"], "each step reads it again"


async def test_claude_agent_sdk(scripted: Scripted, tmp_path: Path) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    url = scripted(thought("They say hello.") + final("Hello there!"))
    env = {"ANTHROPIC_BASE_URL": url.removesuffix("/v1"), "HOME": str(tmp_path), **SETTINGS}
    options = sdk.ClaudeAgentOptions(cwd=str(tmp_path), env=env, max_turns=1)
    seen = [message async for message in sdk.query(prompt="Hi", options=options)]
    assert not seen[-1].is_error and seen[-1].result == "Hello there!"

"""openai-agents: its loop calls functions, the server calls its own tools, over several turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    CodeInterpreterTool,
    HostedMCPTool,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    Runner,
    ShellTool,
    SQLiteSession,
    apply_diff,
    function_tool,
)
from openai.types.shared import Reasoning

from tests.clients.openai_requests import MULTIPLY
from tests.clients.weather import AGAIN, OSLO, QUESTION, ROME, get_weather
from tests.support.scripts import call, final

TOOLS: dict[str, Any] = {
    "mcp": HostedMCPTool(
        tool_config={
            "type": "mcp",
            "server_label": "code_interpreter",
            "server_url": "IGNORED",
            "require_approval": "never",
        }
    ),
    "code_interpreter": CodeInterpreterTool(
        tool_config={"type": "code_interpreter", "container": {"type": "auto"}}
    ),
}


@pytest.fixture
def config(url: str) -> RunConfig:
    provider = OpenAIProvider(base_url=url, api_key="none", use_responses=True)
    return RunConfig(model="default", model_provider=provider, tracing_disabled=True)


def kinds(result: Any) -> list[str]:
    return [item.type for item in result.new_items]


async def test_agents_sdk_functions_several_turns(config: RunConfig) -> None:
    agent = Agent(name="Assistant", instructions="Be short.", tools=[function_tool(get_weather)])
    session = SQLiteSession("talk")
    result = await Runner.run(agent, QUESTION, session=session, run_config=config)
    assert OSLO in result.final_output
    streamed = Runner.run_streamed(agent, AGAIN, session=session, run_config=config)
    text = ""
    async for event in streamed.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert ROME in text and streamed.final_output == text
    assert "tool_call_output_item" in kinds(streamed)


@pytest.mark.parametrize("tool", TOOLS)
async def test_agents_sdk_server_tools_several_turns(config: RunConfig, tool: str) -> None:
    agent = Agent(
        name="Assistant", tools=[TOOLS[tool]], model_settings=ModelSettings(temperature=0)
    )
    first = await Runner.run(agent, MULTIPLY, run_config=config)
    assert "56088" in first.final_output and "tool_call_item" in kinds(first)
    # Its own items go back to the server, and what the server keeps is gone on from.
    items = [*first.to_input_list(), {"role": "user", "content": "And now times 3?"}]
    second = Runner.run_streamed(agent, items, run_config=config)
    async for _ in second.stream_events():
        pass
    assert "168264" in second.final_output and "tool_call_item" in kinds(second)
    third = await Runner.run(
        agent, "And now times 3?", previous_response_id=second.last_response_id, run_config=config
    )
    assert "504792" in third.final_output


async def test_agents_sdk_reasoning_summaries_and_encrypted_reasoning(config: RunConfig) -> None:
    settings = ModelSettings(
        store=False,
        reasoning=Reasoning(effort="low", summary="detailed"),
        response_include=["reasoning.encrypted_content"],
    )
    agent = Agent(name="Assistant", tools=[function_tool(get_weather)], model_settings=settings)
    streamed = Runner.run_streamed(agent, QUESTION, run_config=config)
    text = ""
    async for event in streamed.stream_events():
        data = event.data if event.type == "raw_response_event" else None
        if data is not None and data.type == "response.reasoning_summary_text.delta":
            text += data.delta
    items = [item.raw_item for item in streamed.new_items if item.type == "reasoning_item"]
    assert items and "".join(part.text for item in items for part in item.summary) == text != ""
    assert all(item.encrypted_content for item in items)
    # Its function's result went back with the token, and so does a further turn.
    assert OSLO in streamed.final_output
    again = [*streamed.to_input_list(), {"role": "user", "content": AGAIN}]
    assert ROME in (await Runner.run(agent, again, run_config=config)).final_output


class Editor:
    """Changes the files of a folder, by the library's own reading of the diffs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create_file(self, operation: Any) -> str:
        return self._write(operation, apply_diff("", operation.diff, "create"))

    def update_file(self, operation: Any) -> str:
        before = (self.folder / operation.path).read_text()
        return self._write(operation, apply_diff(before, operation.diff))

    def delete_file(self, operation: Any) -> str:
        (self.folder / operation.path).unlink()
        return "deleted"

    def _write(self, operation: Any, text: str) -> str:
        (self.folder / operation.path).write_text(text)
        return "written"


async def test_agents_sdk_shell_and_patches_of_the_client(
    scripted: Callable[..., str], tmp_path: Path
) -> None:
    ran: list[str] = []

    def execute(request: Any) -> str:
        ran.extend(request.data.action.commands)
        return "a.txt"

    create = {"type": "create_file", "path": "a.txt", "diff": "+one\n+two\n"}
    update = {"type": "update_file", "path": "a.txt", "diff": "@@\n one\n-two\n+three\n"}
    url = scripted(
        call("shell", commands=["ls", "pwd"]),
        call("apply_patch", **create),
        call("apply_patch", **update),
        final("Done."),
    )
    tools = [ShellTool(executor=execute), ApplyPatchTool(editor=Editor(tmp_path))]
    provider = OpenAIProvider(base_url=url, api_key="none", use_responses=True)
    config = RunConfig(model="default", model_provider=provider, tracing_disabled=True)
    agent = Agent(name="Coder", tools=tools)
    for streams in (False, True):
        result: Any
        if streams:
            result = Runner.run_streamed(agent, "Edit.", run_config=config)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, "Edit.", run_config=config)
        assert result.final_output == "Done."
        assert (tmp_path / "a.txt").read_text() in ("one\nthree", "one\nthree\n")
        assert kinds(result).count("tool_call_output_item") == 3
    assert ran == ["ls", "pwd"] * 2

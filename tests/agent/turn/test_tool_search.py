"""Many tools: the prompt has a search in their place, and what it finds can be called."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool
from agent.turn.loop import Turn
from agent.turn.options import APP, TurnOptions
from agent.turn.tool_search import find_search, prompt_tools
from tests.support.hosts import server_option
from tests.support.invariants import check
from tests.support.mcp_servers.many import definition
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import call, final
from tests.support.turns import read_events, write_script
from tests.tools.test_tool_index import known_tools
from tools.factory import ToolboxOptions, build_toolbox
from tools.mcp.host import Host
from tools.types import Tool

SCHEMA = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": "Where they are."}},
    "required": ["place"],
}


def many_tools(servers: int, count: int) -> list[Tool]:
    return [
        Tool(f"server-{n % servers}", *definition(n), SCHEMA, f"server_{n % servers}__{n}")
        for n in range(count)
    ]


def test_header_of_400_tools_is_short(form: HarmonyFormat, tmp_path: Path) -> None:
    toolbox = build_toolbox(ToolboxOptions(tools="all", root=tmp_path))
    tools = [*toolbox.host.tools(), *many_tools(35, 400)]
    options = TurnOptions(tool_search="auto", tools=tuple(tools))
    assert options.total_tool_tokens(form, tools) > 20_000
    declared = prompt_tools(options, form, toolbox.host, 8192)
    assert len(form.prompt_header(options.prompt_header(declared))) <= 900
    assert [t.server for t in declared] == [
        "code_interpreter",
        "files",
        "files",
        "files",
        "tool_search",
    ]


@pytest.mark.parametrize(
    ("mode", "context", "searched"),
    [("auto", 8192, False), ("auto", 1024, True), ("always", 8192, True), ("never", 1024, False)],
)
def test_search_where_tools_take_a_tenth_of_the_context(
    form: HarmonyFormat, mode: Literal["never", "auto", "always"], context: int, searched: bool
) -> None:
    tools = many_tools(1, 3)
    options = TurnOptions(tool_search=mode, tools=tuple(tools))
    assert 110 < options.total_tool_tokens(form, tools) < 800
    search = find_search(options, form, tools, Host(), context)
    assert (search is not None) == searched
    function = FunctionTool("tool_search", "The client's.", {})
    own = TurnOptions(tool_search=mode, tools=tuple(tools), functions=(function,))
    assert find_search(own, form, tools, Host(), context) is None, "a client has its own search"


def test_builtin_tools_are_never_searched(form: HarmonyFormat, tmp_path: Path) -> None:
    host = build_toolbox(ToolboxOptions(tools="all,shell", root=tmp_path)).host
    options = TurnOptions(tool_search="always")
    assert list(prompt_tools(options, form, host, 256)) == list(host.tools())


async def test_result_declares_tools_as_the_prompt_does(form: HarmonyFormat) -> None:
    tools = [
        Tool(t.server, t.name, t.description, dict(t.parameters), f"{t.server}__{t.name}")
        for t in known_tools()
    ]
    options = TurnOptions(tool_search="always", tools=tuple(tools))
    search = find_search(options, form, tools, Host(), 8192)
    assert search is not None
    result, _ = await search.run('{"query": "weather forecast"}')
    assert result.text.startswith(
        "# Tools\n\n## functions\n\nnamespace functions {\n\n// Get weather"
    )
    assert result.text.count("=> any;") == 2, "no other has these words"
    forecast = next(tool for tool in tools if tool.name == "get_forecast")
    declared = form.encoding.decode(form.prompt_header(options.prompt_header([forecast])))
    declaration = declared[declared.index("// Get weather") : declared.index("} // namespace")]
    assert declaration in result.text
    nothing, _ = await search.run('{"query": "qqqq"}')
    assert "github (27)" in nothing.text and "=> any" not in nothing.text


async def run(
    runtime: Any, conversation: Conversation, text: str, **options: Any
) -> list[dict[str, Any]]:
    turn = Turn(runtime, conversation, [User(text)], TurnOptions(**options), interface=APP).start()
    events = await read_events(turn)
    check(events)
    return events


async def test_tool_of_a_result_is_called_and_the_prefix_stays(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    text_sent = "Cities."
    matches = call("many__count_dragons2", place="Rome")
    script = write_script(
        tmp_path / "s.jsonl",
        {"markup": call("tool_search", query="count dragons2")},
        {"markup": matches},
        {"markup": call("tool_search", query="count apples")},
        {"markup": final("7")},
        {"markup": matches},
        {"markup": final("7")},
    )
    runtime = await make_runtime(
        script, tools="many", mcp=[server_option("many", "60", text_sent)], context=16384
    )
    await runtime.host.wait_started()
    talk = Conversation("c")
    events = await run(runtime, talk, "How many?", tool_search="auto")
    calls = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    search, dragons, again, _ = calls
    assert (search["server_label"], search["name"]) == ("tool_search", "search")
    assert "type many__count_dragons2 = (_: {" in search["output"] and text_sent in search["output"]
    assert text_sent not in again["output"], "once in a turn"
    assert (dragons["server_label"], dragons["output"]) == ("many", "count_dragons2 at Rome: 7")
    questions = [e for e in events if e["type"] == "agent.approval.requested"]
    assert not questions, "it was named to run"
    (context,) = [e for e in events if e["type"] == "agent.context"]
    tools = {p["name"]: p["tokens"] for p in context["parts"] if p["kind"] == "tools"}
    assert tools.keys() == {"tool_search", ""} and sum(tools.values()) < 200
    header = list(talk.header_ids)
    await run(runtime, talk, "And now?", tool_search="auto")
    assert talk.header_ids == header
    assert "many__count" not in json.dumps(str(talk.header))


async def test_tool_of_a_result_asks_like_any_other(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    """A search gives no right: neither by itself nor by what descriptions say."""
    script = write_script(
        tmp_path / "s.jsonl",
        {"markup": call("tool_search", query="count")},
        {"markup": call("many__count_apples", place="Rome")},
        {"markup": call("many__count_apples", place="Rome")},
        {"markup": final("no")},
    )
    config = tmp_path / "mcp.json"
    command, *args = server_option("many", "60").removeprefix("many=").split()
    config.write_text(json.dumps({"mcpServers": {"many": {"command": command, "args": args}}}))
    runtime = await make_runtime(script, tools="many", user_config=config, context=16384)
    await runtime.host.wait_started()
    events = await run(runtime, Conversation("c"), "Go", tool_search="always")
    questions = [e for e in events if e["type"] == "agent.approval.requested"]
    assert [(e["server"], e["tool"]) for e in questions] == [("many", "count_apples")] * 2
    refused = [e["item"] for e in events if e["type"] == "response.output_item.done"][1]
    assert "no person to approve it" in json.dumps(refused["error"])

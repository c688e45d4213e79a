"""This program as an MCP server, asked by the SDK's client, in both eras of the protocol."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import mcp.types as T
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from agent.runtime.runtime import Runtime
from agent.server.mcp.server import AgentMcpServer
from agent.store.conversations import Store
from agent.turn.options import TurnOptions
from tests.support import forks
from tests.support.hosts import SERVERS_FOLDER, server_option
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import DONE, LONG, call, final, hold, python
from tests.support.turns import write_script
from tests.support.waiting import HANG_SECONDS, wait_until
from tools.config.servers import ServerConfig

ERAS = ("auto", "legacy")
AnswerQuestion = Callable[[T.ElicitRequestParams], T.ElicitResult]


@asynccontextmanager
async def connected(
    runtime: Runtime,
    tmp_path: Path,
    *,
    mode: Any = "auto",
    answer: AnswerQuestion | None = None,
    on_message: Callable[[object], None] = lambda message: None,
    **settings: Any,
) -> AsyncIterator[Client]:
    """A client of the server, in this process; ``answer``: what the person says to questions;
    ``on_message`` is called with what else the server sends."""

    async def elicit(context: Any, params: T.ElicitRequestParams) -> T.ElicitResult:
        assert answer is not None
        return answer(params)

    store = Store(tmp_path / "store.db")
    settings = {"all_conversations": False, **settings}
    server = AgentMcpServer(runtime, TurnOptions(), store, **settings)

    async def receive(message: object) -> None:
        on_message(message)

    callback = None if answer is None else elicit
    async with Client(
        server, mode=mode, elicitation_callback=callback, message_handler=receive
    ) as client:
        yield client
    store.close()


async def ask(client: Client, prompt: str = "go", **arguments: Any) -> dict[str, Any]:
    """The structured content of an answer."""
    result = await client.call_tool("ask", {"prompt": prompt, **arguments})
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@pytest.mark.parametrize("mode", ERAS)
async def test_ask_answers_with_progress_and_resources(
    make_runtime: MakeRuntime, tmp_path: Path, mode: str
) -> None:
    lines = ({"markup": python("6*7")}, {"markup": DONE})
    runtime = await make_runtime(write_script(tmp_path / "script", *lines), tools="python")
    steps: list[str | None] = []

    async def progress(at: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    async with connected(runtime, tmp_path, mode=mode) as client:
        assert (client.protocol_version > "2026") == (mode == "auto")
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["ask", "python"]
        assert tools[0].annotations is not None and tools[0].annotations.read_only_hint
        result = await client.call_tool("ask", {"prompt": "go"}, progress_callback=progress)
        assert result.structured_content is not None
        name = result.structured_content["conversation"]
        assert result.structured_content["answer"] == "It is **done**."
        assert "calling code_interpreter.python" in steps and "answering" in steps
        again = await ask(client, "and now?", conversation=name, effort="low", tools=[])
        assert again["conversation"] == name
        (resource,) = (await client.list_resources()).resources
        assert (resource.title, resource.mime_type) == ("go", "text/markdown")
        (contents,) = (await client.read_resource(str(resource.uri))).contents
        assert isinstance(contents, T.TextResourceContents)
        assert "It is **done**." in contents.text and "and now?" in contents.text
        ran = await client.call_tool("python", {"code": "6*7"})
        assert [block.text for block in ran.content if isinstance(block, T.TextContent)] == ["42"]


async def test_ask_wrong_arguments_are_sentences(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    runtime = await make_runtime(write_script(tmp_path / "script", {"markup": DONE}))
    async with connected(runtime, tmp_path) as client:
        for arguments, error in (
            ({}, "'prompt' is a required property"),
            ({"prompt": ""}, "should be non-empty"),
            ({"prompt": "x", "effort": "max"}, "is not one of"),
            ({"prompt": "x", "tools": ["shell"]}, "There is no tool 'shell'; known: none."),
            ({"prompt": "x", "conversation": "conv_1"}, "There is no conversation 'conv_1' here."),
        ):
            result = await client.call_tool("ask", arguments)
            (content,) = result.content
            assert result.is_error and isinstance(content, T.TextContent) and error in content.text
        with pytest.raises(MCPError, match="Unknown tool: python"):
            await client.call_tool("python", {"code": "1"})
        with pytest.raises(MCPError, match="There is no resource"):
            await client.read_resource("agent://conversations/conv_1")


@pytest.mark.parametrize("mode", ERAS)
async def test_ask_passes_questions_on(
    make_runtime: MakeRuntime, tmp_path: Path, mode: str
) -> None:
    lines = [{"markup": call("booking__book")}, {"markup": DONE}]
    runtime = await make_runtime(
        write_script(tmp_path / "script", *lines), tools="booking", mcp=[server_option("booking")]
    )
    questions: list[T.ElicitRequestParams] = []

    def answer(params: T.ElicitRequestParams) -> T.ElicitResult:
        questions.append(params)
        return T.ElicitResult(action="accept", content={"seats": 3})

    async with connected(runtime, tmp_path, mode=mode, answer=answer) as client:
        name = (await ask(client))["conversation"]
        (question,) = questions
        assert isinstance(question, T.ElicitRequestFormParams)
        assert question.message == "booking: Which table shall it be?"
        assert "seats" in question.requested_schema["properties"]
        (contents,) = (await client.read_resource(f"agent://conversations/{name}")).contents
        assert isinstance(contents, T.TextResourceContents) and '"seats":3' in contents.text


@pytest.mark.parametrize(("mode", "allowed"), [("auto", True), ("legacy", True), ("auto", False)])
async def test_ask_calls_need_client_approval(
    make_runtime: MakeRuntime, tmp_path: Path, mode: str, allowed: bool
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    lines = [{"markup": call("files__write", path="a.txt", content="hi")}, {"markup": DONE}]
    script = write_script(tmp_path / "script", *lines)
    runtime = await make_runtime(script, tools="files", root=root)
    questions: list[str] = []

    def answer(params: T.ElicitRequestParams) -> T.ElicitResult:
        questions.append(params.message)
        return T.ElicitResult(action="accept", content={"allow": allowed})

    async with connected(runtime, tmp_path, mode=mode, answer=answer) as client:
        annotations = (await client.list_tools()).tools[0].annotations
        assert annotations is not None and annotations.read_only_hint is False
        await ask(client)
        assert len(questions) == 1 and "Allow write?" in questions[0] and "a.txt" in questions[0]
        assert (root / "a.txt").exists() == allowed
    async with connected(runtime, tmp_path, mode=mode) as silent:  # without elicitation: denied
        (root / "a.txt").unlink(missing_ok=True)
        await ask(silent)
        assert not (root / "a.txt").exists()


LATE = "import runpy, sys; open(sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"
"""A server that starts once something opens the pipe, for writing."""


@pytest.fixture
def late_server(tmp_path: Path) -> tuple[Path, ServerConfig]:
    """The pipe for which a server waits, and the server, of which one tool that reads is offered."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = ("-I", "-c", LATE, str(pipe), str(SERVERS_FOLDER / "plain.py"))
    config = ServerConfig("late", command=sys.executable, args=arguments, enabled_tools=("echo",))
    return pipe, config


def hints(tools: Sequence[T.Tool]) -> tuple[bool | None, bool | None, bool]:
    """What a list of tools says of ``ask``: that it only reads, reaches out, and has the server."""
    ask = tools[0]
    assert ask.annotations is not None
    return (
        ask.annotations.read_only_hint,
        ask.annotations.open_world_hint,
        "late" in ask.input_schema["properties"]["tools"]["description"],
    )


@pytest.mark.long
@pytest.mark.parametrize("mode", ERAS)
async def test_tools_of_starting_server_count_as_writing_until_announced(
    make_runtime: MakeRuntime, tmp_path: Path, mode: str, late_server: tuple[Path, ServerConfig]
) -> None:
    pipe, config = late_server
    runtime = await make_runtime(write_script(tmp_path / "script", {"markup": DONE}))
    runtime.host.add_servers([config])
    announced = asyncio.Event()

    def on_message(message: object) -> None:
        if isinstance(message, T.ToolListChangedNotification):
            announced.set()

    async with (
        connected(runtime, tmp_path, mode=mode, on_message=on_message, startup_seconds=0) as client,
        AsyncExitStack() as stack,
    ):
        capabilities = client.server_capabilities
        assert capabilities.tools is not None and capabilities.tools.list_changed
        assert capabilities.resources is not None and not capabilities.resources.list_changed
        if mode == "auto":
            changes = await stack.enter_async_context(client.listen(tools_list_changed=True))
        assert hints((await client.list_tools()).tools) == (False, True, False)
        await asyncio.to_thread(pipe.write_text, "")
        if mode == "auto":
            await asyncio.wait_for(anext(aiter(changes)), HANG_SECONDS)
        else:
            await asyncio.wait_for(announced.wait(), HANG_SECONDS)
        assert hints((await client.list_tools()).tools) == (True, True, True)


@pytest.mark.long
async def test_tools_wait_for_starting_server(
    make_runtime: MakeRuntime, tmp_path: Path, late_server: tuple[Path, ServerConfig]
) -> None:
    pipe, config = late_server
    runtime = await make_runtime(write_script(tmp_path / "script", {"markup": DONE}))
    runtime.host.add_servers([config])
    async with connected(runtime, tmp_path, startup_seconds=HANG_SECONDS) as client:
        listing = asyncio.create_task(client.list_tools())
        await asyncio.to_thread(pipe.write_text, "")
        assert hints((await listing).tools) == (True, True, True)


async def test_ask_cancelled_stops_turn(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    runtime = await make_runtime(write_script(tmp_path / "script", LONG))
    answering = asyncio.Event()

    async def progress(at: float, total: float | None, message: str | None) -> None:
        if message == "answering":
            answering.set()

    async with connected(runtime, tmp_path) as client:
        running = asyncio.create_task(
            client.call_tool("ask", {"prompt": "go"}, progress_callback=progress)
        )
        await asyncio.wait_for(answering.wait(), HANG_SECONDS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await wait_until(lambda: not runtime.running_turns)


# --- the command ---

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
"""What a client sends first."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
async def test_mcp_serve_stdio(home: Path, mode: Any) -> None:
    program, *arguments = forks.relay()
    parameters = StdioServerParameters(
        command=program,
        args=[*arguments, "mcp", "serve", "--tools", "python"],
        env={"AGENT_HOME": str(home)},
        cwd=str(home),
    )
    async with Client(stdio_client(parameters), mode=mode) as client:
        assert client.server_info.name == "agent"
        assert "408" in (await ask(client, "What is 12*34?"))["answer"]
        assert len((await client.list_resources()).resources) == 1


LONG_DRAIN_SECONDS = 3600
PATIENT = f"""
import sys
from agent.config.launch import LaunchOptions
from agent.server.http.options import ServerOptions
from agent.server.mcp.serve import main

launch = LaunchOptions(engine=next(iter(sys.argv[1:]), None))
sys.exit(main(launch, ServerOptions(port=0), http=True, drain_seconds={LONG_DRAIN_SECONDS}))
"""
"""The same, but it waits for what runs however long that takes; its argument: an engine."""


@asynccontextmanager
async def serving(
    home: Path, *options: str, command: Sequence[str] = ()
) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    """``agent mcp serve --http``, or another ``command``: its process, and the server's address."""
    if not command:
        command = [*forks.relay(), "mcp", "serve", "--http"]
    process = subprocess.Popen(  # noqa: ASYNC220
        [*command, *options],
        env={"AGENT_HOME": str(home)},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = await asyncio.to_thread(process.stderr.readline)
        yield process, line.split()[2]
    finally:
        process.kill()
        process.communicate()


def refuses_connections(url: str) -> bool:
    """Whether nothing listens at an address any more."""
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.slow
async def test_mcp_serve_http_needs_key(home: Path) -> None:
    async with serving(home, "--api-key", "k") as (process, url):
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        async with httpx2.AsyncClient() as plain:
            assert (await plain.post(url, json=body)).status_code == 401
        headers = {"Authorization": "Bearer k"}
        for mode in ERAS:
            async with httpx2.AsyncClient(headers=headers, timeout=HANG_SECONDS) as http:
                transport = streamable_http_client(url, http_client=http)
                async with Client(transport, mode=mode) as client:  # type: ignore[arg-type]
                    assert "Hello" in (await ask(client, "hello"))["answer"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, HANG_SECONDS) == 0


@pytest.mark.long
async def test_mcp_serve_http_ends_streams_that_wait(home: Path) -> None:
    """The stream of a GET and that of a subscription end as any response does, and with them the
    program."""
    headers = {"Accept": "application/json, text/event-stream"}
    async with (
        asyncio.timeout(HANG_SECONDS),
        serving(home, command=(sys.executable, "-I", "-c", PATIENT)) as (process, url),
        httpx2.AsyncClient(headers=headers, timeout=HANG_SECONDS) as plain,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        begun = await plain.post(url, json=INITIALIZE)
        session = {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
        async with plain.stream("GET", url, headers=session) as messages:
            assert messages.status_code == 200
            process.send_signal(signal.SIGTERM)
            start = monotonic()
            assert not [line async for line in messages.aiter_lines() if line.startswith("data")]
            assert [change async for change in changes] == []
        assert await asyncio.to_thread(process.wait, HANG_SECONDS) == 0
        assert monotonic() - start < LONG_DRAIN_SECONDS


@pytest.mark.long
@pytest.mark.parametrize("mode", ERAS)
async def test_mcp_serve_http_lets_running_call_end(home: Path, mode: Any) -> None:
    go = home / "go"
    script = write_script(home / "script", hold(final("word " * 100), 20, go))
    answering = asyncio.Event()

    async def progress(at: float, total: float | None, message: str | None) -> None:
        if message == "answering":
            answering.set()

    async with (
        serving(home, f"script:{script}", command=(sys.executable, "-I", "-c", PATIENT)) as (
            process,
            url,
        ),
        httpx2.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            await (
                client.list_tools()
            )  # else the client lists them after the call, to check the result
            answer = client.call_tool("ask", {"prompt": "go"}, progress_callback=progress)
            asking = asyncio.create_task(answer)
            await answering.wait()
            process.send_signal(signal.SIGTERM)
            await wait_until(lambda: refuses_connections(url))
            assert not asking.done()
            go.touch()
            content = (await asking).structured_content
        assert content is not None and content["status"] == "completed"
        assert content["answer"].count("word") == 100
        assert await asyncio.to_thread(process.wait, HANG_SECONDS) == 0


@pytest.mark.slow
def test_mcp_serve_stdio_ends_with_signal(home: Path) -> None:
    process = subprocess.Popen(
        [*forks.relay(), "mcp", "serve"],
        env={"AGENT_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(INITIALIZE) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "agent"
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_SECONDS) == 0
    process.communicate()

"""Servers that flood, overfill, never end and define tools in odd ways: the host stays upright."""

import asyncio
import contextlib
import re
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.support.hosts import (
    Children,
    MakeHost,
    is_alive,
    is_listening,
    server,
    server_command,
    tool,
)
from tests.support.waiting import HANG_SECONDS, wait_until
from tools.config.servers import ServerConfig
from tools.mcp.call_scope import FREE_PROGRESS_REPORTS, MAX_OUTPUT_CHARS
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tools.mcp.host import Host
from tools.mcp.http_bodies import BoundedBody, LargeMessages

pytestmark = pytest.mark.slow


@pytest.fixture
async def odd_host(make_host: MakeHost) -> Host:
    host = make_host(server("odd"))
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].status == "ready", host.server_states()
    return host


async def test_odd_tool_names_all_callable(odd_host: Host) -> None:
    tools = odd_host.tools()
    assert len(tools) == 212
    names = [offered.model_name for offered in tools]
    assert all(re.fullmatch(r"[A-Za-z0-9_]{1,64}", name) for name in names)
    assert len({name.lower() for name in names}) == len(names)
    for offered in [*tools[:3], *tools[200:]]:
        assert (await odd_host.call(offered, {})).text == repr(offered.name)


async def test_definitions_hidden_characters_removed(odd_host: Host) -> None:
    tree, _, _, _, _, _, _, long, *_ = odd_host.tools()
    assert tree.parameters["$defs"]["node"]["properties"]["value"]["description"] == "Hidden here."
    assert len(long.description) == 4000
    (state,) = odd_host.server_states()
    assert "readone" in state.tools, "names are shown without what reorders them"


async def test_result_of_7_mb_saved_in_file(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(server("hostile", "well"), results_folder=tmp_path)
    await host.start()
    await host.wait_started()
    huge = await host.call(tool(host, "hostile__huge"), {})
    assert huge.failure == "none" and len(huge.text) <= 32_000
    assert huge.full_text_path is not None and Path(huge.full_text_path).stat().st_size == 7_000_000
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"


@pytest.mark.long
async def test_progress_and_output_flood_bounded(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "well"))
    await host.start()
    await host.wait_started()
    reports: list[float] = []
    output: list[str] = []
    flooded = await host.call(
        tool(host, "hostile__flood"),
        {},
        on_progress=lambda at, *_: reports.append(at),
        on_output=lambda _, text: output.append(text),
    )
    assert flooded.text == "flooded"
    assert FREE_PROGRESS_REPORTS <= len(reports) < 1500
    assert sum(map(len, output)) < MAX_OUTPUT_CHARS + 100 and "not shown" in output[-1]
    assert len(host.server_states()[0].stderr) <= 4000


@pytest.mark.long
async def test_tool_list_changes_are_throttled(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.mcp import listing

    reads = 0
    listed = listing.list_tools

    async def counted(*arguments: object) -> object:
        nonlocal reads
        reads += 1
        return await listed(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(listing, "list_tools", counted)
    host = make_host(server("versions", protocol="2026-07-28"))
    await host.start()
    await host.wait_started()
    result = await host.call(tool(host, "versions__restless"), {})
    assert result.text == "still the same"
    await wait_until(lambda: reads > 1)
    assert reads < 20


async def test_too_many_tools_fail_server(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "many"))
    await host.start()
    await host.wait_started()
    (state,) = host.server_states()
    assert state.status == "failed" and "lists more than 5,000 tools" in (state.error or "")


async def test_result_not_fitting_schema_has_notice(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "well"))
    await host.start()
    await host.wait_started()
    wrong = await host.call(tool(host, "hostile__shapeless"), {})
    assert wrong.text.startswith('{\n  "number": "many"\n}\n[The structured content does not fit')
    assert "number: 'many' is not of type 'integer'" in wrong.text


async def test_close_kills_deaf_server(make_host: MakeHost, children: Children) -> None:
    host = make_host(server("hostile", "deaf"))
    await host.start()
    await host.wait_started()
    pids = [child.pid for child in children()]
    assert pids
    await asyncio.wait_for(host.close(), HANG_SECONDS)
    await wait_until(lambda: not any(is_alive(pid) for pid in pids))


# --- a server made by hand: what it sends is ended where the bytes arrive ---

TOO_LONG = "was cut off: it sent a message of more than 16 MiB"
TOO_MANY = "was cut off: it sent a message of more than 100,000 values"
TOO_DEEP = "was cut off: it sent a message nested more than 190 levels"
MAX_MEMORY_BYTES = 200 << 20
"""How much more memory an attack may take here; by hand, on an idle machine, it was 30 MiB."""
MAX_TOGETHER_BYTES = 100 << 20
"""The same for sixteen servers; by hand it was 30 MiB, and 240 MiB before they came in turns."""
MAX_LATENESS_SECONDS = 2.0
"""How long a step of the event loop may take: in seconds of this process, for others may take more."""
MAX_BLOCKED_SECONDS = 15.0
"""The same by the clock, which other processes move on: for what blocks without computing."""

ServeRaw = Callable[..., Awaitable[ServerConfig]]


@pytest.fixture
async def serve_raw(port: int) -> AsyncIterator[ServeRaw]:
    """Return the configuration of the server, which is started if it is one over HTTP."""
    running: list[subprocess.Popen[bytes]] = []

    async def start(transport: str, behaviour: str, **settings: Any) -> ServerConfig:
        if transport == "stdio":
            return server("raw", "stdio", behaviour, **settings)
        running.append(started(server_command("raw", str(port), behaviour)))
        await wait_until(lambda: is_listening(port))
        return ServerConfig("raw", url=f"http://127.0.0.1:{port}/mcp", **settings)

    yield start
    for process in running:
        process.kill()
        process.wait()


def started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def bounded_load(max_bytes: int = MAX_MEMORY_BYTES) -> AsyncIterator[None]:
    """Check that what runs inside neither takes much memory nor stops the event loop."""
    memory = psutil.Process().memory_info
    before, peak, latest, longest = memory().rss, 0, 0.0, 0.0

    async def watch() -> None:
        nonlocal peak, latest, longest
        while True:
            began, began_clock = time.process_time(), time.monotonic()
            await asyncio.sleep(0)
            latest, peak = max(latest, time.process_time() - began), max(peak, memory().rss)
            longest = max(longest, time.monotonic() - began_clock)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
    assert peak - before < max_bytes and latest < MAX_LATENESS_SECONDS
    assert longest < MAX_BLOCKED_SECONDS


@pytest.mark.long
@pytest.mark.parametrize(
    ("transport", "behaviour"), [("stdio", "-"), ("http", "-"), ("http", "events")]
)
async def test_hostile_messages_are_cut_off(
    make_host: MakeHost, serve_raw: ServeRaw, transport: str, behaviour: str
) -> None:
    host = make_host(await serve_raw(transport, behaviour))
    await host.start()
    await host.wait_started()
    for name, reason in {
        "million_blocks": TOO_LONG,
        "million_lists": TOO_MANY,
        "endless": TOO_LONG,
        "deep": TOO_DEEP,
    }.items():
        async with bounded_load():
            result = await host.call(tool(host, f"raw__{name}"), {})
        assert result.text == f"the server raw {reason}"
        assert (await host.call(tool(host, "raw__ping"), {})).text == "pong"
    many = await host.call(tool(host, "raw__blocks"), {})
    assert many.text.endswith("\n[4,000 more content blocks are left out]")
    assert len(many.content) == 1001
    # The server's pattern would take a comparison on the event loop forever.
    pattern = await host.call(tool(host, "raw__pattern"), {})
    assert pattern.text == f'done\n{{"x": "{"a" * 60}!"}}'
    assert (await host.call(tool(host, "raw__structured"), {})).text == '{"x": [1, 2]}'
    table = await host.call(tool(host, "raw__table"), {})
    assert table.structured == {"rows": ["one", "\ufffd"], "about": {"unit": "m"}}
    async with bounded_load():
        assert (await host.call(tool(host, "raw__many_values"), {})).text == "done"
        long = await host.call(tool(host, "raw__long_text"), {})
    assert long.text.endswith("h\N{FROG FACE}") and long.full_text_path


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("endless", TOO_LONG),
        ("endless_error", "HTTP 400"),
        ("endless_event", TOO_LONG),
        ("gzip", TOO_LONG),
        ("utf16", TOO_DEEP),
        ("redirect", "307"),
        ("drip", ""),
    ],
)
async def test_hostile_http_start_ends(
    make_host: MakeHost, serve_raw: ServeRaw, behaviour: str, reason: str
) -> None:
    seconds = 1.0 if behaviour == "drip" else 30.0
    host = make_host(await serve_raw("http", behaviour, startup_timeout_sec=seconds))
    async with bounded_load(), asyncio.timeout(HANG_SECONDS):
        await host.start()
        await host.wait_started()
    (state,) = host.server_states()
    assert state.status == "failed" and reason in (state.error or "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("transport", "behaviour"), [("stdio", "flood"), ("http", "flood"), ("http", "comments")]
)
async def test_endless_events_end_with_call(
    make_host: MakeHost, serve_raw: ServeRaw, transport: str, behaviour: str
) -> None:
    settings = {"tool_timeout_sec": 2.0}
    host = make_host(await serve_raw(transport, behaviour, **settings), server("plain"))
    await host.start()
    await host.wait_started()
    async with bounded_load(), asyncio.timeout(HANG_SECONDS):
        flooded = asyncio.create_task(host.call(tool(host, "raw__ping"), {}))
        echoed = await host.call(tool(host, "plain__echo"), {"text": "meanwhile"})
        assert echoed.text == "meanwhile" and not flooded.done()
        assert (await flooded).text == "the server raw did not answer within 2 s"


@pytest.mark.parametrize(("behaviour", "status"), [("silent", "starting"), ("drops", "failed")])
async def test_turn_does_not_wait_for_http_server_that_does_not_answer(
    make_host: MakeHost, serve_raw: ServeRaw, behaviour: str, status: str
) -> None:
    host = make_host(await serve_raw("http", behaviour, startup_timeout_sec=600.0))
    async with asyncio.timeout(HANG_SECONDS):
        await host.start()
        await host.wait_for_turn("hello")
    (state,) = host.server_states()
    assert state.status == status


@pytest.mark.long
@pytest.mark.parametrize("descriptor", [1, 2])
async def test_turn_does_not_wait_for_server_that_only_writes(
    make_host: MakeHost, descriptor: int
) -> None:
    """It shows signs of life for good, and never answers."""
    loop = f"while :; do echo x >&{descriptor}; sleep 0.2; done"
    busy = ServerConfig("busy", command="sh", args=("-c", loop), startup_timeout_sec=600.0)
    host = make_host(busy)
    async with asyncio.timeout(HANG_SECONDS):
        await host.start()
        await host.wait_for_turn("hello")
    assert host.server_states()[0].status == "starting"


@pytest.mark.parametrize("status", ["403", "500"])
async def test_http_status_of_a_call_is_named(
    make_host: MakeHost, serve_raw: ServeRaw, status: str
) -> None:
    host = make_host(await serve_raw("http", status))
    await host.start()
    await host.wait_started()
    result = await host.call(tool(host, "raw__ping"), {})
    assert result.text == f"the server raw answered with HTTP {status}"


async def test_question_without_session_is_named_as_the_reason(
    make_host: MakeHost, serve_raw: ServeRaw
) -> None:
    host = make_host(await serve_raw("http", "asks", tool_timeout_sec=4.0))
    await host.start()
    await host.wait_started()

    async def accept(request: ElicitationRequest) -> ElicitationResult:
        return ElicitationResult("accept", {})

    result = await host.call(tool(host, "raw__ping"), {}, on_elicitation=accept)
    assert result.text == (
        "the server raw did not answer within 4 s;"
        " it asked a question, but keeps no session in which answers arrive"
    )


@pytest.mark.long
@pytest.mark.parametrize("behaviour", ["-", "events"])
async def test_client_servers_together_bounded(
    make_host: MakeHost, serve_raw: ServeRaw, behaviour: str
) -> None:
    """As many as one request may bring send endless messages at once, one of them a long text."""
    config = await serve_raw("http", behaviour, client_network="private")
    brought = [replace(config, name=f"raw{number}") for number in range(16)]
    host = make_host().with_client_servers(brought)
    await host.start()
    await host.wait_started()
    async with bounded_load(MAX_TOGETHER_BYTES), asyncio.timeout(HANG_SECONDS):
        endless = [host.call(tool(host, f"raw{number}__endless"), {}) for number in range(15)]
        results = await asyncio.gather(*endless, host.call(tool(host, "raw15__ascii_text"), {}))
    assert all(TOO_LONG in result.text for result in results[:15])
    assert results[15].failure == "none" and results[15].full_text_path
    await host.close()


async def test_client_server_slow_large_message_makes_way(
    make_host: MakeHost, serve_raw: ServeRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.mcp.limits.LARGE_MESSAGE_SECONDS", 0.5)
    config = await serve_raw("http", "-", client_network="private")
    brought = [replace(config, name=name) for name in ("slow", "fast")]
    host = make_host().with_client_servers(brought)
    await host.start()
    await host.wait_started()
    slow = asyncio.create_task(host.call(tool(host, "slow__stalling"), {}))
    fast = await host.call(tool(host, "fast__ascii_text"), {})
    assert fast.failure == "none"
    assert (await slow).text == (
        "the server slow was cut off: it sent a large message for more than 0.5 s"
    )
    await host.close()


async def test_schema_nested_too_deep_is_the_reason(
    make_host: MakeHost, serve_raw: ServeRaw
) -> None:
    host = make_host(await serve_raw("stdio", "nested", startup_timeout_sec=600.0))
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].error == TOO_DEEP


@pytest.mark.long
async def test_tool_names_with_line_breaks_left_out(
    make_host: MakeHost, serve_raw: ServeRaw
) -> None:
    host = make_host(await serve_raw("stdio", "names"))
    await host.start()
    await host.wait_started()
    names = [offered.name for offered in host.tools() if offered.server == "raw"]
    assert names[0] == "ping" and all(re.fullmatch(r"\w+", name) for name in names)


async def test_bounded_body_slow_document_ends(serve_raw: ServeRaw) -> None:
    config = await serve_raw("http", "drip")
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    reasons: list[str] = []
    async with (
        httpx2.AsyncClient(trust_env=False) as client,
        client.stream("POST", str(config.url), json=request) as response,
    ):
        body = BoundedBody(response, 0.2, LargeMessages(), reasons.append)
        with pytest.raises(httpx2.StreamError):
            [piece async for piece in body]
    assert reasons == ["it sent one answer for more than 0.2 s"]

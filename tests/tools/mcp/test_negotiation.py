"""The version of MCP that is spoken: the one over which a server can ask questions."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hosts import MakeHost, free_port, is_listening, server, server_command, tool
from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tools.mcp.host import Host
from tools.types import ServerState

pytestmark = pytest.mark.slow
OLDER, NEWER = "2025-11-25", "2026-07-28"
ONLY_NEWER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, number = message["method"], message.get("id")
    if number is None:
        continue
    answer = {"jsonrpc": "2.0", "id": number}
    if method == "initialize" and sys.argv[1] == "ends":
        sys.exit(3)
    results = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "new", "version": "1"}},
        "tools/list": {"tools": [{"name": "plain", "inputSchema": {"type": "object"}}],
                       "ttlMs": 0, "cacheScope": "private"},
        "tools/call": {"content": [{"type": "text", "text": "no resultType"}]},
    }
    if method in results:
        answer["result"] = results[method]
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""
"""A server of 2026-07-28 only, whose results have no ``resultType``; ``ends``: at a handshake."""


async def started(make_host: MakeHost, config: ServerConfig) -> tuple[Host, ServerState]:
    host = make_host(config)
    await host.start()
    await host.wait_started()
    return host, host.server_states()[0]


async def answer(host: Host, name: str) -> str:
    async def accept(request: ElicitationRequest) -> ElicitationResult:
        return ElicitationResult("accept", {"name": "Ada"})

    result = await host.call(tool(host, f"versions__{name}"), {}, on_elicitation=accept)
    return result.text


@pytest.fixture(params=["sessions", "stateless"])
async def http_server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[ServerConfig, str]]:
    port = free_port()
    command = server_command("versions", str(port), request.param)
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await wait_until(lambda: is_listening(port))
        yield ServerConfig("versions", url=f"http://127.0.0.1:{port}/mcp"), request.param
    finally:
        process.kill()
        await process.wait()


async def test_version_over_stdio_is_the_one_that_asks(make_host: MakeHost) -> None:
    host, state = await started(make_host, server("versions"))
    # Whether a server knows a newer one is not known: many do not.
    assert state.protocol == OLDER
    assert state.protocol_reason.startswith(
        f"it was not asked for {NEWER}, over which it could ask"
    )
    assert await answer(host, "ask") == "accept Ada"


@pytest.mark.long
async def test_version_over_http_depends_on_sessions(
    make_host: MakeHost, http_server: tuple[ServerConfig, str]
) -> None:
    config, kind = http_server
    host, state = await started(make_host, config)
    if kind == "sessions":
        assert state.protocol == OLDER and await answer(host, "ask") == "accept Ada"
    else:
        assert state.protocol == NEWER and "keeps no session" in state.protocol_reason
    assert await answer(host, "ask_newer") == "accept Ada"
    assert host.server_states()[0].protocol == NEWER


@pytest.mark.long
async def test_call_that_needs_the_newer_version_gets_it(make_host: MakeHost) -> None:
    host, state = await started(make_host, server("versions"))
    assert state.protocol == OLDER
    assert await answer(host, "ask_newer") == "accept Ada"
    state = host.server_states()[0]
    assert state.protocol == NEWER and "more of it works" in state.protocol_reason
    assert await answer(host, "ask_newer") == "accept Ada"


@pytest.mark.long
@pytest.mark.parametrize("version", [OLDER, NEWER])
async def test_version_of_settings_is_spoken(
    make_host: MakeHost, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the server starts: the SDK's limit is there to try an older version."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 1e-6)
    host, state = await started(make_host, server("versions", protocol=version))
    assert state.protocol == version and state.protocol_reason == "as its settings say"
    text = await answer(host, "ask")
    assert (text == "accept Ada") == (version == OLDER)


@pytest.mark.parametrize("kind", ["refuses", "ends"])
async def test_server_of_the_newer_version_only(
    make_host: MakeHost, tmp_path: Path, kind: str
) -> None:
    script = tmp_path / "new.py"
    script.write_text(ONLY_NEWER)
    host = make_host(ServerConfig("new", command=sys.executable, args=(str(script), kind)))
    await host.start()
    await wait_until(lambda: host.server_states()[0].status == "ready")
    assert host.server_states()[0].protocol == NEWER
    assert (await host.call(tool(host, "new__plain"), {})).text == "no resultType"

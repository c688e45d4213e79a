"""Servers over HTTP: both transports, and what happens when they go away."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.hosts import SERVERS_FOLDER, MakeHost, is_listening, tool
from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult

pytestmark = pytest.mark.slow

Serve = Callable[[str], Awaitable[subprocess.Popen[bytes]]]


@pytest.fixture
async def serve(port: int) -> AsyncIterator[Serve]:
    """Start ``plain`` on the port."""
    running: list[subprocess.Popen[bytes]] = []

    async def start(transport: str) -> subprocess.Popen[bytes]:
        running.append(started(transport, port))
        await wait_until(lambda: is_listening(port))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def started(transport: str, port: int) -> subprocess.Popen[bytes]:
    path = str(SERVERS_FOLDER / "plain.py")
    return subprocess.Popen([sys.executable, "-I", path, transport, str(port)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("transport", "path", "configured"),
    [("http", "mcp", ""), ("sse", "sse", "sse"), ("sse", "sse", "")],
)
async def test_http_transports_call_and_notify(
    make_host: MakeHost, serve: Serve, port: int, transport: str, path: str, configured: str
) -> None:
    await serve(transport)
    url = f"http://127.0.0.1:{port}/{path}"
    host = make_host(ServerConfig("plain", url=url, transport=configured))  # type: ignore[arg-type]
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].status == "ready", host.server_states()
    seen: list[float] = []
    counted = await host.call(
        tool(host, "plain__count"), {"to": 3}, on_progress=lambda at, *_: seen.append(at)
    )
    assert counted.text == "counted"
    await wait_until(lambda: seen == [1, 2, 3])

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        return ElicitationResult("accept", {"name": "Ada"})

    asked = await host.call(tool(host, "plain__ask"), {}, on_elicitation=answer)
    assert asked.text == "accept Ada"
    await host.call(tool(host, "plain__grow"), {})
    await wait_until(lambda: any(offered.name == "grown" for offered in host.tools()))
    big = await host.call(tool(host, "plain__big"), {"size": 5_000_000})
    assert big.full_text_path is not None and Path(big.full_text_path).stat().st_size == 5_000_000
    bigger = await host.call(tool(host, "plain__big"), {"size": 17_000_000})
    assert bigger.text == ("the server plain was cut off: it sent a message of more than 16 MiB")


@pytest.mark.long
async def test_http_server_restart_reconnects(make_host: MakeHost, serve: Serve, port: int) -> None:
    first = await serve("http")
    host = make_host(ServerConfig("plain", url=f"http://127.0.0.1:{port}/mcp"))
    await host.start()
    await host.wait_started()
    echo = tool(host, "plain__echo")
    first.kill()
    first.wait()
    dead = await host.call(echo, {"text": "hello"})
    assert dead.failure == "protocol" and "the server plain" in dead.text
    await wait_until(lambda: host.server_states()[0].status == "failed")
    assert "cannot be reached at http://127.0.0.1" in (host.server_states()[0].error or "")
    await serve("http")
    assert (await host.call(echo, {"text": "again"})).text == "again"


async def test_http_unreachable_and_404_reported(
    make_host: MakeHost, serve: Serve, port: int
) -> None:
    host = make_host(ServerConfig("plain", url=f"http://127.0.0.1:{port}/mcp"))
    await host.start()
    await host.wait_started()
    assert "cannot be reached" in (host.server_states()[0].error or "")
    await serve("http")
    other = make_host(ServerConfig("plain", url=f"http://127.0.0.1:{port}/nothing"))
    await other.start()
    await other.wait_started()
    error = other.server_states()[0].error
    assert error == f"answered its start with HTTP 404 at http://127.0.0.1:{port}/nothing"


@pytest.mark.long
async def test_http_lost_session_call_repeated(
    make_host: MakeHost, serve: Serve, port: int
) -> None:
    """Older servers have sessions, which a restart forgets."""
    first = await serve("http")
    host = make_host(ServerConfig("plain", url=f"http://127.0.0.1:{port}/mcp", transport="http"))
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].protocol == "2025-11-25"
    echo = tool(host, "plain__echo")
    first.kill()
    first.wait()
    await serve("http")
    assert (await host.call(echo, {"text": "again"})).text == "again"

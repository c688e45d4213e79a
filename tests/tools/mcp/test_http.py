"""Servers over HTTP: both transports, and what happens when they go away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.hosts import SERVERS, Hosting, answers, tool, until
from tools.config.servers import ServerConfig
from tools.mcp.client_requests import Elicitation, Elicited

pytestmark = pytest.mark.slow

Serve = Callable[[str], Awaitable[subprocess.Popen[bytes]]]


@pytest.fixture
async def serve(port: int) -> AsyncIterator[Serve]:
    """Start ``plain`` on the port."""
    running: list[subprocess.Popen[bytes]] = []

    async def start(transport: str) -> subprocess.Popen[bytes]:
        running.append(started(transport, port))
        await until(lambda: answers(port))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def started(transport: str, port: int) -> subprocess.Popen[bytes]:
    path = str(SERVERS / "plain.py")
    return subprocess.Popen([sys.executable, "-I", path, transport, str(port)])


@pytest.mark.parametrize(
    ("transport", "path", "said"), [("http", "mcp", ""), ("sse", "sse", "sse"), ("sse", "sse", "")]
)
async def test_a_server_over_http(
    hosting: Hosting, serve: Serve, port: int, transport: str, path: str, said: str
) -> None:
    await serve(transport)
    url = f"http://127.0.0.1:{port}/{path}"
    host = hosting(ServerConfig("plain", url=url, transport=said))  # type: ignore[arg-type]
    await host.start()
    await host.settled()
    assert host.servers()[0].status == "ready", host.servers()
    seen: list[float] = []
    counted = await host.call(
        tool(host, "plain__count"), {"to": 3}, on_progress=lambda at, *_: seen.append(at)
    )
    assert counted.text == "counted"
    await until(lambda: seen == [1, 2, 3])

    async def answer(question: Elicitation) -> Elicited:
        return Elicited("accept", {"name": "Ada"})

    asked = await host.call(tool(host, "plain__ask"), {}, on_elicitation=answer)
    assert asked.text == "accept Ada"
    await host.call(tool(host, "plain__grow"), {})
    await until(lambda: any(one.name == "grown" for one in host.tools()))
    if transport == "http":
        big = await host.call(tool(host, "plain__big"), {"size": 5_000_000})
        assert big.whole is not None and Path(big.whole).stat().st_size == 5_000_000


async def test_a_server_that_is_restarted_is_used_again(
    hosting: Hosting, serve: Serve, port: int
) -> None:
    first = await serve("http")
    host = hosting(ServerConfig("plain", url=f"http://127.0.0.1:{port}/mcp"))
    await host.start()
    await host.settled()
    echo = tool(host, "plain__echo")
    first.kill()
    first.wait()
    dead = await host.call(echo, {"text": "hello"})
    assert dead.failure == "protocol" and "the server plain" in dead.text
    await until(lambda: host.servers()[0].status == "failed")
    assert "cannot be reached at http://127.0.0.1" in (host.servers()[0].error or "")
    await serve("http")
    assert (await host.call(echo, {"text": "again"})).text == "again"


async def test_nobody_there_and_no_such_page(hosting: Hosting, serve: Serve, port: int) -> None:
    host = hosting(ServerConfig("plain", url=f"http://127.0.0.1:{port}/mcp"))
    await host.start()
    await host.settled()
    assert "cannot be reached" in (host.servers()[0].error or "")
    await serve("http")
    other = hosting(ServerConfig("plain", url=f"http://127.0.0.1:{port}/nothing"))
    await other.start()
    await other.settled()
    assert "HTTP 404" in (other.servers()[0].error or "")


async def test_a_call_that_was_not_run_because_the_session_is_gone_is_made_again(
    hosting: Hosting, serve: Serve, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older servers have sessions, which a restart forgets."""
    monkeypatch.setattr("tools.mcp.server._ways", lambda config: ("legacy",))
    first = await serve("http")
    host = hosting(ServerConfig("plain", url=f"http://127.0.0.1:{port}/mcp", transport="http"))
    await host.start()
    await host.settled()
    assert host.servers()[0].protocol == "2025-11-25"
    echo = tool(host, "plain__echo")
    first.kill()
    first.wait()
    await serve("http")
    assert (await host.call(echo, {"text": "again"})).text == "again"

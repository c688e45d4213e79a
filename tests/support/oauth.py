"""A fixture that runs an MCP server behind OAuth, and the browser of the user who logs in."""

import subprocess
from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.support.hosts import is_listening, server_command
from tests.support.waiting import HANG_SECONDS, wait_until
from tools.config.servers import ServerConfig


@pytest.fixture(params=[3600, 1], ids=["lasting", "short"])
async def oauth_server(request: pytest.FixtureRequest, port: int) -> AsyncIterator[ServerConfig]:
    """A running server named ``guarded``; the parameter: seconds for which its tokens are valid."""
    process = _start_server(port, request.param)
    try:
        await wait_until(lambda: is_listening(port))
        yield ServerConfig("guarded", url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        process.wait()


def _start_server(port: int, token_seconds: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(server_command("guarded", str(port), str(token_seconds)))


async def open_page(url: str) -> int:
    """Open a page of the login and follow its redirects, as a browser does; returns the status."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=HANG_SECONDS) as browser:
        return (await browser.get(url)).status_code

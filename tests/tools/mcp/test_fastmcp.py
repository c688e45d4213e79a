"""Servers on FastMCP 4, which is installed in an environment of its own: `make fastmcp`."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.hosts import SERVERS_FOLDER, MakeHost, free_port, is_listening, tool
from tests.support.oauth import open_page
from tests.support.program import ROOT
from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tools.mcp.host import Host
from tools.mcp.login import LoginDialog

PYTHON = ROOT / ".venv-fastmcp" / "bin" / "python"
SCRIPT = str(SERVERS_FOLDER / "fastmcp_server.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="make fastmcp has not installed it"),
]


async def check_questions(host: Host) -> None:
    """Call the tools that ask in the older and in the newer way."""

    async def accept(request: ElicitationRequest) -> ElicitationResult:
        (field,) = (request.schema or {})["properties"]
        return ElicitationResult("accept", {field: "Ada"})

    for name in ("ask", "ask_newer"):
        result = await host.call(tool(host, f"fast__{name}"), {}, on_elicitation=accept)
        assert result.text == "accept Ada"


async def test_fastmcp_over_stdio(make_host: MakeHost, tmp_path: Path) -> None:
    config = ServerConfig("fast", command=str(PYTHON), args=(SCRIPT,))
    host = make_host(config, results_folder=tmp_path)
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].protocol == "2025-11-25"
    reports: list[float] = []
    result = await host.call(
        tool(host, "fast__steps"), {}, on_progress=lambda done, total, text: reports.append(done)
    )
    assert reports == [1, 2, 3] and result.full_text_path is not None
    await check_questions(host)


async def test_fastmcp_over_http_behind_a_login(make_host: MakeHost, tmp_path: Path) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        process = await asyncio.create_subprocess_exec(str(PYTHON), SCRIPT, str(port), "login")
        stack.push_async_callback(process.wait)
        stack.callback(process.kill)
        await wait_until(lambda: is_listening(port))
        config = ServerConfig("fast", url=f"http://127.0.0.1:{port}/mcp")
        host = make_host(config, credentials_file=tmp_path / "logins")
        await host.start()
        await host.wait_started()
        assert host.server_states()[0].needs_login
        visits: list[asyncio.Task[int]] = []

        def show(url: str, code: str) -> None:
            visits.append(asyncio.create_task(open_page(url)))

        await host.log_in("fast", LoginDialog(show, browser=False))
        await host.wait_started()
        assert host.server_states()[0].status == "ready"
        await check_questions(host)

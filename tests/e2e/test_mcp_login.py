"""`agent mcp login`, and the logins that `agent run` and `agent mcp call` offer, as programs."""

import asyncio
import os
import pty
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.test_mcp import write_servers
from tests.support.oauth_server import OAuthServer, run_oauth_server
from tests.support.program import ROOT, CommandResult, RunAgent

pytestmark = pytest.mark.slow
BROWSER = "import sys, httpx2; httpx2.get(sys.argv[1], follow_redirects=True, timeout=300)"
"""A browser in which the person agrees at once."""


@pytest.fixture
async def oauth() -> AsyncIterator[OAuthServer]:
    async with run_oauth_server() as server:
        yield server


@pytest.fixture
def browser(tmp_path: Path) -> dict[str, str]:
    """The environment in which ``webbrowser`` opens that browser."""
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    return {"BROWSER": f"{sys.executable} {script} %s"}


async def run(agent: RunAgent, *args: str, env: dict[str, str] | None = None) -> CommandResult:
    return await asyncio.to_thread(agent, *args, env=env)


def named_command(output: str) -> list[str]:
    """The command that a sentence ends with."""
    return shlex.split(output.partition(": agent ")[2].split("\n")[0])


async def test_command_that_is_named_works(
    agent: RunAgent, home: Path, oauth: OAuthServer, browser: dict[str, str]
) -> None:
    """A person who only follows what the program says gets to the scope that a tool needs."""
    oauth.challenge_scope, oauth.scopes = "read", {"write": "write"}
    write_servers(home / "config" / "mcp.json", {"guarded": {"url": oauth.config.url}})
    listed = await run(agent, "mcp", "list")
    assert listed.code == 1 and named_command(listed.out) == ["mcp", "login", "guarded"]
    done = await run(agent, *named_command(listed.out), env=browser)
    assert (done.code, done.out) == (0, "Logged in to guarded.\n"), done.err
    refused = await run(agent, "mcp", "call", "guarded", "write")
    command = named_command(refused.err)
    assert command == ["mcp", "login", "guarded", "--scope", "write"]
    assert (await run(agent, *command, env=browser)).code == 0
    called = await run(agent, "mcp", "call", "guarded", "write")
    assert (called.code, called.out) == (0, "write is done\n")
    inspected = await run(agent, "mcp", "inspect", "guarded")
    assert "MCP 2025-11-25: it has no newer version" in inspected.out
    assert (await run(agent, "mcp", "logout", "guarded")).code == 0
    assert (await run(agent, "mcp", "list")).code == 1


@pytest.mark.long
async def test_server_of_the_command_line_is_logged_in_by_its_url(
    agent: RunAgent, oauth: OAuthServer, browser: dict[str, str]
) -> None:
    url = oauth.config.url or ""
    option = ("--mcp", f"guarded={url}", "--json-events")
    started = (await run(agent, "run", "hello", *option)).events[0]
    (server,) = [s for s in started["mcp_servers"] if s["name"] == "guarded"]
    assert named_command(server["error"]) == ["mcp", "login", url]
    assert (await run(agent, "mcp", "login", url, env=browser)).code == 0
    started = (await run(agent, "run", "hello", *option)).events[0]
    assert "guarded.read" in started["tools"]


@asynccontextmanager
async def on_terminal(
    home: Path, folder: Path, browser: dict[str, str], *args: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Run the program with stdin and stderr on a terminal: the process and the terminal's other end."""
    terminal, tty = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent", *args,
        cwd=folder, stdin=tty, stderr=tty, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **browser, "AGENT_HOME": str(home), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(tty)
    try:
        yield process, terminal
    finally:
        os.close(terminal)


async def read_until(terminal: int, text: bytes) -> bytes:
    output = b""
    while text not in output:
        output += await asyncio.to_thread(os.read, terminal, 4096)
    return output


@pytest.mark.long
async def test_run_on_a_terminal_asks(
    home: Path, tmp_path: Path, oauth: OAuthServer, browser: dict[str, str]
) -> None:
    command = ("run", "hello", "--mcp", f"guarded={oauth.config.url}", "--json-events")
    async with on_terminal(home, tmp_path, browser, *command) as (process, terminal):
        output = await read_until(terminal, b"Log in now? [Y/n]")
        assert b"The server guarded requires a login." in output
        os.write(terminal, b"\n")
        out, _ = await process.communicate()
    assert b'"guarded.read"' in out.split(b"\n")[0]


@pytest.mark.long
@pytest.mark.parametrize("answer", ["y", "n"])
async def test_call_on_a_terminal_asks_for_the_login_of_the_start(
    home: Path, tmp_path: Path, oauth: OAuthServer, browser: dict[str, str], answer: str
) -> None:
    write_servers(home / "config" / "mcp.json", {"guarded": {"url": oauth.config.url}})
    command = ("mcp", "call", "guarded", "read")
    async with on_terminal(home, tmp_path, browser, *command) as (process, terminal):
        output = await read_until(terminal, b"Log in now? [Y/n]")
        assert b"The server guarded requires a login." in output
        os.write(terminal, answer.encode() + b"\n")
        if answer == "n":
            end = b"Error: the server guarded requires a login (HTTP 401): agent mcp login guarded"
            await read_until(terminal, end)
        out, _ = await process.communicate()
    expected = (0, b"read is done\n") if answer == "y" else (1, b"")
    assert (process.returncode, out) == expected

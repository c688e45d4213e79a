"""Fixtures and helpers for MCP hosts: commands of the test servers, free ports, waiting."""

import asyncio
import random
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import forks
from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.types import Tool

SERVERS_FOLDER = Path(__file__).with_name("mcp_servers")
WITH_SDK = {"booking", "finder", "guarded", "guide", "mailer", "plain", "prompts"}
"""Servers that use MCP's SDK."""


def server_command(script: str, *args: str) -> list[str]:
    """Return the command line of a server of the folder ``mcp_servers``.

    Those that use the SDK run as forks: importing it takes 0.7 s of CPU time.
    """
    path = SERVERS_FOLDER / f"{script}.py"
    if script in WITH_SDK:
        return [*forks.relay(), str(path), *args]
    return [sys.executable, "-I", str(path), *args]


def server_option(script: str, *args: str, name: str = "") -> str:
    """Return the value of ``--mcp`` for such a server; its name is that of its script by default."""
    return f"{name or script}={' '.join(server_command(script, *args))}"


def server_entry(script: str, *args: str, **settings: Any) -> dict[str, Any]:
    """Return the entry of such a server in ``mcp.json``."""
    command, *rest = server_command(script, *args)
    return {"command": command, "args": rest, **settings}


def server(script: str, *args: str, name: str = "", **settings: Any) -> ServerConfig:
    """Return the configuration of such a server; its name is that of its script by default."""
    command, *rest = server_command(script, *args)
    return ServerConfig(name or script, command=command, args=tuple(rest), **settings)


def tool(host: Host, name: str) -> Tool:
    """Find a tool by the name that the model uses."""
    return next(tool for tool in host.tools() if tool.model_name == name)


def is_listening(port: int) -> bool:
    """Return whether something accepts connections on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie, which waits for its parent, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    """Return a free port outside of the range from which systems assign ports, so that it stays free
    until a server is started on it, and while that is restarted."""
    while True:
        number = random.randrange(20_000, 32_000)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", number))
            except OSError:
                continue
            return number


@pytest.fixture
def port() -> int:
    """A free port."""
    return free_port()


Children = Callable[[], list[psutil.Process]]


@pytest.fixture
def children() -> Children:
    """The processes that were started since the test began, and theirs; others' may run on."""
    before = set(psutil.Process().children(True))
    return lambda: [child for child in psutil.Process().children(True) if child not in before]


MakeHost = Callable[..., Host]


@pytest.fixture
async def make_host() -> AsyncIterator[MakeHost]:
    """Make hosts that are closed after the test."""
    hosts: list[Host] = []

    def make(*servers: ServerConfig, **settings: Any) -> Host:
        hosts.append(Host(servers, **settings))
        return hosts[-1]

    yield make
    await asyncio.gather(*(host.close() for host in hosts))

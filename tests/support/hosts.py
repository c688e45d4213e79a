"""Hosts of MCP servers, the servers that tests start, and waiting for a condition."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.types import Tool

SERVERS = Path(__file__).with_name("mcp_servers")


def server(script: str, *args: str, name: str = "", **settings: Any) -> ServerConfig:
    """One of the servers of this folder."""
    path = str(SERVERS / f"{script}.py")
    return ServerConfig(
        name or script, command=sys.executable, args=("-I", path, *args), **settings
    )


async def until(done: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def tool(host: Host, name: str) -> Tool:
    """By the model's name for it."""
    return next(tool for tool in host.tools() if tool.model_name == name)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alive(pid: int) -> bool:
    """Whether it runs. Who ended may be there a while longer, for its parent to ask how."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def port() -> int:
    """One that is free, and not among those which systems give to whoever asks for any: it stays free
    until a server is started on it, and while that is restarted."""
    while True:
        number = random.randrange(20_000, 32_000)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", number))
            except OSError:
                continue
            return number


Hosting = Callable[..., Host]


@pytest.fixture
async def hosting() -> AsyncIterator[Hosting]:
    """Make hosts that are closed at the end."""
    hosts: list[Host] = []

    def make(*servers: ServerConfig, **settings: Any) -> Host:
        hosts.append(Host(servers, **settings))
        return hosts[-1]

    yield make
    await asyncio.gather(*(host.close() for host in hosts))

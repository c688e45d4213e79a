from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tools.base import Tool
from tools.config import ServerConfig
from tools.host import Host

SERVERS = Path(__file__).parent / "servers"


def server(script: str, *args: str, name: str = "", **settings: Any) -> ServerConfig:
    """One of the servers of this folder."""
    path = str(SERVERS / f"{script}.py")
    return ServerConfig(
        name or script, command=sys.executable, args=("-I", path, *args), **settings
    )


async def until(done: Callable[[], object], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def tool(host: Host, name: str) -> Tool:
    """By the model's name for it."""
    return next(tool for tool in host.tools() if tool.model_name == name)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not end when asked are ended soon."""
    monkeypatch.setattr("tools.stdio.GRACE", 0.5)
    monkeypatch.setattr("tools.stdio.LAST_WORDS", 0.2)


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

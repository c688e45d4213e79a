"""Fixtures for the tests of the python tool."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import pytest

from tests.support.hosts import Children
from tests.support.interpreter import Interpreter, Starting
from tests.support.waiting import HANG_SECONDS
from tools.builtin.python.call_limits import CallLimits
from tools.builtin.python.server import PythonServer
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation, ResourceLimits


@pytest.fixture
async def starting(children: Children) -> AsyncIterator[Starting]:
    """Code that is interrupted has the time to react, however busy this machine is."""
    servers: list[PythonServer] = []

    def make(**settings: object) -> Interpreter:
        names = settings.keys() & {field.name for field in fields(CallLimits)}
        limits: Any = {"interrupt_grace": (0.2, 0.8, 60.0)}
        limits |= {name: settings.pop(name) for name in names}
        servers.append(PythonServer(limits=CallLimits(**limits), **settings))  # type: ignore[arg-type]
        return Interpreter(servers[-1])

    yield make
    await asyncio.gather(*(server.close() for server in servers))
    assert not children()


@pytest.fixture
def python(starting: Starting) -> Interpreter:
    return starting()


@pytest.fixture(params=isolation.candidates())
def confined(request: pytest.FixtureRequest, starting: Starting) -> Interpreter:
    """Under each isolation that this machine has."""
    reason = isolation.probe(request.param)
    if reason is not None:
        pytest.skip(f"{request.param}: {reason}")
    limits = ResourceLimits(memory=1 << 29, file_size=1 << 20)
    return starting(
        isolation=Isolation(request.param, "", True), process=limits, seconds=HANG_SECONDS
    )

"""Work that holds Python's lock waits for a pause in typing, within bounds."""

import asyncio
import time
from pathlib import Path

import pytest

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Sampling
from agent.runtime import background
from agent.runtime.background import TypingPause
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.runtimes import MakeRuntime

OPTIONS = TurnOptions(tools=(), sampling=Sampling(temperature=0))
"""At a temperature, an answer may be a long one."""


@pytest.fixture
async def loading() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_without_keys_nothing_waits(loading: asyncio.Future[None]) -> None:
    await TypingPause().wait(loading)


async def test_waits_for_pause(
    loading: asyncio.Future[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "PAUSE_SECONDS", 0.05)
    pause, began = TypingPause(), time.monotonic()
    pause.on_keystroke()
    await pause.wait(loading)
    assert time.monotonic() - began >= 0.05


async def test_wait_is_bounded_once_loaded(
    loading: asyncio.Future[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(background, "MAX_PAUSE_WAIT_SECONDS", 0.05)
    pause = TypingPause()
    pause.on_keystroke()
    loading.set_result(None)
    await pause.wait(loading)


async def test_turn_does_not_wait_for_pause(
    model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAUSE_SECONDS", "MAX_PAUSE_WAIT_SECONDS"):
        monkeypatch.setattr(background, name, 3600.0)
    runtime = bootstrap.create_runtime(LaunchOptions(), tools="none")
    try:
        runtime.on_keystroke()
        ready = asyncio.create_task(runtime.ready())
        turn = Turn(runtime, Conversation("c"), [User("2+2")], OPTIONS)
        response = await turn.start().done()
        assert response.status == "completed"
        await ready
    finally:
        await runtime.close()


async def test_load_after_a_turn_waits_for_pause(
    make_runtime: MakeRuntime, loading: asyncio.Future[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "PAUSE_SECONDS", 3600.0)
    runtime = await make_runtime()
    turn = Turn(runtime, Conversation("c"), [User("2+2")], OPTIONS)
    await turn.start().done()
    async with runtime.in_use():
        pass
    runtime.on_keystroke()
    load = asyncio.create_task(runtime.typing_pause.wait(loading))
    await asyncio.wait([load], timeout=0)
    assert not load.done()
    runtime.begin_turn()
    await load
    runtime.end_turn()

"""A server that is started again is waited for, as long as nothing has come of a request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.engine.protocol import EngineError, Tokens, Waiting
from agent.engine.remote import generation as remote_generation
from agent.engine.remote import health
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.support.engines import asked, read
from tests.support.fake_vllm import FakeVllm
from tests.support.program import Agent

Pair = tuple[FakeVllm, RemoteEngine]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and make a request again only once."""
    monkeypatch.setattr(remote_generation, "PAUSES", (0.0,))
    monkeypatch.setattr(remote_generation, "LOOK", 0.001)


async def test_a_server_that_loads_is_waited_for(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    fake.loading, fake.replies = 20, [[[11], "length"]]
    seen: list[object] = []
    got = await read(engine.generate(asked(form, "x")), seen.append)
    assert got.ids == [11] and len(fake.bodies) == 1 and fake.loading == 0
    told = [item.message for item in seen if isinstance(item, Waiting)]
    assert told == [
        f"vllm at {fake.url} is loading its model; waiting for it …",
        f"vllm at {fake.url} can answer again.",
    ]


async def test_a_server_that_is_started_again_is_waited_for(
    vllm: Pair, form: HarmonyFormat
) -> None:
    fake, engine = vllm
    await fake.stop()
    fake.replies = [[[11], "length"]]
    ids: list[int] = []
    async for item in engine.generate(asked(form, "x")):
        match item:
            case Waiting(message) if message.endswith("…"):
                assert "does not answer" in message
                await fake.start()
            case Tokens():
                ids += item.ids
    assert ids == [11]


async def test_it_is_not_waited_for_without_end(
    vllm: Pair, form: HarmonyFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, engine = vllm
    monkeypatch.setattr(health, "LOADING", 0.05)
    monkeypatch.setattr(health, "GONE", 0.05)
    fake.loading = -1
    with pytest.raises(EngineError, match=r"is loading its model after 0.05 s: try again later\.$"):
        await read(engine.generate(asked(form, "x")))
    await fake.stop()
    with pytest.raises(EngineError, match=r"does not answer \(.+\) after 0.05 s: start it, or"):
        await read(engine.generate(asked(form, "x")))


async def test_whoever_waits_can_leave(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    fake.loading = -1
    generation = engine.generate(asked(form, "x"))
    got = await read(
        generation, lambda item: generation.cancel() if isinstance(item, Waiting) else None
    )
    assert (got.ids, got.finished.reason) == ([], "cancelled")


async def test_what_is_done_ahead_is_not_waited_for(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    fake.loading = -1
    with pytest.raises(EngineError, match="is loading its model: try again later"):
        await read(engine.generate(asked(form, "x", idle=True)))
    assert fake.looks == 2  # the load's, and one


async def test_another_model_is_noticed(
    vllm: Pair, form: HarmonyFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a server again may have changed what it runs."""
    fake, engine = vllm
    fake.loading = 2
    monkeypatch.setattr(form, "plain", lambda text: [1, 2, 3])
    with pytest.raises(EngineError, match="another vocabulary"):
        await read(engine.generate(asked(form, "x")))
    assert not fake.bodies


async def test_doctor_does_not_wait_for_a_load(vllm: Pair, home: Path, agent: Agent) -> None:
    fake, _ = vllm
    fake.loading = -1
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text(f'[far]\nengine = "vllm"\nurl = "{fake.url}"\n')
    done = await asyncio.to_thread(agent, "doctor", "--model", "far")
    assert done.code == 1
    assert f"WRONG  chosen model   vllm at {fake.url} is loading its model: ask" in done.out

"""The endpoint over a model that another server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.engine.remote import engine, generation, health
from agent.events import AgentNotice
from agent.formats.harmony import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.tiny import vocabulary as tiny
from tests.agent.server.test_errors import error_of
from tests.support.endpoint import Serve, Served
from tests.support.fake_vllm import FakeVllm


@pytest.fixture
async def far(
    serve: Serve, tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FakeVllm, Served]]:
    """A server whose model another one runs, and that one."""
    monkeypatch.setattr(engine, "FRESH", 0.0)
    monkeypatch.setattr(generation, "PAUSES", (0.0,))
    monkeypatch.setattr(generation, "LOOK", 0.001)
    fake = FakeVllm(HarmonyFormat(encoding.encoding(tiny.ranks, model_cache / "vocabulary")))
    await fake.start()
    config = tmp_path / "home/config"
    config.mkdir(parents=True)
    (config / "models.toml").write_text(f'[far]\nengine = "vllm"\nurl = "{fake.url}"\n')
    served = await serve(model="far")
    await served.runtime.ready()
    yield fake, served
    await served.end()
    await fake.stop()


async def test_health_tells_of_the_server_that_runs_the_model(
    far: tuple[FakeVllm, Served],
) -> None:
    fake, served = far
    assert (await served.get("/health")).json() == {"status": "ok", "running": 0}
    fake.loading = 1
    told = error_of(await served.get("/health"), 503)
    assert told["message"] == "The vllm that runs the model is loading its model."
    await fake.stop()
    told = error_of(await served.get("/health"), 503)
    assert told["code"] == "model_not_available" and "does not answer (" in told["message"]
    assert "127.0.0.1" not in told["message"]  # whoever has no key may ask
    assert (await served.get("/v1/models")).status_code == 200
    await fake.start()
    assert (await served.get("/health")).status_code == 200


async def test_health_of_a_silent_server_is_bounded(
    far: tuple[FakeVllm, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, served = far
    monkeypatch.setattr(health, "ANSWER", 0.05)
    never = asyncio.Event()

    monkeypatch.setattr(fake.app.router.routes[0], "app", lambda *args: never.wait())
    told = error_of(await served.get("/health"), 503)
    assert "nothing within 0.05 s" in told["message"]
    never.set()


async def test_health_is_asked_for_by_many_and_asks_once(
    far: tuple[FakeVllm, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, served = far
    monkeypatch.setattr(engine, "FRESH", 1000.0)
    before = fake.looks
    answers = await asyncio.gather(*(served.get("/health") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200} and fake.looks == before + 1


async def test_a_turn_tells_that_it_waits(far: tuple[FakeVllm, Served]) -> None:
    fake, served = far
    form = served.runtime.format
    assert isinstance(form, HarmonyFormat)
    said = form.encoding.encode(
        "<|channel|>final<|message|>Hello.<|return|>", allowed_special="all"
    )
    fake.loading, fake.replies = 3, [[said]]
    answer = await served.post({"input": "x"})
    assert answer.json()["output"][-1]["content"][0]["text"] == "Hello."
    notices = [item.message for item in served.turns[0].log.events if isinstance(item, AgentNotice)]
    assert [told.endswith("…") for told in notices] == [True, False]

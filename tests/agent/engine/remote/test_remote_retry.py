"""A server that restarts is waited for, as long as a generation has no token yet."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent.engine.protocol import EngineError, Tokens, Waiting
from agent.engine.remote.client import RemoteTiming
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.support.engines import read_generation, set_timing, user_request
from tests.support.fake_vllm import FakeVllm
from tests.support.program import RunAgent
from tests.support.waiting import wait_until

Pair = tuple[FakeVllm, RemoteEngine]


AT_ONCE = RemoteTiming(retry_pauses=(0.0,), retry_poll=0.001)


@pytest.fixture(autouse=True)
def retry_at_once(vllm: Pair) -> None:
    """Check the server's health often, and repeat a request only once."""
    _, engine = vllm
    set_timing(engine, AT_ONCE)


async def test_generation_waits_for_loading_server(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    fake.loading, fake.replies = 20, [[[11], "length"]]
    items: list[object] = []
    result = await read_generation(engine.generate(user_request(form, "x")), items.append)
    assert result.ids == [11] and len(fake.bodies) == 1 and fake.loading == 0
    messages = [item.message for item in items if isinstance(item, Waiting)]
    assert messages == [
        f"vllm at {fake.url} is loading its model; waiting for it …",
        f"vllm at {fake.url} can answer again.",
    ]


async def test_generation_waits_for_restarting_server(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    await fake.stop()
    fake.replies = [[[11], "length"]]
    ids: list[int] = []
    async for item in engine.generate(user_request(form, "x")):
        match item:
            case Waiting(message) if message.endswith("…"):
                assert "does not answer" in message
                await fake.start()
            case Tokens():
                ids += item.ids
    assert ids == [11]


async def test_generation_stops_waiting_after_its_limit(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    set_timing(engine, replace(AT_ONCE, loading_wait=0.05, unreachable_wait=0.05))
    fake.loading = -1
    with pytest.raises(EngineError, match=r"is loading its model after 0.05 s: try again later\.$"):
        await read_generation(engine.generate(user_request(form, "x")))
    await fake.stop()
    with pytest.raises(EngineError, match=r"does not answer \(.+\) after 0.05 s: start it, or"):
        await read_generation(engine.generate(user_request(form, "x")))


async def test_generation_waiting_can_be_cancelled(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    fake.loading = -1
    generation = engine.generate(user_request(form, "x"))
    result = await read_generation(
        generation, lambda item: generation.cancel() if isinstance(item, Waiting) else None
    )
    assert (result.ids, result.finished.reason) == ([], "cancelled")


async def test_background_generation_does_not_wait(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    fake.loading = -1
    with pytest.raises(EngineError, match="is loading its model: try again later"):
        await read_generation(engine.generate(user_request(form, "x", background=True)))
    assert fake.health_checks == 2  # one by the load, one by the generation


async def test_generation_other_model_after_restart_raises(
    vllm: Pair, form: HarmonyFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may be restarted with another model."""
    fake, engine = vllm
    fake.loading = 2
    monkeypatch.setattr(form, "encode_text", lambda text: [1, 2, 3])
    with pytest.raises(EngineError, match="another vocabulary"):
        await read_generation(engine.generate(user_request(form, "x")))
    assert not fake.bodies


async def test_doctor_does_not_wait_for_loading_server(
    vllm: Pair, home: Path, agent: RunAgent
) -> None:
    fake, _ = vllm
    fake.loading = -1
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text(f'[far]\nengine = "vllm"\nurl = "{fake.url}"\n')
    done = await asyncio.to_thread(agent, "doctor", "--model", "far")
    assert done.code == 1
    assert f"WRONG      chosen model   vllm at {fake.url} is loading its model: try" in done.out


async def test_server_that_stops_in_silence_ends_the_generation(
    vllm: Pair, form: HarmonyFormat
) -> None:
    fake, engine = vllm
    set_timing(engine, replace(AT_ONCE, silence=0.05))
    fake.replies = [[[11], asyncio.Event()]]
    ids: list[int] = []
    with pytest.raises(EngineError, match=r"went away after 1 tokens \(it is silent"):
        async for item in engine.generate(user_request(form, "x")):
            if isinstance(item, Tokens):
                ids += item.ids
                fake.stop_listening()
    assert ids == [11]


async def test_server_that_stops_before_the_first_token_is_waited_for(
    vllm: Pair, form: HarmonyFormat
) -> None:
    fake, engine = vllm
    set_timing(engine, replace(AT_ONCE, silence=0.05))
    fake.replies = [[asyncio.Event()], [[11], "length"]]
    generation = engine.generate(user_request(form, "x"))
    ids: list[int] = []
    stopped = False
    async for item in generation:
        match item:
            case Tokens():
                ids += item.ids
            case Waiting(message) if message.endswith("…"):
                await fake.stop()
                await fake.start()
            case _ if not stopped:
                stopped = True
                await wait_until(lambda: bool(fake.bodies))
                fake.stop_listening()
    assert ids == [11]


async def test_server_that_hangs_ends_the_generation(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    set_timing(engine, replace(AT_ONCE, silence=0.01, stall=0.1))
    never = asyncio.Event()
    fake.replies = [[[11], never, "length"]]
    with pytest.raises(
        EngineError, match=r"went away after 1 tokens \(it has said nothing for 0.1 s"
    ):
        await read_generation(engine.generate(user_request(form, "x")))
    # One that reads a long prompt may be silent, as long as it reports its health.
    begin = asyncio.Event()
    fake.replies = [[begin, [11], "length"]]
    generation = asyncio.create_task(read_generation(engine.generate(user_request(form, "x"))))
    checks = fake.health_checks
    await wait_until(lambda: fake.health_checks >= checks + 12)
    begin.set()
    assert (await generation).ids == [11]


async def test_silent_server_that_is_there_is_waited_for(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    set_timing(engine, replace(AT_ONCE, silence=0.01))
    go_on = asyncio.Event()
    fake.replies = [[[11], go_on, [12], "length"]]
    checks = fake.health_checks
    ids: list[int] = []
    async for item in engine.generate(user_request(form, "x")):
        if isinstance(item, Tokens):
            ids += item.ids
            await wait_until(lambda: fake.health_checks >= checks + 3)
            go_on.set()
    assert ids == [11, 12]


async def test_refusal_inside_a_stream_is_not_tried_again(vllm: Pair, form: HarmonyFormat) -> None:
    fake, engine = vllm
    refusal = {"error": {"message": "logprobs above 20", "type": "BadRequestError", "code": 400}}
    fake.replies = [[refusal], [[11], "length"]]
    with pytest.raises(EngineError, match="HTTP 400: logprobs above 20"):
        await read_generation(engine.generate(user_request(form, "x")))
    assert len(fake.bodies) == 1

"""The endpoint over a model that another server runs."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from agent.engine.remote.client import RemoteTiming
from agent.engine.remote.engine import RemoteEngine
from agent.events import AgentNotice
from agent.formats.harmony import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.server.http.options import ServerOptions
from agent.server.responses.models import ServedModels
from agent.server.serve import HttpServer, base_url, listen
from agent.tiny import vocabulary as tiny
from agent.turn.options import TurnOptions
from tests.support.endpoint import Serve, Served, api_error
from tests.support.engines import set_timing
from tests.support.fake_vllm import FakeVllm
from tests.support.program import RunAgent
from tests.support.waiting import HANG_SECONDS, wait_until


def set_served_timing(served: Served, timing: RemoteTiming) -> None:
    """Change how long the loaded engine waits for its server."""
    assert served.runtime.loaded and isinstance(served.runtime.loaded.engine, RemoteEngine)
    set_timing(served.runtime.loaded.engine, timing)


@pytest.fixture
async def remote_model(
    serve: Serve, tmp_path: Path, model_cache: Path
) -> AsyncIterator[tuple[FakeVllm, Served]]:
    """A server whose model another one runs, and that one."""
    fake = FakeVllm(HarmonyFormat(encoding.load_encoding(tiny.ranks, model_cache / "vocabulary")))
    await fake.start()
    config = tmp_path / "home/config"
    config.mkdir(parents=True)
    (config / "models.toml").write_text(f'[far]\nengine = "vllm"\nurl = "{fake.url}"\n')
    served = await serve(model="far")
    await served.runtime.ready()
    set_served_timing(served, RemoteTiming(health_ttl=0.0, retry_pauses=(0.0,), retry_poll=0.001))
    yield fake, served
    await served.end()
    await fake.stop()


async def test_health_reports_remote_server(remote_model: tuple[FakeVllm, Served]) -> None:
    fake, served = remote_model
    assert (await served.get("/health")).json() == {"status": "ok", "running": 0}
    fake.loading = 1
    error = api_error(await served.get("/health"), 503)
    assert error["message"] == "The vllm that runs the model is loading its model."
    await fake.stop()
    error = api_error(await served.get("/health"), 503)
    assert error["code"] == "model_not_available" and "does not answer (" in error["message"]
    assert "127.0.0.1" not in error["message"]  # whoever has no key may ask
    assert (await served.get("/v1/models")).status_code == 200
    await fake.start()
    assert (await served.get("/health")).status_code == 200


async def test_several_servers_in_health_metrics_and_doctor(
    serve: Serve, tmp_path: Path, model_cache: Path, home: Path, agent: RunAgent
) -> None:
    """As long as one answers, so does this endpoint."""
    form = HarmonyFormat(encoding.load_encoding(tiny.ranks, model_cache / "vocabulary"))
    fakes = [FakeVllm(form), FakeVllm(form)]
    for fake in fakes:
        await fake.start()
        ids = form.encoding.encode(
            "<|channel|>final<|message|>Hello.<|return|>", allowed_special="all"
        )
        fake.replies = [[ids]] * 4
    config = home / "config"
    config.mkdir()
    urls = [fake.url for fake in fakes]
    (config / "models.toml").write_text(
        f'[far]\nengine = "vllm"\nurl = ["{urls[0]}", "{urls[1]}/v1"]\n'
    )
    served = await serve(model="far")
    await served.runtime.ready()
    set_served_timing(served, RemoteTiming(health_ttl=0.0, retry_poll=0.001))

    async def samples() -> dict[tuple[str, str], float]:
        page = (await served.get("/metrics")).text
        lines = [line for line in page.splitlines() if line.startswith("agent_server_")]
        pairs = (re.match(r'(\w+)\{server="(.+)"\} (.+)', line) for line in lines)
        return {(pair[1], pair[2]): float(pair[3]) for pair in pairs if pair}

    assert [(await samples())["agent_server_up", url] for url in urls] == [1, 1]
    await fakes[0].stop()
    assert (await served.get("/health")).status_code == 200
    for number in range(4):
        answer = await served.post({"input": f"{number}"})
        assert answer.json()["output"][-1]["content"][0]["text"] == "Hello."
    values = await samples()
    asked = [values["agent_server_generations_total", url] for url in urls]
    assert asked[1] == 4 and asked[0] == values["agent_server_failures_total", urls[0]] <= 1
    done = await asyncio.to_thread(agent, "doctor", "--model", "far")
    assert f"No vllm answers at {urls[0]}" in done.out
    assert f"far, on a server: vllm at {urls[1]}: 1,000 tokens" in done.out
    await fakes[1].stop()
    api_error(await served.get("/health"), 503)
    await served.end()


async def test_health_silent_remote_times_out(
    remote_model: tuple[FakeVllm, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, served = remote_model
    set_served_timing(served, RemoteTiming(health_ttl=0.0, health_timeout=0.05))
    never = asyncio.Event()

    monkeypatch.setattr(fake.app.router.routes[0], "app", lambda *args: never.wait())
    error = api_error(await served.get("/health"), 503)
    assert "nothing within 0.05 s" in error["message"]
    never.set()


async def test_health_many_requests_query_remote_once(
    remote_model: tuple[FakeVllm, Served],
) -> None:
    fake, served = remote_model
    set_served_timing(served, RemoteTiming(health_ttl=1000.0))
    before = fake.health_checks
    answers = await asyncio.gather(*(served.get("/health") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200} and fake.health_checks == before + 1


async def test_turn_waits_for_remote_with_notices(remote_model: tuple[FakeVllm, Served]) -> None:
    fake, served = remote_model
    form = served.runtime.format
    assert isinstance(form, HarmonyFormat)
    ids = form.encoding.encode("<|channel|>final<|message|>Hello.<|return|>", allowed_special="all")
    fake.loading, fake.replies = 3, [[ids]]
    answer = await served.post({"input": "x"})
    assert answer.json()["output"][-1]["content"][0]["text"] == "Hello."
    notices = [item.message for item in served.turns[0].log.events if isinstance(item, AgentNotice)]
    assert [error.endswith("…") for error in notices] == [True, False]


async def test_context_length_is_null_until_it_is_known(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "home/config"
    config.mkdir(parents=True)
    (config / "models.toml").write_text('[far]\nengine = "vllm"\nurl = "http://127.0.0.1:9"\n')
    served = await serve(model="far")
    (model,) = (await served.get("/v1/models")).json()["data"]
    assert (model["context_length"], model["max_model_len"]) == (None, None)


async def test_raw_completion_of_remote_model(remote_model: tuple[FakeVllm, Served]) -> None:
    fake, served = remote_model
    form = served.runtime.format
    assert isinstance(form, HarmonyFormat)
    fake.replies = [[form.encoding.encode("one two<|return|>", allowed_special="all")]]
    url = f"{served.url}/completions"
    answer = await served.post({"prompt": "Count:"}, url=url)
    assert answer.json()["choices"][0]["text"] == "one two"
    refused = await served.post({"prompt": "a", "echo": True, "logprobs": 1}, url=url)
    assert api_error(refused, 400)["param"] == "echo"
    model = (await served.get("/v1/models")).json()["data"][0]
    assert model["max_model_len"] == served.runtime.context_length and "meta" not in model


async def test_end_waits_for_no_silent_server(
    remote_model: tuple[FakeVllm, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.server.serve.DRAIN_SECONDS", HANG_SECONDS)
    fake, served = remote_model
    fake.replies = [[asyncio.Event()]]
    listener = listen("127.0.0.1", 0, None)
    models = ServedModels(served.runtime, TurnOptions())
    server = HttpServer(models, listener, ServerOptions(store=False), None)
    serving = asyncio.create_task(server.serve())
    body = {"input": "hello", "stream": True}
    async with httpx2.AsyncClient(timeout=HANG_SECONDS) as client:
        asked = asyncio.create_task(client.post(f"{base_url(listener)}/responses", json=body))
        await wait_until(lambda: fake.bodies)
        fake.is_silent = True
        server.drain()
        events = [line for line in (await asked).text.splitlines() if line.startswith("event")]
    assert events[-1] == "event: response.incomplete" and len(set(events)) == len(events)
    await serving

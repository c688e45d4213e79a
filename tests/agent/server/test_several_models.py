"""A server with two real models: the embedded one, and a small one of another family."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.engine.placement import devices
from agent.server.responses.models import ServedModel
from tests.support import random_qwen_gguf
from tests.support.endpoint import Serve, Served, api_error, http_client, open_request
from tests.support.waiting import HANG_SECONDS, wait_until

MESSAGES: Any = [{"role": "user", "content": "Hi"}]
SHORT_MEMORY_BYTES = 660 << 20
"""Free bytes in which the small model fits alone, and not next to what is in memory."""
MakeSeveral = Callable[..., Awaitable[Served]]


def write_entries(home: Path, entries: str) -> None:
    (home / "config").mkdir(parents=True, exist_ok=True)
    (home / "config" / "models.toml").write_text(entries)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    template = random_qwen_gguf.THINKING_TEMPLATE
    return random_qwen_gguf.write_model(path, random_qwen_gguf.SPECIALS, template)


@pytest.fixture
def several(serve: Serve, home: Path, small: Path) -> MakeSeveral:
    """Start a server whose models are tiny, which is loaded, and small."""

    async def start(*pinned: str, entry: str = "", **options: Any) -> Served:
        write_entries(home, f'[small]\npath = "{small}"\naliases = ["wee"]\n{entry}')
        served = await serve(model="tiny", pinned=pinned, **options)
        await served.service.models.ready()
        return served

    return start


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "free_memory", lambda: SHORT_MEMORY_BYTES)


async def states(served: Served) -> dict[str, str]:
    models = (await served.get("/v1/models")).json()["data"]
    return {model["id"]: model["status"]["value"] for model in models}


async def ask(served: Served, model: str | None, **fields: Any) -> str:
    """The model that has answered."""
    body = {"input": "Hi", "model": model, "max_output_tokens": 16, "store": False, **fields}
    answer = await served.post(body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] in ("completed", "incomplete"), answer.text
    return str(answer.json()["model"])


async def change(served: Served, verb: str, model: str) -> Any:
    return await served.post({"model": model}, url=f"{served.root}/models/{verb}")


async def find(served: Served, name: str) -> ServedModel:
    return await served.service.models.find(name)


@contextmanager
def answering(model: ServedModel) -> Iterator[None]:
    """A block in which a turn runs on the model."""
    model.runtime.begin_turn()
    try:
        yield
    finally:
        model.runtime.end_turn()


async def is_waiting(task: asyncio.Task[Any]) -> bool:
    await asyncio.wait({task}, timeout=0.3)
    return not task.done()


async def test_models_answer_by_name(several: MakeSeveral) -> None:
    served = await several()
    assert await states(served) == {"tiny": "loaded", "small": "unloaded"}
    names = ("small", "tiny", "wee", None, "small", "default")
    answered = [await ask(served, name) for name in names]
    assert answered == ["small", "tiny", "small", "tiny", "small", "tiny"]
    assert await states(served) == {"tiny": "loaded", "small": "loaded"}


async def test_models_answer_side_by_side(several: MakeSeveral) -> None:
    served = await several()
    client = served.client()
    create = client.chat.completions.create
    for _ in range(2):
        chats = (create(model=m, messages=MESSAGES, max_tokens=3) for m in ("small", "tiny") * 2)
        assert [chat.model for chat in await asyncio.gather(*chats)] == ["small", "tiny"] * 2
    raw = await client.completions.create(model="wee", prompt="hello", max_tokens=2)
    assert raw.model == "small"


async def test_every_route_uses_the_model_that_is_named(several: MakeSeveral) -> None:
    served = await several()
    message = {"model": "small", "max_tokens": 2, "messages": MESSAGES}
    answer = await served.post(message, url=f"{served.url}/messages")
    assert answer.json()["model"] == "small"
    counted = [
        (await served.post({"model": name, "content": "hello"}, url=f"{served.root}/tokenize"))
        for name in ("small", "tiny")
    ]
    assert [answer.json()["max_model_len"] for answer in counted] == [4096, 32768]
    assert counted[0].json()["tokens"] != counted[1].json()["tokens"]
    props = [(await served.get(f"/props{query}")).json() for query in ("?model=small", "")]
    assert [facts["model_alias"] for facts in props] == ["small", "tiny"]


async def test_models_are_listed_with_context_and_capabilities(several: MakeSeveral) -> None:
    served = await several()
    models = {m.id: m.model_dump() for m in (await served.client().models.list()).data}
    assert [models[name]["context_length"] for name in ("tiny", "small")] == [32768, 4096]
    assert models["small"]["aliases"] == ["wee"] and "default" in models["tiny"]["aliases"]
    everything = ["completion", "tools", "thinking"]
    assert [models[name]["capabilities"] for name in ("tiny", "small")] == [everything] * 2
    assert (await served.client().models.retrieve("wee")).id == "small"


async def test_unknown_names_and_paths_are_refused(several: MakeSeveral, small: Path) -> None:
    served = await several()
    for name in ("nope", str(small), "small.gguf", "gpt-oss-20b", ""):
        error = api_error(await served.post({"input": "x", "model": name}), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert api_error(await change(served, "load", name), 404)["code"] == "model_not_found"


async def test_a_model_that_is_added_later_answers(
    several: MakeSeveral, home: Path, small: Path
) -> None:
    served = await several()
    write_entries(home, f'[new]\npath = "{small}"\n')
    assert await asyncio.gather(ask(served, "new"), ask(served, "new")) == ["new", "new"]


async def test_a_model_that_cannot_be_loaded_fails_its_requests_only(
    several: MakeSeveral, tmp_path: Path
) -> None:
    import openai

    (tmp_path / "bad.gguf").write_bytes(b"GGUF, or not")
    served = await several(entry=f'[bad]\npath = "{tmp_path / "bad.gguf"}"\n')
    bad, tiny = await asyncio.gather(served.post({"input": "x", "model": "bad"}), ask(served, None))
    assert (api_error(bad, 503)["code"], tiny) == ("model_not_available", "tiny")
    assert api_error(await change(served, "load", "bad"), 503)["code"] == "model_not_available"
    with pytest.raises(openai.InternalServerError):
        await served.client().responses.create(model="bad", input="x", stream=True)
    assert await states(served) == {"tiny": "loaded", "small": "unloaded", "bad": "unloaded"}
    assert await ask(served, "small") == "small"


async def test_load_and_unload(several: MakeSeveral) -> None:
    served = await several()
    for verb, state in (("load", "loaded"), ("load", "loaded"), ("unload", "unloaded")) * 2:
        answer = await change(served, verb, "wee")
        assert (answer.status_code, answer.json()) == (200, {"success": True})
        assert (await states(served))["small"] == state
    assert (await change(served, "unload", "tiny")).status_code == 200
    assert await states(served) == {"tiny": "unloaded", "small": "unloaded"}
    assert await ask(served, None) == "tiny"
    assert api_error(await served.post({}, url=f"{served.root}/models/load"), 400)


async def test_unload_waits_for_running_turns(several: MakeSeveral) -> None:
    served = await several()
    tiny = await find(served, "tiny")
    with answering(tiny):
        unload = asyncio.create_task(change(served, "unload", "tiny"))
        assert await is_waiting(unload)
        later = asyncio.create_task(ask(served, "tiny"))
        assert await is_waiting(later) and tiny.runtime.loaded is not None
    async with asyncio.timeout(HANG_SECONDS):
        assert (await unload).status_code == 200
        assert await later == "tiny"


@pytest.mark.usefixtures("short_memory")
async def test_without_memory_for_both_an_idle_model_is_replaced(several: MakeSeveral) -> None:
    served = await several()
    assert await ask(served, "small") == "small"
    assert await states(served) == {"tiny": "unloaded", "small": "loaded"}
    assert await ask(served, "tiny") == "tiny"


@pytest.mark.usefixtures("short_memory")
async def test_a_busy_model_is_replaced_once_it_is_idle(several: MakeSeveral) -> None:
    served = await several(server={"keepalive_seconds": 0.05})
    body = {"model": "small", "input": "x", "stream": True, "max_output_tokens": 16}
    async with http_client() as http:
        with answering(await find(served, "tiny")):
            async with asyncio.timeout(HANG_SECONDS):
                stream = http.stream("POST", f"{served.url}/responses", json=body)
                async with stream as answer:
                    chunks = answer.aiter_text()
                    for _ in range(3):
                        assert '"keepalive"' in await anext(chunks)
                    waits = asyncio.create_task(ask(served, "tiny"))
                    assert await is_waiting(waits)  # the model in front of it may not starve
                    assert (await states(served))["small"] == "unloaded"
                    (await find(served, "tiny")).runtime.end_turn()
                    rest = "".join([chunk async for chunk in chunks])
                    (await find(served, "tiny")).runtime.begin_turn()
    assert "response.incomplete" in rest or "response.completed" in rest
    assert await waits == "tiny"


@pytest.mark.usefixtures("short_memory")
async def test_a_pinned_model_is_neither_replaced_nor_unloaded(several: MakeSeveral) -> None:
    served = await several("tiny")
    error = api_error(await served.post({"input": "x", "model": "small"}), 503)
    assert error["code"] == "model_not_available" and "needs" in error["message"]
    assert "--models" in api_error(await change(served, "unload", "tiny"), 400)["message"]
    assert await states(served) == {"tiny": "loaded", "small": "unloaded"}


async def test_pinned_models_are_loaded_at_the_start(several: MakeSeveral) -> None:
    served = await several("tiny", "wee", entry="keep_alive = 0.1\n")
    await asyncio.sleep(0.3)
    assert await states(served) == {"tiny": "loaded", "small": "loaded"}


async def test_a_model_is_unloaded_after_its_keep_alive(several: MakeSeveral) -> None:
    served = await several(entry="keep_alive = 0.1\n")
    for _ in range(2):
        assert await ask(served, "small") == "small"
        small = await find(served, "small")
        await wait_until(lambda small=small: small.runtime.state == "unloaded")


@pytest.mark.usefixtures("short_memory")
async def test_a_client_that_leaves_while_it_waits(several: MakeSeveral) -> None:
    served = await several()
    body = {"model": "small", "input": "x", "stream": True}
    with answering(await find(served, "tiny")):
        writer = await open_request(served, body)
        other = asyncio.create_task(ask(served, "small"))
        assert await is_waiting(other)
        writer.close()
    assert await other == "small"
    await wait_until(lambda: not served.service.running)
    assert await ask(served, "tiny") == "tiny"


@pytest.mark.usefixtures("short_memory")
async def test_the_end_of_the_server_ends_the_wait(several: MakeSeveral) -> None:
    served = await several()
    with answering(await find(served, "tiny")):
        waits = asyncio.create_task(served.post({"model": "small", "input": "x"}))
        assert await is_waiting(waits)
        served.server.drain()
        async with asyncio.timeout(HANG_SECONDS):
            assert "ending" in api_error(await waits, 503)["message"]


@pytest.mark.long
async def test_conversations_keep_the_vocabulary_of_their_model(several: MakeSeveral) -> None:
    served = await several()
    conversation = (await served.post({}, url=f"{served.url}/conversations")).json()["id"]
    for _ in range(2):
        await ask(served, "small", conversation=conversation, store=True)
        await ask(served, "tiny")
        added = await served.post(
            {"items": MESSAGES}, url=f"{served.url}/conversations/{conversation}/items"
        )
        assert added.status_code == 200, added.text
    body = {"input": "x", "model": "tiny", "conversation": conversation}
    assert "another vocabulary" in api_error(await served.post(body), 400)["message"]


async def test_resent_messages_have_the_ids_of_their_model(several: MakeSeveral) -> None:
    served = await several()
    history = [*MESSAGES, {"role": "assistant", "content": "Hello."}, *MESSAGES]
    count = f"{served.url}/responses/input_tokens"
    alone = {}
    for model in ("tiny", "small", "tiny", "small"):
        answer = await served.post({"input": history, "model": model}, url=count)
        tokens = answer.json()["input_tokens"]
        assert alone.setdefault(model, tokens) == tokens
    assert alone["tiny"] != alone["small"]


async def test_a_script_is_the_only_model(serve: Serve, home: Path, small: Path) -> None:
    write_entries(home, f'[small]\npath = "{small}"\n')
    served = await serve("<|channel|>final<|message|>Hi.<|return|>", model="tiny", pinned=())
    assert [m["id"] for m in (await served.get("/v1/models")).json()["data"]] == ["tiny"]
    error = api_error(await served.post({"input": "x", "model": "small"}), 404)
    assert error["message"] == "The model 'small' does not exist; this server runs 'tiny'."

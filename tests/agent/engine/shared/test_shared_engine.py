"""An engine of another program gives what a local one gives, and its end is survived."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai_harmony import Conversation, Message, Role, SystemContent

from agent.engine.grammars import Grammar
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import (
    ContextOverflowError,
    Engine,
    EngineBusyError,
    EngineError,
    Finished,
    Request,
    Sampling,
    Tokens,
    Waiting,
)
from agent.engine.shared import wire
from agent.engine.shared.engine import SharedEngine, find_shared_engine
from agent.engine.shared.server import EngineServer
from agent.formats.constraints import GenerationConstraints, constraint_of
from agent.formats.harmony import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.recipients import Recipients
from agent.tiny import vocabulary
from tests.support.waiting import wait_until

GREEDY = Sampling(temperature=0)


def local_engine(path: Path) -> LlamaEngine:
    return LlamaEngine(path, placement=Placement(2048), threads=ThreadCounts(1, 1))


def form() -> HarmonyFormat:
    return HarmonyFormat(encoding.load_encoding(vocabulary.ranks))


class Owner:
    """A program that has the model, as far as others see it."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.engine = local_engine(path)
        self.server = EngineServer(self.engine, lambda spec: (constraint_of(form(), spec), dict))
        self.socket = wire.socket_path(folder / "engines", str(path))

    async def find(
        self, load_own: Callable[[], Awaitable[Engine]] | None = None, context: int | None = None
    ) -> SharedEngine | None:
        async def refuse() -> Engine:
            raise EngineError("not loaded here")

        return await find_shared_engine(self.socket, context, load_own or refuse)


@asynccontextmanager
async def owner_of(path: Path, folder: Path) -> AsyncIterator[Owner]:
    owner = Owner(path, folder)
    await owner.engine.load()
    assert await owner.server.start(owner.socket)
    try:
        yield owner
    finally:
        await owner.server.close()
        await owner.engine.close()


async def read(engine: Engine, prompt: list[int], **fields: Any) -> list[Any]:
    options: dict[str, Any] = {"max_tokens": 20, "sampling": GREEDY} | fields
    return [event async for event in engine.generate(Request(prompt, **options))]


def ids_of(events: list[Any]) -> list[int]:
    return [token for event in events if isinstance(event, Tokens) for token in event.ids]


async def test_shared_engine_gives_what_the_owner_gives(gguf: Path, tmp_path: Path) -> None:
    async with owner_of(gguf, tmp_path) as owner:
        shared = await owner.find()
        assert shared is not None and shared.owner == os.getpid()
        assert shared.context_length == 2048
        sampling = Sampling(seed=3, top_k=40, logit_bias=((7, -100.0),), presence_penalty=0.5)
        for fields in ({}, {"sampling": sampling}, {"logprobs": 3}, {"stop_ids": frozenset({5})}):
            here = await read(owner.engine, [1, 2, 3], **fields)
            there = await read(shared, [1, 2, 3], **fields)
            assert ids_of(there) == ids_of(here)
            assert there[-1].reason == here[-1].reason
            assert there[-1].output_tokens == here[-1].output_tokens
            if "logprobs" in fields:
                both = [
                    [one for event in events if isinstance(event, Tokens) for one in event.logprobs]
                    for events in (here, there)
                ]
                assert both[0] == both[1]
        assert there[-1].cached_tokens, "it has the owner's prefix cache"
        with pytest.raises(ContextOverflowError):
            shared.generate(Request([1] * 3000))
        with pytest.raises(EngineError, match="vocabulary"):
            await read(shared, [1, 10**6])
        await shared.close()


@pytest.mark.slow
async def test_constraint_is_enforced_by_the_owner(tiny_gguf: Path, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"const": 7}}, "required": ["n"]}
    answer = Grammar.from_schema(schema | {"additionalProperties": False})
    harmony, recipients = form(), Recipients(["functions.f"])
    constraints = GenerationConstraints("none", answer_source=answer)
    messages = [
        Message.from_role_and_content(Role.SYSTEM, SystemContent.new()),
        Message.from_role_and_content(Role.USER, "Hello"),
    ]
    prompt = harmony.encoding.render_conversation_for_completion(
        Conversation.from_messages(messages), Role.ASSISTANT
    )
    async with owner_of(tiny_gguf, tmp_path) as owner:
        shared = await owner.find()
        assert shared is not None
        events = await read(
            shared, prompt, constraint_spec=lambda: constraints.spec(recipients, []), max_tokens=200,
            stop_ids=harmony.stop_ids,
        )  # fmt: skip
    text = harmony.encoding.decode(ids_of(events))
    answer_text = "".join(text.partition("<|channel|>final<|message|>")[2].split())
    assert answer_text.startswith('{"n":7}')


async def test_cancelled_generation_ends_at_the_owner(gguf: Path, tmp_path: Path) -> None:
    async with owner_of(gguf, tmp_path) as owner:
        shared = await owner.find()
        assert shared is not None
        generation = shared.generate(Request([1, 2], max_tokens=1900, sampling=GREEDY))
        running: tuple[int, ...] = ()
        async for event in generation:
            if isinstance(event, Tokens):
                running = running or (owner.engine.unfinished, shared.unfinished)
                generation.cancel()
        assert isinstance(event, Finished) and event.reason == "cancelled" and running == (1, 1)
        await wait_until(lambda: not owner.engine.unfinished)
        await wait_until(lambda: not shared.unfinished)


@pytest.mark.parametrize("served", [True, False])
async def test_owner_that_ends_before_a_token_is_replaced(
    gguf: Path, tmp_path: Path, served: bool
) -> None:
    loads = 0

    async def load_own() -> Engine:
        nonlocal loads
        loads += 1
        engine = local_engine(gguf)
        await engine.load()
        return engine

    async with owner_of(gguf, tmp_path) as owner:
        expected = ids_of(await read(owner.engine, [4, 5, 6]))
        shared = await owner.find(load_own)
        assert shared is not None
        if served:
            await read(shared, [1])
    events = await read(shared, [4, 5, 6])
    assert ids_of(events) == expected and loads == 1
    assert any(isinstance(event, Waiting) for event in events)
    again = await read(shared, [4, 5, 6])
    assert ids_of(again) == expected and loads == 1
    assert not any(isinstance(event, Waiting) for event in again)
    await shared.close()


async def test_cancelled_generation_after_a_takeover_has_its_counts(
    gguf: Path, tmp_path: Path
) -> None:
    async def load_own() -> Engine:
        engine = local_engine(gguf)
        await engine.load()
        return engine

    async with owner_of(gguf, tmp_path) as owner:
        shared = await owner.find(load_own)
        assert shared is not None
    generation = shared.generate(Request([1, 2], max_tokens=1900, sampling=GREEDY))
    written, end = 0, None
    async for event in generation:
        if isinstance(event, Tokens):
            written += len(event.ids)
            generation.cancel()
        elif isinstance(event, Finished):
            end = event
    assert end is not None and end.reason == "cancelled"
    assert end.output_tokens == written > 0 and end.decode_seconds > 0
    await shared.close()


async def test_owner_that_ends_amid_an_answer_is_an_error(gguf: Path, tmp_path: Path) -> None:
    async def load_own() -> Engine:
        engine = local_engine(gguf)
        await engine.load()
        return engine

    async with owner_of(gguf, tmp_path) as owner:
        shared = await owner.find(load_own)
        assert shared is not None
        with pytest.raises(EngineError, match="ended in the middle of the answer: try again"):
            async for event in shared.generate(Request([1, 2], max_tokens=1900, sampling=GREEDY)):
                if isinstance(event, Tokens):
                    await owner.server.close()
    assert ids_of(await read(shared, [1, 2])), "the next one is loaded here"
    await shared.close()


async def test_owner_that_is_busy_says_so(gguf: Path, tmp_path: Path) -> None:
    async with owner_of(gguf, tmp_path) as owner:
        shared = await owner.find()
        assert shared is not None
        running = [
            shared.generate(Request([1, number], max_tokens=1000, sampling=GREEDY))
            for number in range(100)
        ]

        async def last(generation: Any) -> object:
            event = None
            try:
                async for event in generation:
                    if isinstance(event, Tokens):
                        generation.cancel()
            except EngineError as error:
                return error
            return event

        ends = await asyncio.gather(*(last(generation) for generation in running))
        assert any(isinstance(end, EngineBusyError) for end in ends)
        assert all(isinstance(end, EngineBusyError | Finished) for end in ends)


async def test_engine_is_not_shared(gguf: Path, tmp_path: Path) -> None:
    owner = Owner(gguf, tmp_path)
    assert await owner.find() is None, "nobody listens"
    async with owner_of(gguf, tmp_path) as owner:
        assert await owner.find(context=2049) is None, "its context is too short"
        assert await owner.find(context=2048) is not None
        second = EngineServer(owner.engine, lambda spec: (constraint_of(form(), spec), dict))
        assert not await second.start(owner.socket), "one is enough"
        await second.close()
        assert await owner.find() is not None
        assert owner.socket.parent.stat().st_mode & 0o777 == 0o700
    assert not owner.socket.exists()


async def test_socket_that_a_killed_program_left_is_replaced(gguf: Path, tmp_path: Path) -> None:
    owner = Owner(gguf, tmp_path)
    owner.socket.parent.mkdir(mode=0o700, parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(owner.socket))
    assert owner.socket.exists() and await owner.find() is None
    async with owner_of(gguf, tmp_path) as owner:
        assert await owner.find() is not None


async def test_folder_that_others_can_enter_is_not_used(gguf: Path, tmp_path: Path) -> None:
    owner = Owner(gguf, tmp_path)
    owner.socket.parent.mkdir(parents=True, exist_ok=True)
    owner.socket.parent.chmod(0o755)
    assert not await owner.server.start(owner.socket)


async def test_other_users_process_gets_no_answer(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owner_of(gguf, tmp_path) as owner:
        monkeypatch.setattr(wire, "is_same_user", lambda peer: False)
        assert await owner.find() is None
        reader, writer = await asyncio.open_unix_connection(owner.socket)
        await wire.send(writer, {"op": "info"})
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b'{"op": "other"}\n', b"{}\n", b"[]\n", b"7\n", b""]
)
async def test_nonsense_of_a_client_is_survived(gguf: Path, tmp_path: Path, line: bytes) -> None:
    async with owner_of(gguf, tmp_path) as owner:
        reader, writer = await asyncio.open_unix_connection(owner.socket)
        writer.write(line)
        writer.write_eof()
        await reader.read()
        writer.close()
        assert await owner.find() is not None


def test_versions_that_say_other_things_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = wire.socket_path(tmp_path, "model")
    assert before == wire.socket_path(tmp_path, "model")
    monkeypatch.setattr(wire, "_SHAPES", wire._SHAPES.replace("'rank'", "'rank', 'more'"))
    assert wire.socket_path(tmp_path, "model") != before


def test_long_folder_has_a_short_socket(tmp_path: Path) -> None:
    path = wire.socket_path(tmp_path / ("x" * 120), "model")
    assert len(os.fsencode(path)) < 100 and str(os.getuid()) in path.parent.name
    assert path != wire.socket_path(tmp_path / ("y" * 120), "model")

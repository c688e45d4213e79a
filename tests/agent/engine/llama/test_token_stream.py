"""How tokens cross from the engine's thread to asyncio."""

from __future__ import annotations

import asyncio
from threading import Thread

import psutil
import pytest

from agent.engine.llama import wakeup
from agent.engine.llama.token_stream import Stream
from agent.engine.protocol import EngineError, Finished, Prefill, Tokens

END = Finished("stop", 1, 0, 3)


async def test_what_comes_before_the_reader_is_one_batch() -> None:
    stream = Stream(lambda stream: None)
    stream.push(Prefill(1, 1, 0))
    for token in (1, 2, 3):
        stream.token(token)
    stream.push(END)
    assert [item async for item in stream] == [Prefill(1, 1, 0), Tokens([1, 2, 3]), END]


async def test_the_first_token_does_not_wait_for_the_second() -> None:
    stream = Stream(lambda stream: None)
    items = aiter(stream)
    writer = Thread(target=stream.token, args=[1])
    writer.start()
    assert await asyncio.wait_for(anext(items), 60) == Tokens([1])
    writer.join()


@pytest.mark.parametrize("pipe", [True, False])
async def test_from_another_thread_nothing_is_lost_or_reordered(
    pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not pipe:  # as on Windows
        monkeypatch.setattr(wakeup, "_write", None)
    stream = Stream(lambda stream: None)

    def write() -> None:
        for token in range(20_000):
            stream.token(token)
        stream.push(END)

    writer = Thread(target=write)
    writer.start()
    ids = [
        id
        for item in [item async for item in stream]
        if isinstance(item, Tokens)
        for id in item.ids
    ]
    writer.join()
    assert ids == list(range(20_000))


async def test_an_error_is_raised_where_it_is_read() -> None:
    stream = Stream(lambda stream: None)
    stream.token(1)
    stream.push(EngineError("No."))
    items = aiter(stream)
    assert await anext(items) == Tokens([1])
    with pytest.raises(EngineError, match=r"No\."):
        await anext(items)


async def test_a_stream_that_was_read_leaves_no_file_open() -> None:
    process = psutil.Process()
    before = process.num_fds() if hasattr(process, "num_fds") else 0
    for _ in range(5):
        stream = Stream(lambda stream: None)
        stream.push(END)
        assert [item async for item in stream] == [END]
    assert (process.num_fds() if hasattr(process, "num_fds") else 0) == before


async def test_leaving_cancels() -> None:
    cancelled: list[Stream] = []
    stream = Stream(cancelled.append)
    items = aiter(stream)
    stream.token(1)
    await anext(items)
    await items.aclose()  # type: ignore[attr-defined]
    assert stream.cancelled and cancelled == [stream]


async def test_a_loop_that_is_gone_cancels() -> None:
    async def make() -> Stream:
        return Stream(lambda stream: None)

    stream = await asyncio.to_thread(asyncio.run, make())
    stream.token(1)
    assert stream.cancelled

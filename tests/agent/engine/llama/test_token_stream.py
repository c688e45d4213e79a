"""How tokens cross from the engine's thread to asyncio."""

import asyncio
from threading import Thread

import psutil
import pytest

from agent.engine.llama.token_stream import UNREAD_INTERVAL_SECONDS, TokenStream
from agent.engine.protocol import EngineError, Finished, Prefill, Tokens

END = Finished("stop", 1, 0, 3)


async def test_stream_items_before_the_reader_are_one_batch() -> None:
    stream = TokenStream(lambda stream: None)
    stream.put(Prefill(1, 1, 0))
    for token in (1, 2, 3):
        stream.put_token(token)
    stream.put(END)
    assert [item async for item in stream] == [Prefill(1, 1, 0), Tokens([1, 2, 3]), END]


async def test_stream_first_token_wakes_the_reader() -> None:
    stream = TokenStream(lambda stream: None)
    items = aiter(stream)
    writer = Thread(target=stream.put_token, args=[1])
    writer.start()
    assert await asyncio.wait_for(anext(items), 60) == Tokens([1])
    writer.join()


async def test_stream_from_a_thread_keeps_all_tokens_in_order() -> None:
    stream = TokenStream(lambda stream: None)

    def write() -> None:
        for token in range(20_000):
            stream.put_token(token)
        stream.put(END)

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


async def test_stream_error_is_raised_to_the_reader() -> None:
    stream = TokenStream(lambda stream: None)
    stream.put_token(1)
    stream.put(EngineError("No."))
    items = aiter(stream)
    assert await anext(items) == Tokens([1])
    with pytest.raises(EngineError, match=r"No\."):
        await anext(items)


async def test_stream_read_leaves_no_file_open() -> None:
    process = psutil.Process()
    before = process.num_fds() if hasattr(process, "num_fds") else 0
    for _ in range(5):
        stream = TokenStream(lambda stream: None)
        stream.put(END)
        assert [item async for item in stream] == [END]
    assert (process.num_fds() if hasattr(process, "num_fds") else 0) == before


async def test_stream_reader_leaves_is_cancelled() -> None:
    cancelled: list[TokenStream] = []
    stream = TokenStream(cancelled.append)
    items = aiter(stream)
    stream.put_token(1)
    await anext(items)
    await items.aclose()  # type: ignore[attr-defined]
    assert stream.cancelled and cancelled == [stream]


async def test_stream_with_closed_loop_is_cancelled() -> None:
    async def make() -> TokenStream:
        return TokenStream(lambda stream: None)

    stream = await asyncio.to_thread(asyncio.run, make())
    stream.put_token(1)
    assert stream.cancelled


async def test_stream_that_nobody_reads_as_it_comes_wakes_its_reader_seldom() -> None:
    stream = TokenStream(lambda stream: None, live=False)
    items = aiter(stream)
    stream.put_token(1)
    assert await anext(items) == Tokens([1]), "the first one tells how long the prompt took"
    following = asyncio.create_task(anext(items))
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    sent = 1
    while not following.done():
        stream.put_token(sent := sent + 1)
        stream.flush()
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() - began > UNREAD_INTERVAL_SECONDS / 2
    assert isinstance(batch := await following, Tokens) and len(batch.ids) > 2
    stream.put_token(sent := sent + 1)
    stream.put(END)
    rest = [item async for item in items]
    assert rest[-1] == END and isinstance(last := rest[-2], Tokens) and last.ids[-1] == sent

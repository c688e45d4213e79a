"""The engine of another program of the same person; one at a time loads a model that others may use."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.engine.protocol import (
    Engine,
    EngineError,
    Finished,
    Generation,
    Prefill,
    Request,
    Tokens,
    Waiting,
)
from agent.engine.shared import wire
from agent.util import private_files

log = logging.getLogger(__name__)

LoadEngine = Callable[[], Coroutine[Any, Any, Engine]]
"""Creates an engine and loads it. Raises EngineError."""
ANSWER_SECONDS = 2.0
"""Timeout of another program's answer to a connection."""
LOCK_POLL_SECONDS = 0.05
MAX_LOCK_WAIT_SECONDS = 600.0
"""Upper limit of the wait for another's load: a large model takes minutes from a slow disk."""
OWNER_ENDED = "The program that ran the model ended in the middle of the answer: try again."


async def find_shared_engine(
    path: Path, context: int | None, load_own: LoadEngine
) -> SharedEngine | None:
    """The engine that listens at a path; None: there is none with ``context`` tokens. ``load_own``:
    loads the engine that takes over when the other program ends."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await _connect(path)
            try:
                await wire.send(writer, {"op": "info"})
                info = await wire.receive(reader)
            finally:
                writer.close()
        engine = SharedEngine(path, int(info["context_length"]), int(info["pid"]), load_own)
    except (OSError, KeyError, TypeError, ValueError):
        return None
    if context is not None and context > engine.context_length:
        return None
    log.info("the engine of process %d is used", engine.owner)
    return engine


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not wire.is_private(path.parent):
        raise PermissionError("others can enter the folder")
    reader, writer = await asyncio.open_unix_connection(path, limit=wire.LINE_BYTES)
    if not wire.is_same_user(writer.get_extra_info("socket")):
        writer.close()
        raise PermissionError("another user's")
    return reader, writer


class SharedEngine:
    """An Engine in another process; when that ends, this one loads the model itself."""

    name = "llama.cpp"

    def __init__(self, path: Path, context_length: int, owner: int, load_own: LoadEngine) -> None:
        self._path, self._context_length, self._load_own = path, context_length, load_own
        self.owner = owner
        """Process id of the program that has the model."""
        self.own: Engine | None = None
        """This process's engine, once the other program has ended."""
        self._loading: asyncio.Task[None] | None = None
        self._running: set[SharedGeneration] = set()

    @property
    def context_length(self) -> int:
        return self.own.context_length if self.own else self._context_length

    @property
    def unfinished(self) -> int:
        own = self.own.unfinished if self.own else 0
        return own + sum(not generation.request.background for generation in self._running)

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Do nothing: the other program has loaded the model."""
        if progress:
            progress(1.0)

    async def load_own(self) -> Engine:
        if self.own is None:
            # Who waits for it may be cancelled; others still wait.
            self._loading = self._loading or asyncio.create_task(self._take_over())
            await asyncio.shield(self._loading)
        assert self.own is not None
        return self.own

    async def _take_over(self) -> None:
        try:
            self.own = await self._load_own()
        finally:
            self._loading = None

    def generate(self, request: Request) -> Generation:
        if self.own is not None:
            return self.own.generate(request)
        request.require_room(self.context_length)
        generation = SharedGeneration(self, self._path, request)
        self._running.add(generation)
        generation.task.add_done_callback(lambda task: self._running.discard(generation))
        return generation

    async def close(self) -> None:
        for generation in self._running:
            generation.cancel()
        if self._running:
            await asyncio.wait({generation.task for generation in self._running})
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        if self.own is not None:
            await self.own.close()


class SharedGeneration:
    """A Generation that another program runs."""

    def __init__(self, engine: SharedEngine, path: Path, request: Request) -> None:
        self._engine, self._path, self.request = engine, path, request
        self._items = asyncio.Queue[Prefill | Waiting | Tokens | Finished | EngineError]()
        self._loop = asyncio.get_running_loop()
        self._cancelled = False
        self._generated = 0
        self._own: Generation | None = None
        """The generation in this process, once it has the model."""
        self.task = asyncio.create_task(self._run())
        """Talks to the other program; done when nothing follows."""

    def cancel(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel_once)

    def _cancel_once(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            if self._own is not None:
                self._own.cancel()  # it then says what it has done
            else:
                self.task.cancel()

    async def __aiter__(self) -> AsyncIterator[Prefill | Waiting | Tokens | Finished]:
        try:
            while True:
                item = await self._items.get()
                if isinstance(item, EngineError):
                    raise item
                yield item
                if isinstance(item, Finished):
                    return
        finally:
            self.cancel()

    async def _run(self) -> None:
        put = self._items.put_nowait
        end = Finished("cancelled", len(self.request.prompt), 0, 0)
        try:
            try:
                await self._pass_on()
                return
            except OSError:
                if self._cancelled:
                    raise asyncio.CancelledError from None
                if self._generated:
                    raise EngineError(OWNER_ENDED) from None
            if self.request.background:
                put(end)  # a background generation is not worth a load
                return
            put(Waiting("The program that ran the model has ended: loading it here."))
            own = await self._engine.load_own()
            self._own = own.generate(self.request)
            async for event in self._own:
                put(event)
        except EngineError as error:
            put(error)
        except asyncio.CancelledError:
            put(replace(end, output_tokens=self._generated))
        except Exception as error:
            log.exception("the engine of another program could not be used")
            put(EngineError(f"The program that runs the model sent nonsense: {error!r}."))

    async def _pass_on(self) -> None:
        """Have the other program generate. Raises OSError when it has gone."""
        reader, writer = await _connect(self._path)
        try:
            await wire.send(writer, wire.request_message(self.request))
            async with asyncio.timeout(ANSWER_SECONDS):  # TimeoutError is an OSError
                if await wire.receive(reader) != wire.ACCEPTED:
                    raise ConnectionError("an unknown message")
            try:
                await self._read_to_end(reader)
            except asyncio.CancelledError:
                writer.write_eof()  # it then says what it has done
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._read_to_end(reader)
        finally:
            writer.close()

    async def _read_to_end(self, reader: asyncio.StreamReader) -> None:
        while True:
            event = wire.event_of(await wire.receive(reader))
            if isinstance(event, wire.Gaps):
                if self.request.report_gaps is not None:
                    self.request.report_gaps(event.reasons)
                continue
            if isinstance(event, Tokens):
                self._generated += len(event.ids)
            self._items.put_nowait(event)
            if isinstance(event, Finished):
                return


# --- the lock ---


@asynccontextmanager
async def load_lock(socket: Path, serves: bool) -> AsyncIterator[None]:
    """Wait while another program loads a socket's model, then lock it; without ``serves`` the lock is
    not taken. The kernel releases it with the process. A suspended program is not waited for."""
    try:
        private_files.make_folder(socket.parent)
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(socket.with_suffix(".lock"), flags, 0o600)
    except OSError as error:
        log.info("no lock for loading the model: %s", error)
        yield
        return
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_LOCK_WAIT_SECONDS):
                # Another process holds it: no event tells.
                while not (_try(lock, serves) or _is_holder_suspended(lock)):  # noqa: ASYNC110
                    await asyncio.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(lock)


def _try(lock: int, serves: bool) -> bool:
    """Take the lock, unless another program has it; without ``serves`` it is released at once."""
    try:
        fcntl.flock(lock, (fcntl.LOCK_EX if serves else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if serves:
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        else:
            fcntl.flock(lock, fcntl.LOCK_UN)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks
        log.info("no lock for loading the model: %s", error)
    return True


def _is_holder_suspended(lock: int) -> bool:
    import psutil  # most programs need not wait

    with suppress(OSError, ValueError, psutil.Error):
        status = psutil.Process(int(os.pread(lock, 20, 0))).status()
        return status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False

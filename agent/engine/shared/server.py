"""Lets the other programs of the person use a loaded engine."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.engine.protocol import Constraint, Engine, EngineError
from agent.engine.shared import wire
from agent.util import private_files

log = logging.getLogger(__name__)

WatchedConstraint = tuple[Constraint, Callable[[], dict[str, str]]]
"""A constraint, and a function that returns new reasons, by tool, why it is not enforced in full."""
MakeConstraint = Callable[[dict[str, Any]], WatchedConstraint]
"""Makes the constraint of a spec (`agent.engine.protocol.Request.constraint_spec`)."""


class EngineServer:
    """Serves one engine over a Unix socket. `stop` ends what runs for others; `close` disconnects them
    once the engine's memory is free, and only then do they load the model themselves."""

    def __init__(
        self,
        engine: Engine,
        make_constraint: MakeConstraint,
        on_use: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """``on_use`` is called when a generation for another program begins (True) and ends (False)."""
        self._engine, self._make_constraint, self._on_use = engine, make_constraint, on_use
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._path: Path | None = None
        self._inode = 0
        self._cancels: set[Callable[[], None]] = set()
        self._stopping = False
        self._freed = asyncio.Event()

    async def start(self, path: Path) -> bool:
        """Listen at a path; False where another program does that already, or it cannot be."""
        try:
            private_files.make_folder(path.parent)
            if not wire.is_private(path.parent):
                return False
            try:
                _, writer = await asyncio.open_unix_connection(path)
                writer.close()
                return False
            except (ConnectionError, FileNotFoundError):
                path.unlink(missing_ok=True)  # of a program that was killed
            # A caller that is cancelled from here on can close it.
            self._server = await asyncio.start_unix_server(
                self._on_client, path, limit=wire.LINE_BYTES, start_serving=False
            )
            self._path, self._inode = path, path.stat().st_ino
            await self._server.start_serving()
        except OSError as error:
            log.info("the engine is not shared: %s", error)
            return False
        return True

    def stop(self) -> None:
        """End generations of other programs; later requests wait for `close`."""
        self._stopping = True
        with suppress(OSError):
            if self._path is not None and self._path.stat().st_ino == self._inode:
                self._path.unlink()
        for cancel in self._cancels:
            cancel()

    async def close(self) -> None:
        """Disconnect all clients, which then load the model themselves."""
        self.stop()
        self._freed.set()
        if self._server is None:
            return
        for _ in range(3):  # asyncio of Python 3.11 loses who is accepted as it closes
            await asyncio.sleep(0)
        self._server.close()
        if self._clients:
            await asyncio.wait(self._clients)
        self._server = None

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if wire.is_same_user(writer.get_extra_info("socket")):
                await self._answer(await wire.receive(reader), reader, writer)
        except OSError:
            pass  # the client has gone
        except (KeyError, TypeError, ValueError) as error:
            log.warning("a program that shares the engine was not understood: %r", error)
        finally:
            if self._stopping:
                await self._freed.wait()
            self._clients.discard(task)
            writer.close()

    async def _answer(
        self, message: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._stopping:
            return
        if message["op"] == "info":
            info = {"pid": os.getpid(), "context_length": self._engine.context_length}
            await wire.send(writer, info)
            return
        self._on_use(True)
        try:
            await wire.send(writer, wire.ACCEPTED)
            await self._generate(message, reader, writer)
        except EngineError as error:
            if not self._stopping:
                await wire.send(writer, wire.error_message(error))
        finally:
            self._on_use(False)

    async def _generate(
        self, message: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        constraint: Constraint | None = None
        new_gaps: Callable[[], dict[str, str]] = dict
        if (spec := message["constraint_spec"]) is not None:
            # Making a constraint may wait for grammars that are being compiled.
            constraint, new_gaps = await asyncio.to_thread(self._make_constraint, spec)
        request = wire.request_of(message, constraint)
        if self._stopping:
            return
        generation = self._engine.generate(request)
        self._cancels.add(generation.cancel)
        watch = asyncio.create_task(_cancel_at_end(reader, generation.cancel))
        try:
            async for event in generation:
                if self._stopping:
                    return
                if gaps := new_gaps():  # before the call that they are of has ended
                    await wire.send(writer, asdict(wire.Gaps(gaps)))
                await wire.send(writer, asdict(event))
        finally:
            watch.cancel()
            self._cancels.discard(generation.cancel)
            generation.cancel()


async def _cancel_at_end(reader: asyncio.StreamReader, cancel: Callable[[], None]) -> None:
    """Cancel once the client closes its side of the connection, or all of it."""
    with suppress(OSError):
        await reader.read(1)
    cancel()

"""Lets the other programs of the person use a loaded engine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.engine.protocol import Constraint, Engine, EngineError
from agent.engine.shared import wire

log = logging.getLogger(__name__)

MakeConstraint = Callable[[dict[str, Any]], Constraint]
"""Makes the constraint of a recipe (`agent.engine.protocol.Request.recipe`)."""


class EngineServer:
    """Serves one engine over a Unix socket, until it is closed."""

    def __init__(self, engine: Engine, make_constraint: MakeConstraint) -> None:
        self._engine, self._make_constraint = engine, make_constraint
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._path: Path | None = None

    async def start(self, path: Path) -> bool:
        """Listen at a path; False where another program does that already, or it cannot be."""
        try:
            if not wire.private_folder(path.parent):
                return False
            try:
                _, writer = await asyncio.open_unix_connection(path)
                writer.close()
                return False
            except (ConnectionError, FileNotFoundError):
                path.unlink(missing_ok=True)  # of a program that was killed
            self._server = await asyncio.start_unix_server(
                self._on_client, path, limit=wire.LINE_BYTES
            )
        except OSError as error:
            log.info("the engine is not shared: %s", error)
            return False
        self._path = path
        return True

    async def close(self) -> None:
        """Stop listening and cancel what runs for others."""
        if self._server is None:
            return
        self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        for task in self._clients:
            task.cancel()
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
        except (OSError, asyncio.CancelledError):
            pass  # the client has gone, or this program ends
        except Exception:
            log.exception("a program that shares the engine was not understood")
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(
        self, message: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if message["op"] == "info":
            info = {"pid": os.getpid(), "context_length": self._engine.context_length}
            wire.send(writer, info)
            await writer.drain()
            return
        try:
            recipe = message["recipe"]
            # Making a constraint may wait for grammars that are being compiled.
            constraint = recipe and await asyncio.to_thread(self._make_constraint, recipe)
            generation = self._engine.generate(wire.request_of(message, constraint))
        except EngineError as error:
            wire.send(writer, wire.error_message(error))
            await writer.drain()
            return
        watch = asyncio.create_task(_cancel_at_end(reader, generation.cancel))
        try:
            async for event in generation:
                wire.send(writer, wire.event_message(event))
                await writer.drain()
        except EngineError as error:
            wire.send(writer, wire.error_message(error))
            await writer.drain()
        finally:
            watch.cancel()
            generation.cancel()


async def _cancel_at_end(reader: asyncio.StreamReader, cancel: Callable[[], None]) -> None:
    """Cancel once the client closes its connection, or says anything."""
    with suppress(OSError):
        await reader.read(1)
    cancel()

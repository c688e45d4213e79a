"""Prefills prompts before they are asked for, so that the next turn costs only its own tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.engine.protocol import EngineError, Generation, Prefill, Request

log = logging.getLogger(__name__)


class Prefetcher:
    """Keeps the beginning of the next prompt in the engine's memory; only the latest one counts."""

    def __init__(self, generate: Callable[[Request], Generation]) -> None:
        """``generate`` starts a generation. Raises EngineError."""
        self._generate = generate
        self._generation: Generation | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, request: Request) -> None:
        """Prefill a prompt in place of the one before; the engine lets other requests go first."""
        self.cancel()
        try:
            self._generation = self._generate(request)
        except EngineError:
            return  # too long to continue; the next turn will say so
        self._task = asyncio.create_task(_read_to_end(self._generation))

    async def cached_tokens(self, ids: list[int]) -> int | None:
        """Tokens of a prompt in the engine's memory; None: unknown. Stops prefilling; must be idle."""
        self.cancel()
        try:
            generation = self._generate(Request(ids, max_tokens=0, background=True, private=True))
            async for event in generation:
                generation.cancel()
                if isinstance(event, Prefill):
                    return event.cached
        except EngineError:
            pass
        return None

    def cancel(self) -> None:
        """Stop prefilling; what is in the engine's memory already stays there."""
        if self._generation is not None:
            self._generation.cancel()
            self._generation = None

    @property
    def started(self) -> bool:
        return self._task is not None

    async def wait(self) -> None:
        if self._task is not None:
            await self._task


async def _read_to_end(generation: Generation) -> None:
    try:
        async for _ in generation:
            pass
    except EngineError:
        log.exception("a prefetch failed")

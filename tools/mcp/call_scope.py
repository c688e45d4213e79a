"""One call while it runs: what the server says meanwhile, what it asks, and the time it may take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from tools.builtin.base import conversation
from tools.mcp.client_requests import Caller, Elicitation, Elicited, Sampled, Sampling
from tools.results import encodable

T = TypeVar("T")

FREE_REPORTS, PAUSE = 100, 0.1
"""Reports of progress that are passed on as they come; after these, at most one in so many seconds."""
MAX_OUTPUT = 256_000
"""Characters of partial output that are passed on."""
MAX_QUESTIONS = 5
"""To the person, in one call; more are declined unseen."""


class Running:
    """``async with running:`` around the request; raises TimeoutError there."""

    def __init__(self, caller: Caller, timeout: float | None) -> None:
        """``timeout``: seconds, in which time that a person takes to answer is not counted."""
        self._caller = caller
        self.conversation = conversation.get()
        self._timeout = asyncio.timeout(timeout)
        self._waits = 0
        self._left: float | None = None
        self._over = False
        self._asking: set[asyncio.Task[object]] = set()
        self._reports = 0
        self._reported = 0.0
        self._room = MAX_OUTPUT
        self._questions = 0
        self.notes: list[str] = []
        """What the model should know beside the result."""

    async def __aenter__(self) -> Running:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._over = True
        for task in self._asking:
            task.cancel()
        await self._timeout.__aexit__(*error)  # type: ignore[arg-type]

    # --- what it says ---

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._caller.on_progress is None:
            return
        now = asyncio.get_running_loop().time()
        self._reports += 1
        if self._reports <= FREE_REPORTS or now - self._reported >= PAUSE or progress == total:
            self._reported = now
            self._caller.on_progress(progress, total, message and encodable(message))

    def output(self, stream: str, text: str) -> None:
        if self._caller.on_output is None or self._room <= 0:
            return
        text = text[: self._room]
        self._room -= len(text)
        if self._room <= 0:
            text += "\n[more output is not shown]\n"
        self._caller.on_output(stream, encodable(text))

    # --- what it asks ---

    async def elicit(self, question: Elicitation) -> Elicited:
        """The person's answer; declined where nobody is there, cancelled where the call ended."""
        self._questions += 1
        if self._questions > MAX_QUESTIONS:
            return Elicited("decline")
        ask = self._caller.on_elicitation
        if ask is None:
            return self._declined(question, "nobody is there to answer it")
        answer = await self._asked(ask(question)) or Elicited("cancel")
        if answer.action != "accept":
            return self._declined(question, "it was not answered", answer)
        return answer

    async def sample(self, wanted: Sampling) -> Sampled | None:
        """What the model wrote; None where that is refused."""
        write = self._caller.on_sampling
        return await self._asked(write(wanted)) if write else None

    def _declined(
        self, question: Elicitation, why: str, answer: Elicited = Elicited("decline")
    ) -> Elicited:
        asked = question.message[:500]
        self.notes.append(f"[The server asked the user: {asked!r}; {why}, so it was declined.]")
        return answer

    async def _asked(self, work: Awaitable[T]) -> T | None:
        """None where the call ends first, or asking fails."""
        task = asyncio.ensure_future(work)
        if self._over:
            task.cancel()
        self._asking.add(task)
        try:
            with self._clock_stopped():
                await asyncio.wait([task])
            return None if task.cancelled() or task.exception() else task.result()
        finally:
            task.cancel()
            self._asking.discard(task)

    @contextlib.contextmanager
    def _clock_stopped(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self._waits += 1
        if self._waits == 1 and not self._over and (when := self._timeout.when()) is not None:
            self._left = max(when - loop.time(), 0)
            self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits and not self._over and self._left is not None:
                self._timeout.reschedule(loop.time() + self._left)
                self._left = None

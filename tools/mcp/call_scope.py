"""One running call: its progress and output, the server's requests, and its timeout."""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import Self, TypeVar

from agent.errors import AgentError
from tools.builtin_server import conversation_id
from tools.mcp import client_requests
from tools.mcp.client_requests import CallHandlers, ElicitationResult, SamplingResult
from tools.results import replace_surrogates, shorten

T = TypeVar("T")

FREE_PROGRESS_REPORTS, PROGRESS_INTERVAL_SECONDS = 100, 0.1
"""The first reports of progress are passed on at once; after them, at most one an interval."""
MAX_OUTPUT_CHARS, MAX_PROGRESS_CHARS = 256_000, 1000
MAX_TIMEOUTS = 10
"""Progress restarts the timeout; a call takes at most this many timeouts in all."""
MAX_ELICITATIONS = 5
"""Questions to the person in one call; more are cancelled without being shown."""


class SessionLostError(AgentError):
    """The server forgot the session and did not run the call; the message is a sentence's predicate."""


class NewerVersionError(SessionLostError):
    """The call needs the newest version of the protocol, and is begun again over it."""


class CallScope:
    """Surrounds one request: ``async with scope:`` raises TimeoutError. Progress restarts the timeout,
    up to MAX_TIMEOUTS in all; it is suspended while the server waits for a person's answer."""

    def __init__(self, handlers: CallHandlers, timeout: float | None) -> None:
        """``timeout``: seconds; None: no limit."""
        self._handlers = handlers
        self.conversation_id = conversation_id.get()
        self._timeout, self._seconds = asyncio.timeout(timeout), timeout
        self._last_deadline = 0.0
        """The event loop's time beyond which progress does not extend the call."""
        self._has_progressed = self._closed = False
        self._suspended_at = self._last_report = 0.0
        self._remaining: float | None = None
        self._pending: set[asyncio.Task[object]] = set()
        self._output_room = MAX_OUTPUT_CHARS
        self._suspensions = self._reports = self.elicitations = 0
        self.notes: list[str] = []
        """Sentences for the model, to be appended to the result."""

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        now = asyncio.get_running_loop().time()
        self._last_deadline = now + (self._seconds or 0) * MAX_TIMEOUTS
        return self

    async def __aexit__(self, *error: object) -> None:
        self._closed = True
        for task in self._pending:
            task.cancel()
        await self._timeout.__aexit__(*error)  # type: ignore[arg-type]

    @property
    def timeout_reason(self) -> str:
        """The step that timed out, as the predicate of a sentence about the server."""
        seconds = self._seconds or 0
        if not self._has_progressed:
            return f"did not answer within {seconds:g} s"
        if asyncio.get_running_loop().time() >= self._last_deadline:
            return f"did not answer within {seconds * MAX_TIMEOUTS:g} s, in spite of its progress"
        return f"reported no progress for {seconds:g} s"

    # --- notifications of the server ---

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Restart the timeout, and pass on the notification unless they come too often."""
        now = asyncio.get_running_loop().time()
        if self._seconds is not None and not self._suspensions and self._runs:
            self._has_progressed = True
            self._timeout.reschedule(min(now + self._seconds, self._last_deadline))
        if self._handlers.on_progress is None:
            return
        self._reports += 1
        if (
            self._reports <= FREE_PROGRESS_REPORTS
            or now - self._last_report >= PROGRESS_INTERVAL_SECONDS
            or progress == total
        ):
            self._last_report = now
            if message:
                message = shorten(replace_surrogates(message), MAX_PROGRESS_CHARS)
            self._handlers.on_progress(progress, total, message)

    def output(self, stream: str, text: str) -> None:
        if self._handlers.on_output is None or self._output_room <= 0:
            return
        text = text[: self._output_room]
        self._output_room -= len(text)
        if self._output_room <= 0:
            text += "\n[more output is not shown]\n"
        self._handlers.on_output(stream, replace_surrogates(text))

    # --- requests of the server ---

    async def elicit(self, request: client_requests.ElicitationRequest) -> ElicitationResult:
        """Ask the person; declined if there is none or too often, cancelled if the call ends."""
        self.elicitations += 1
        if self.elicitations > MAX_ELICITATIONS:
            if self.elicitations == MAX_ELICITATIONS + 1:
                self._report_limit()
            return ElicitationResult("cancel")
        why, result = "there is no person to answer it", ElicitationResult("decline")
        if ask := self._handlers.on_elicitation:
            why = "it was not answered"
            result = await self._wait_for(ask(request)) or ElicitationResult("cancel")
        if result.action != "accept":
            message = request.message[:500]
            self.notes.append(
                f"[The server asked the user: {message!r}; {why}, so it was declined.]"
            )
        return result

    async def sample(self, request: client_requests.SamplingRequest) -> SamplingResult | None:
        """Let the model generate a text; None if that is refused."""
        generate = self._handlers.on_sampling
        return await self._wait_for(generate(request)) if generate else None

    def _report_limit(self) -> None:
        limit = f"asked more than {MAX_ELICITATIONS} questions in this call"
        self.output("log", f"The server {limit}; the others are not shown, and cancelled.\n")
        self.notes.append(f"[The server {limit}; the user has not seen the others: cancelled.]")

    async def _wait_for(self, work: Awaitable[T]) -> T | None:
        """Await a handler with the timeout suspended; None if the call ends first or it fails."""
        task = asyncio.ensure_future(work)
        if self._closed:
            task.cancel()
        self._pending.add(task)
        try:
            with self._timeout_suspended():
                await asyncio.wait([task])
            return None if task.cancelled() or task.exception() else task.result()
        finally:
            task.cancel()
            self._pending.discard(task)

    @property
    def _runs(self) -> bool:
        """Whether the timeout can still be changed."""
        return not self._closed and not self._timeout.expired()

    @contextlib.contextmanager
    def _timeout_suspended(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self._suspensions += 1
        first = self._suspensions == 1 and self._runs
        if first and (when := self._timeout.when()) is not None:
            self._suspended_at = loop.time()
            self._remaining = max(when - self._suspended_at, 0)
            self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._suspensions -= 1
            if not self._suspensions and not self._closed and self._remaining is not None:
                self._last_deadline += loop.time() - self._suspended_at
                self._timeout.reschedule(loop.time() + self._remaining)
                self._remaining = None

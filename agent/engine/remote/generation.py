"""What a server on another machine generates.

What constrains it is asked here, of every token; where it rejects one, the request is made anew from
there with only the allowed tokens.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx2

from agent.engine.protocol import (
    EngineError,
    Finished,
    Logprob,
    Prefill,
    Reason,
    Request,
    Tokens,
    Waiting,
)
from agent.engine.remote.backends import Chunk, Json, message
from agent.engine.remote.health import why

if TYPE_CHECKING:
    from agent.engine.remote.engine import RemoteEngine

log = logging.getLogger(__name__)

PAUSES = (0.2, 1.0, 3.0)
"""Seconds before a request is made again of which nothing has come yet."""
LOOK = 1.0
"""Seconds between two looks at a server that cannot answer yet."""
TAIL = 1.0
"""Seconds that a server has to tell its measures after the last token."""


class RemoteGeneration:
    """One generation; who cancels it or goes away ends the connection, and so the server's work."""

    def __init__(self, engine: RemoteEngine, request: Request) -> None:
        self._engine, self.request = engine, request
        self._said: list[int] = []
        self._cached = 0
        self._began = self._first = time.perf_counter()
        self._out: asyncio.Queue[Prefill | Waiting | Tokens | Finished | EngineError] = (
            asyncio.Queue()
        )
        self._loop = asyncio.get_running_loop()
        self._cancelled = False
        self.task = asyncio.create_task(self._run())

    def cancel(self) -> None:
        """End it; safe from any thread, at any time, more than once."""
        self._cancelled = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.task.cancel)

    async def __aiter__(self) -> AsyncIterator[Prefill | Waiting | Tokens | Finished]:
        try:
            while True:
                item = await self._out.get()
                if isinstance(item, EngineError):
                    raise item
                yield item
                if isinstance(item, Finished):
                    return
        finally:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            self._out.put_nowait(await self._generate())
        except EngineError as error:
            self._out.put_nowait(error)
        except asyncio.CancelledError:
            self._out.put_nowait(self._finished("cancelled"))
        except Exception as error:
            log.exception("a server's stream could not be read")
            url = self._engine.address
            self._out.put_nowait(EngineError(f"{url} sent what cannot be read: {why(error)}."))

    # --- saying ---

    async def _generate(self) -> Finished:
        total = len(self.request.prompt)
        self._out.put_nowait(Prefill(0, total, 0))
        if self.request.max_tokens == 0 and not self._engine.server.silent:
            return self._finished("length")
        among: list[int] | None = None
        while True:
            most, full = self._left()
            if most <= 0 and self.request.max_tokens != 0:
                return self._finished(full)
            # A token out of few is asked for alone; then the model may go on freely.
            reason = await self._request_once(most if among is None else 1, among)
            if reason is None:
                if among is not None or self.request.constraint is None:
                    raise EngineError(f"{self._engine.address} says what it may not say.")
                among = self.request.constraint.allowed().tolist()
            elif among is not None and reason == "length":
                among = None
            else:
                return self._finished(full if reason == "length" else reason)

    def _left(self) -> tuple[int, Reason]:
        """Tokens that may still be said, and why no more."""
        room = self._engine.context_length - len(self.request.prompt) - len(self._said)
        most = self.request.max_tokens
        if most is None or most - len(self._said) > room:
            return room, "context"
        return most - len(self._said), "length"

    async def _request_once(self, most: int, among: list[int] | None) -> Reason | None:
        """One request to the server; None: a token was rejected. Made again as long as nothing has
        ever come of it, by a server that can answer."""
        failed: float | None = None
        for pause in (*PAUSES, None):
            try:
                return await self._stream(most, among)
            except (httpx2.TransportError, Unavailable) as error:
                url, said = self._engine.address, len(self._said)
                if said:
                    raise EngineError(
                        f"The server at {url} went away after {said:,} tokens ({why(error)});"
                        " what was said is kept."
                    ) from None
                if pause is None:
                    raise EngineError(f"The server at {url} fails ({why(error)}).") from None
                log.warning("%s fails (%s); asking again", url, why(error))
                failed = failed or time.monotonic()
                await asyncio.sleep(pause)
                await self._until_it_can_answer(failed)
        raise AssertionError("the last try returns or raises")

    async def _until_it_can_answer(self, failed: float) -> None:
        """Wait for a server that is being started, as long as that makes sense since it ``failed``;
        whoever waits for the answer is told. Raises EngineError."""
        engine = self._engine
        server = f"{engine.name} at {engine.address}"
        told = False
        while (trouble := await engine.trouble()) is not None:
            patience = trouble.patience(engine.address.wait)
            if self.request.idle or time.monotonic() - failed >= patience:
                hint = "try again later" if trouble.loading else "start it, or correct its url"
                after = "" if self.request.idle else f" after {patience:g} s"
                raise EngineError(f"{server} {trouble}{after}: {hint}.")
            if not told:
                told = True
                self._out.put_nowait(Waiting(f"{server} {trouble}; waiting for it …"))
            await asyncio.sleep(LOOK)
        if told:
            await engine.look()  # another model may be there now
            self._began = time.perf_counter()
            self._out.put_nowait(Waiting(f"{server} can answer again."))

    async def _stream(self, most: int, among: list[int] | None) -> Reason | None:
        engine = self._engine
        prompt = [*self.request.prompt, *self._said]
        body = engine.server.body(self.request, prompt, most, engine.model, among)
        body["stream"] = among is None
        reason: Reason | None = None
        seen, beginning = 0, not self._said
        async with engine.client.stream("POST", engine.server.path, json=body) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode("utf-8", "replace")
                if response.status_code >= 500:
                    raise Unavailable(f"HTTP {response.status_code}: {message(text)}")
                raise engine.refused(response.status_code, text)
            messages = _messages(response)
            async for found in messages:
                chunk = engine.server.read(found)
                if not self._said:
                    self._prefilled(chunk)
                if chunk.ids and chunk.count is not None:
                    if chunk.count - seen > len(chunk.ids):
                        # Of a character's tokens llama-server streams only the last, with the text.
                        chunk.ids = engine.vocabulary.plain(chunk.text)
                    seen = chunk.count
                if chunk.ids and not await self._take(chunk):
                    return None
                if (reason := "stop" if self._stopped else chunk.reason) is not None:
                    break
            if reason is None:
                raise Unavailable("the stream broke off")
            if beginning and among is None and engine.server.measures_last:
                await self._measures(messages)
        return reason

    async def _measures(self, messages: AsyncIterator[Json]) -> None:
        """What comes after the last token: how much of the prompt was known. Its lack hurts nobody."""
        with suppress(TimeoutError, httpx2.TransportError, Unavailable, EngineError, ValueError):
            async with asyncio.timeout(TAIL):
                async for found in messages:
                    if (cached := self._engine.server.read(found).cached) is not None:
                        self._cached = cached

    def _prefilled(self, chunk: Chunk) -> None:
        total = len(self.request.prompt)
        self._cached = chunk.cached if chunk.cached is not None else self._cached
        if chunk.prefill is not None and chunk.prefill.total == total:
            self._out.put_nowait(chunk.prefill)
        if chunk.ids:
            self._first = time.perf_counter()
            self._out.put_nowait(Prefill(total, total, self._cached))

    async def _take(self, chunk: Chunk) -> bool:
        """Pass ids on, up to the first that is rejected; False then."""
        if self.request.max_tokens == 0:
            return True  # llama-server says one all the same
        constraint, took = self.request.constraint, 0
        for token in chunk.ids:
            if constraint is not None:
                if (grammar := constraint.pending) is not None:
                    await asyncio.wait({asyncio.wrap_future(grammar)})
                if not constraint.accept(token):
                    break
            took += 1
            if token in self.request.stop:
                break
        if took:
            ids = chunk.ids[:took]
            self._said += ids
            self._out.put_nowait(Tokens(ids, self._logprobs(chunk, ids)))
        return took == len(chunk.ids) or self._stopped

    @property
    def _stopped(self) -> bool:
        return bool(self._said) and self._said[-1] in self.request.stop

    def _logprobs(self, chunk: Chunk, ids: Sequence[int]) -> list[Logprob] | None:
        """As asked for: those of ids that were left out are not known, and said to be certain."""
        if (most := self.request.logprobs) is None:
            return None
        known = {each.token: each for each in chunk.logprobs}
        found = (known.get(token, Logprob(token, 0.0)) for token in ids)
        return [Logprob(each.token, each.logprob, each.top[:most]) for each in found]

    def _finished(self, reason: Reason) -> Finished:
        now = time.perf_counter()
        first = self._first if self._said else now
        return Finished(
            "cancelled" if self._cancelled else reason,
            len(self.request.prompt),
            self._cached,
            len(self._said),
            first - self._began,
            now - first,
        )


class Unavailable(Exception):
    """The server cannot answer now."""


async def _messages(response: httpx2.Response) -> AsyncIterator[Json]:
    """The JSON objects of an event stream, or the one that is the whole answer. Raises Unavailable
    for an error among them."""
    if "json" in response.headers.get("content-type", ""):
        yield json.loads(await response.aread())
        return
    async for line in response.aiter_lines():
        kind, _, data = line.partition(":")
        if kind in ("data", "error") and (data := data.strip()) and data != "[DONE]":
            found = json.loads(data)
            if kind == "error" or "error" in found:
                raise Unavailable(message(data))
            yield found

"""An engine on another machine: a server runs the model, everything else stays here.

Token ids go there and token ids come back, so that parsing, tools, store and faces are those of any
other model. What constrains a generation is asked here, of every token; where it rejects one, the
request is made anew from there with only the allowed tokens.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import httpx2

from agent.engine.address import Address
from agent.engine.base import (
    Busy,
    ContextOverflow,
    EngineError,
    Finished,
    Logprob,
    Prefill,
    Reason,
    Request,
    Tokens,
)
from agent.engine.servers import SERVERS, Chunk, Json, message

log = logging.getLogger(__name__)

CONNECT, SILENCE = 10.0, 600.0
"""Seconds until a server must answer, and between two parts of a stream."""
PAUSES = (0.2, 1.0, 3.0)
"""Seconds before a request is made again of which nothing has come yet."""
LOADING = 0.5
"""Seconds between two looks at a server that is still loading."""
PROBE = "The quick brown fox jumps: 12345 + 67.89\n\n\t¿Qué? — «naïve» 東京 Привет 🦙 don't\r\n"
"""A text that different vocabularies cut into different tokens."""


class Vocabulary(Protocol):
    """What the model writes in, as it is known here."""

    stop: frozenset[int]

    def plain(self, text: str) -> list[int]: ...

    def spelling(self, token: int) -> bytes: ...


class RemoteEngine:
    """A model that a server runs."""

    def __init__(
        self,
        address: Address,
        vocabulary: Vocabulary,
        *,
        key: str | None = None,
        context: int | None = None,
    ) -> None:
        """``context``: tokens, at most; otherwise the server's."""
        self.name = address.engine
        self.context_length = context or 0
        self.server = SERVERS[address.engine]
        self.vocabulary = vocabulary
        self.model = ""
        self.address = address
        self._most = context
        self._key = key and key.strip()
        self._client: httpx2.AsyncClient | None = None
        self._running: set[RemoteGeneration] = set()

    @property
    def unfinished(self) -> int:
        """Generations that run there or wait, but for work ahead."""
        return sum(not generation.request.idle for generation in self._running)

    @property
    def client(self) -> httpx2.AsyncClient:
        if self._client is None:
            raise EngineError("The model is not loaded yet.")
        return self._client

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """See what the server runs, and that its vocabulary is the one used here. Waits while it
        loads. Raises EngineError."""
        if self._client is not None:
            return
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise EngineError(f"The key in {self.address.key_env} has characters that no key has.")
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        timeout = httpx2.Timeout(CONNECT, read=SILENCE)
        client = httpx2.AsyncClient(
            base_url=self.address.url,
            headers=headers,
            timeout=timeout,
            limits=httpx2.Limits(),  # however many wait, the server queues them
        )
        try:
            until = time.monotonic() + SILENCE
            while (await self._ask(client, "GET", "/health")) is None:
                if time.monotonic() > until:
                    raise EngineError(f"{self.address.url} does not get ready: see its log.")
                await asyncio.sleep(LOADING)
            answers = [await self._json(client, "GET", path) for path in self.server.about]
            try:
                facts = self.server.facts(answers, self.address.model)
            except (KeyError, IndexError, TypeError, StopIteration):
                raise EngineError(
                    f"What {self.address.url} says of its model is not what {self.name} says:"
                    " correct engine or url in models.toml."
                ) from None
            self.model = facts.model
            self.context_length = min(filter(None, (self._most, facts.context)), default=0)
            if not self.context_length:
                raise EngineError(f"{self.address.url} tells no context length: set context.")
            await self._check(client)
        except BaseException:
            await client.aclose()
            raise
        self._client = client
        if progress:
            progress(1.0)

    async def _check(self, client: httpx2.AsyncClient) -> None:
        """The server cuts texts into the very tokens that are used here. Raises EngineError."""
        stops = sorted(self.vocabulary.stop)
        marks = b"".join(self.vocabulary.spelling(stop) for stop in stops).decode()
        body = self.server.tokenize(PROBE + marks, self.model)
        answer = await self._json(client, "POST", "/tokenize", body)
        if answer.get("tokens") != [*self.vocabulary.plain(PROBE), *stops]:
            raise EngineError(
                f"The model at {self.address.url} has another vocabulary than expected: correct"
                " format (or path, a GGUF with its vocabulary) in models.toml."
            )

    async def _json(
        self, client: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
    ) -> Json:
        response = await self._ask(client, method, path, body)
        try:
            found = response.json() if response else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise EngineError(f"{self.address.url}{path} does not answer as {self.name} does.")
        return found

    async def _ask(
        self, client: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
    ) -> httpx2.Response | None:
        """The answer; None while the server loads its model. Raises EngineError."""
        try:
            response = await client.request(method, path, json=body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EngineError(
                f"No {self.name} answers at {self.address.url} ({why(error)}): start it, or correct"
                " url in models.toml."
            ) from None
        if response.status_code == 503:
            return None
        if response.status_code != 200:
            raise self.refused(response.status_code, response.text)
        return response

    def refused(self, status: int, text: str) -> EngineError:
        """What an answer that is not 200 means."""
        if status in (401, 403):
            where = f"the key in {self.address.key_env}" if self.address.key_env else "no key"
            return EngineError(
                f"{self.address.url} does not accept {where} (HTTP {status}): set key_env in"
                " models.toml to the variable that holds its key."
            )
        if status == 429:
            return Busy(f"{self.address.url} serves as many requests as it can: try again later.")
        return EngineError(f"{self.address.url} answered HTTP {status}: {message(text)}")

    def generate(self, request: Request) -> RemoteGeneration:
        """Start generating. Raises EngineError, ContextOverflow."""
        if self._client is None:
            raise EngineError("The model is not loaded yet.")
        if not request.prompt:
            raise EngineError("The prompt is empty.")
        if len(request.prompt) >= self.context_length:
            raise ContextOverflow(len(request.prompt), self.context_length)
        generation = RemoteGeneration(self, request)
        self._running.add(generation)
        generation.task.add_done_callback(lambda task: self._running.discard(generation))
        return generation

    async def close(self) -> None:
        """Let go of the server; what runs is cancelled. It can be loaded again."""
        client, self._client = self._client, None
        for generation in self._running:
            generation.cancel()
        if self._running:
            await asyncio.wait({generation.task for generation in self._running})
        if client is not None:
            await client.aclose()


class RemoteGeneration:
    """One generation; who cancels it or goes away ends the connection, and so the server's work."""

    def __init__(self, engine: RemoteEngine, request: Request) -> None:
        self._engine, self.request = engine, request
        self._said: list[int] = []
        self._cached = 0
        self._began = self._first = time.perf_counter()
        self._out: asyncio.Queue[Prefill | Tokens | Finished | EngineError] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._cancelled = False
        self.task = asyncio.create_task(self._run())

    def cancel(self) -> None:
        """End it; safe from any thread, at any time, more than once."""
        self._cancelled = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.task.cancel)

    async def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
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
            url = self._engine.address.url
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
                    raise EngineError(f"{self._engine.address.url} says what it may not say.")
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
        ever come of it."""
        for pause in (*PAUSES, None):
            try:
                return await self._stream(most, among)
            except (httpx2.TransportError, Unavailable) as error:
                url, said = self._engine.address.url, len(self._said)
                if said:
                    raise EngineError(
                        f"The server at {url} went away after {said:,} tokens ({why(error)});"
                        " what was said is kept."
                    ) from None
                if pause is None:
                    raise EngineError(f"The server at {url} fails ({why(error)}).") from None
                log.warning("%s fails (%s); asking again", url, why(error))
                await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _stream(self, most: int, among: list[int] | None) -> Reason | None:
        engine = self._engine
        prompt = [*self.request.prompt, *self._said]
        body = engine.server.body(self.request, prompt, most, engine.model, among)
        body["stream"] = among is None
        seen = 0
        async with engine.client.stream("POST", engine.server.path, json=body) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode("utf-8", "replace")
                if response.status_code >= 500:
                    raise Unavailable(f"HTTP {response.status_code}: {message(text)}")
                raise engine.refused(response.status_code, text)
            async for found in _messages(response):
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
                if self._stopped:
                    return "stop"
                if chunk.reason is not None:
                    return chunk.reason
        raise Unavailable("the stream broke off")

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


def why(error: Exception) -> str:
    """An exception in a few words."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__

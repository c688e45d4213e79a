"""An engine on another machine: a server runs the model, everything else stays here.

Token ids go there and token ids come back, so that parsing, tools, store and faces are those of any
other model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import httpx2

from agent.engine.protocol import Busy, ContextOverflow, EngineError, Request
from agent.engine.remote import health as remote_state
from agent.engine.remote.backends import SERVERS, Json, message
from agent.engine.remote.endpoint import Address
from agent.engine.remote.generation import RemoteGeneration
from agent.engine.remote.health import Trouble, why

CONNECT, SILENCE = 10.0, 600.0
"""Seconds until a server must answer, and between two parts of a stream."""
LOADING = 0.5
"""Seconds between two looks at a server that is still loading."""
FRESH = 1.0
"""Seconds that what was found out of a server counts for whoever asks by the dozen."""
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
        self._asked: tuple[float, Trouble | None] | None = None
        self._asking = asyncio.Lock()

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
        client = self._connection()
        try:
            until = time.monotonic() + (SILENCE if self.address.wait is None else self.address.wait)
            while (await self._ask(client, "GET", "/health")) is None:
                if time.monotonic() > until:
                    raise EngineError(f"{self.address} does not get ready: see its log.")
                if progress:
                    progress(0.0)  # seen as a load that goes on
                await asyncio.sleep(LOADING)
            await self._look(client)
        except BaseException:
            await client.aclose()
            raise
        self._client = client
        if progress:
            progress(1.0)

    def _connection(self) -> httpx2.AsyncClient:
        """Raises EngineError."""
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise EngineError(f"The key in {self.address.key_env} has characters that no key has.")
        return httpx2.AsyncClient(
            base_url=self.address.url,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(CONNECT, read=SILENCE),
            limits=httpx2.Limits(),  # however many wait, the server queues them
        )

    async def look(self) -> None:
        """See anew what the server runs, after it was away. Raises EngineError where that is of no use
        here any more."""
        await self._look(self.client)

    async def _look(self, client: httpx2.AsyncClient) -> None:
        paths = self.server.about(self.address.model)
        answers = [await self._json(client, "GET", path) for path in paths]
        try:
            facts = self.server.facts(answers, self.address.model)
        except (KeyError, IndexError, TypeError, StopIteration):
            raise EngineError(
                f"What {self.address} says of its model is not what {self.name} says:"
                " correct engine or url in models.toml."
            ) from None
        self.model = facts.model
        self.context_length = min(filter(None, (self._most, facts.context)), default=0)
        if not self.context_length:
            raise EngineError(f"{self.address} tells no context length: set context.")
        await self._check(client)

    async def trouble(self) -> Trouble | None:
        """What keeps the server from answering now. Raises EngineError where it cannot be asked."""
        if self._client is not None:
            return await remote_state.trouble(self._client)
        async with self._connection() as client:
            return await remote_state.trouble(client)

    async def health(self) -> Trouble | None:
        """The same for whoever asks often: as it was within the last second."""
        async with self._asking:
            if self._asked is None or time.monotonic() - self._asked[0] > FRESH:
                trouble = await self.trouble()
                self._asked = time.monotonic(), trouble
            return self._asked[1]

    async def _check(self, client: httpx2.AsyncClient) -> None:
        """The server cuts texts into the very tokens that are used here. Raises EngineError."""
        stops = sorted(self.vocabulary.stop)
        marks = b"".join(self.vocabulary.spelling(stop) for stop in stops).decode()
        body = self.server.tokenize(PROBE + marks, self.model)
        answer = await self._json(client, "POST", "/tokenize", body)
        if answer.get("tokens") != [*self.vocabulary.plain(PROBE), *stops]:
            raise EngineError(
                f"The model at {self.address} has another vocabulary than expected: correct"
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
            raise EngineError(f"{self.address}{path} does not answer as {self.name} does.")
        return found

    async def _ask(
        self, client: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
    ) -> httpx2.Response | None:
        """The answer; None while the server loads its model. Raises EngineError."""
        try:
            response = await remote_state.ask(client, method, path, body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EngineError(
                f"No {self.name} answers at {self.address} ({why(error)}): start it, or correct"
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
            if (variable := self.address.key_env) and not self._key:
                return EngineError(f"{self.address} wants a key, and {variable} is not set.")
            where = f"the key in {variable}" if variable else "no key"
            return EngineError(
                f"{self.address} does not accept {where} (HTTP {status}): set key_env in"
                " models.toml to the variable that holds its key."
            )
        if status == 429:
            return Busy(f"{self.address} serves as many requests as it can: try again later.")
        return EngineError(f"{self.address} answered HTTP {status}: {message(text)}")

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

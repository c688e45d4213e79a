"""The connection to a server that runs a model: its state, what it serves, what answers mean, and
whether it can answer: after a failed request, for /health and for agent doctor."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import httpx2

from agent.engine.protocol import EngineBusyError, EngineError
from agent.engine.remote.backends import BACKENDS, Json, error_message
from agent.engine.remote.endpoint import RemoteEndpoint

CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS = 10.0, 600.0
"""Seconds until a server must accept a connection, and between two parts of a stream."""
TOKENIZER_PROBE = (
    "The quick brown fox jumps: 12345 + 67.89\n\n\t¿Qué? — «naïve» 東京 Привет 🦙 don't\r\n"
)
"""A text that different vocabularies split into different tokens."""


@dataclass(frozen=True, slots=True)
class RemoteTiming:
    """Durations in seconds of everything that waits for a server."""

    health_timeout: float = 2.0
    """For the answer of /health."""
    health_ttl: float = 1.0
    """For a result of `RemoteClient.cached_health`."""
    load_poll: float = 0.5
    """Between two checks of a server that is still loading when this engine is loaded."""
    retry_pauses: tuple[float, ...] = (0.2, 1.0, 3.0)
    """Before each retry of a completion request that has produced nothing yet."""
    retry_poll: float = 1.0
    """Between two checks of a server that a turn waits for."""
    loading_wait: float = 120.0
    """That a turn waits for a server that reports that it is not ready yet."""
    unreachable_wait: float = 15.0
    """That a turn waits for a server that refuses connections: it may be restarting, or gone."""
    usage_timeout: float = 1.0
    """For the usage report after the last token."""
    silence: float = 5.0
    """Without a message, after which the server is asked whether it is there: it may be stopped."""
    stall: float = 300.0
    """Without a message, after which a server is given up that still listens, but has begun to answer
    or does not report its health: it hangs. Reading a long prompt may take longer."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Why a server cannot answer now; str() is the predicate of a sentence."""

    loading: bool
    """Whether the server reports that it is not ready yet; else it is away or does not work."""
    reason: str
    refused: bool = False
    """Whether nothing listens there any more."""

    def __str__(self) -> str:
        return "is loading its model" if self.loading else f"does not answer ({self.reason})"


class RemoteVocabulary(Protocol):
    """The vocabulary that this program uses for the model; a Format is one."""

    stop_ids: frozenset[int]

    def encode_text(self, text: str) -> list[int]: ...

    def token_bytes(self, token: int) -> bytes: ...


class RemoteClient:
    """One server: opened by a load, refreshed after the server was away, closed with the engine."""

    def __init__(
        self,
        endpoint: RemoteEndpoint,
        vocabulary: RemoteVocabulary,
        *,
        api_key: str | None = None,
        max_context: int | None = None,
        timing: RemoteTiming | None = None,
    ) -> None:
        """``max_context``: tokens that the context is limited to; None: the server's."""
        self.endpoint, self.vocabulary = endpoint, vocabulary
        self.backend = BACKENDS[endpoint.engine]
        self.timing = timing or RemoteTiming()
        self.served_model = ""
        self.context_length = max_context or 0
        """Tokens that prompt and output may have together; exact once opened."""
        self._max_context = max_context
        self._api_key = api_key and api_key.strip()
        self._http: httpx2.AsyncClient | None = None
        self._cached_health: tuple[float, HealthProblem | None] | None = None
        self._health_lock = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._http is not None

    @property
    def http(self) -> httpx2.AsyncClient:
        """The HTTP client with the server's URL and key. Raises EngineError when not open."""
        if self._http is None:
            raise EngineError("The model is not loaded yet.")
        return self._http

    async def open(self, progress: Callable[[float], None] | None = None) -> None:
        """Wait until the server is ready, also after it was away, and check it. Raises EngineError."""
        if self._http is not None:
            await self._read_metadata(self._http)
            return
        http = self._connect()
        try:
            wait = READ_TIMEOUT_SECONDS if self.endpoint.wait is None else self.endpoint.wait
            deadline = time.monotonic() + wait
            while (await self._request(http, "GET", "/health")) is None:
                if time.monotonic() > deadline:
                    raise EngineError(f"{self.endpoint} does not become ready: see its log.")
                if progress:
                    progress(0.0)  # shows that the load continues
                await asyncio.sleep(self.timing.load_poll)
            await self._read_metadata(http)
        except BaseException:
            await http.aclose()
            raise
        self._http = http

    def _connect(self) -> httpx2.AsyncClient:
        key = self._api_key
        if key and not (key.isascii() and key.isprintable()):
            raise EngineError(
                f"The key in {self.endpoint.key_env} has characters that no key can have."
            )
        return httpx2.AsyncClient(
            base_url=self.endpoint.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
            limits=httpx2.Limits(),  # no limit of connections: the server queues requests
        )

    async def _read_metadata(self, http: httpx2.AsyncClient) -> None:
        paths = self.backend.metadata_paths(self.endpoint.model)
        answers = [await self._request_json(http, "GET", path) for path in paths]
        try:
            name, context = self.backend.parse_metadata(answers, self.endpoint.model)
        except (KeyError, IndexError, TypeError, StopIteration):
            raise EngineError(
                f"{self.endpoint} does not describe its model as {self.endpoint.engine} does:"
                " correct engine or url in models.toml."
            ) from None
        self.served_model = name
        self.context_length = min(filter(None, (self._max_context, context)), default=0)
        if not self.context_length:
            raise EngineError(
                f"{self.endpoint} does not report a context length: set context in models.toml."
            )
        await self._check_vocabulary(http)

    async def _check_vocabulary(self, http: httpx2.AsyncClient) -> None:
        stop_ids = sorted(self.vocabulary.stop_ids)
        stop_markup = b"".join(self.vocabulary.token_bytes(stop) for stop in stop_ids).decode()
        body = self.backend.tokenize_body(TOKENIZER_PROBE + stop_markup, self.served_model)
        answer = await self._request_json(http, "POST", "/tokenize", body)
        if answer.get("tokens") != [*self.vocabulary.encode_text(TOKENIZER_PROBE), *stop_ids]:
            raise EngineError(
                f"The model at {self.endpoint} has another vocabulary than expected: correct"
                " format (or path, a GGUF with its vocabulary) in models.toml."
            )

    async def _request_json(
        self, http: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
    ) -> Json:
        response = await self._request(http, method, path, body)
        try:
            answer = response.json() if response else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineError(
                f"{self.endpoint}{path} does not answer as {self.endpoint.engine} does."
            )
        return answer

    async def _request(
        self, http: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
    ) -> httpx2.Response | None:
        """Make a request; None: the server is still loading its model. Raises EngineError."""
        try:
            response = await _request_twice(http, method, path, body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EngineError(
                f"No {self.endpoint.engine} answers at {self.endpoint} ({describe_error(error)}):"
                " start it, or correct url in models.toml."
            ) from None
        if response.status_code == 503:
            return None
        if response.status_code != 200:
            raise self.refusal(response.status_code, response.text)
        return response

    def refusal(self, status: int, text: str) -> EngineError:
        """Return the error that an answer other than 200 means. ``text``: its body."""
        if status in (401, 403):
            if (variable := self.endpoint.key_env) and not self._api_key:
                return EngineError(f"{self.endpoint} requires a key, and {variable} is not set.")
            refused = f"the key in {variable}" if variable else "no key"
            return EngineError(
                f"{self.endpoint} does not accept {refused} (HTTP {status}): set key_env in"
                " models.toml to the variable that holds its key."
            )
        if status == 429:
            return EngineBusyError(f"{self.endpoint} is at its limit of requests: try again later.")
        return EngineError(f"{self.endpoint} answered HTTP {status}: {error_message(text)}")

    async def check_health(self, *, new_connection: bool = False) -> HealthProblem | None:
        """Return the reason why the server cannot answer now. ``new_connection``: open ones may outlive
        the listener. Raises EngineError if no request can be made."""
        if self._http is None or new_connection:
            async with self._connect() as http:
                return await self._ask_health(http)
        return await self._ask_health(self._http)

    async def _ask_health(self, http: httpx2.AsyncClient) -> HealthProblem | None:
        timeout = self.timing.health_timeout
        try:
            async with asyncio.timeout(timeout):
                response = await _request_twice(http, "GET", "/health")
        except TimeoutError:
            return HealthProblem(False, f"nothing within {timeout:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            refused = isinstance(error, httpx2.ConnectError)
            return HealthProblem(False, describe_error(error), refused)
        if response.status_code < 500:
            return None
        reason = f"HTTP {response.status_code}: {error_message(response.text)}"
        return HealthProblem(response.status_code == 503, reason)

    async def cached_health(self) -> HealthProblem | None:
        """Return a recent result of `check_health`: many may ask at once, the server is asked once."""
        async with self._health_lock:
            cached = self._cached_health
            if cached is None or time.monotonic() - cached[0] > self.timing.health_ttl:
                problem = await self.check_health()
                self._cached_health = cached = time.monotonic(), problem
            return cached[1]

    def detach(self) -> httpx2.AsyncClient | None:
        """Forget the connection, so that nothing new is sent, and return it to be closed."""
        http, self._http = self._http, None
        return http


async def _request_twice(
    http: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
) -> httpx2.Response:
    """Make an idempotent request, twice if a pooled connection was closed in the meantime."""
    try:
        return await http.request(method, path, json=body)
    except (httpx2.ReadError, httpx2.RemoteProtocolError):
        return await http.request(method, path, json=body)


def describe_error(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__

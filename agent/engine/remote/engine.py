"""The remote engine: a server runs the model; everything but token ids stays in this process. After a
rejected token the completion is requested again from there, first for one of the allowed ids."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import httpx2

from agent.engine.protocol import (
    EngineBusyError,
    EngineError,
    Finished,
    FinishReason,
    Logprob,
    Prefill,
    Request,
    Tokens,
    Waiting,
)
from agent.engine.remote.backends import CompletionChunk, Json, error_message
from agent.engine.remote.client import (
    HealthProblem,
    RemoteClient,
    RemoteTiming,
    RemoteVocabulary,
    describe_error,
)
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.replicas import Replica, Replicas
from agent.errors import AgentError

log = logging.getLogger(__name__)


class ServerUnavailableError(AgentError):
    """The server cannot answer now; the request may be made again."""


class RemoteGeneration:
    """A Generation that a server runs; cancelling it closes the connection and so ends the work."""

    def __init__(self, replicas: Replicas, request: Request) -> None:
        self._replicas, self.request = replicas, request
        self._replica = replicas.choose(request)
        replicas.acquire(self._replica, request)
        self._tried = {self._replica}
        """The servers that were asked since one could answer."""
        self._generated: list[int] = []
        self._cached = 0
        self._began = self._first = time.perf_counter()
        """perf_counter at the start, and at the first token."""
        self._items = asyncio.Queue[Prefill | Waiting | Tokens | Finished | EngineError]()
        self._loop = asyncio.get_running_loop()
        self._cancelled = False
        self._heard_at = 0.0
        """time.monotonic of the stream's last message."""
        self._gone = ""
        """Why the server was given up for its silence; empty: it was not."""
        self.task = asyncio.create_task(self._run())
        """Talks to the server; done when nothing follows."""
        self.task.add_done_callback(lambda task: replicas.release(self._replica))

    @property
    def _client(self) -> RemoteClient:
        return self._replica.client

    def cancel(self) -> None:
        self._cancelled = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.task.cancel)

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
            self.task.cancel()

    async def _run(self) -> None:
        try:
            self._items.put_nowait(await self._generate())
        except EngineError as error:
            self._items.put_nowait(error)
        except asyncio.CancelledError:
            self._items.put_nowait(self._finished("cancelled"))
        except Exception as error:
            log.exception("a server's stream could not be read")
            url = self._client.endpoint
            self._items.put_nowait(
                EngineError(f"{url} sent what cannot be read: {describe_error(error)}.")
            )

    # --- requests ---

    async def _generate(self) -> Finished:
        self._items.put_nowait(Prefill(0, len(self.request.prompt), 0))
        if self.request.max_tokens == 0 and not self._client.backend.prefill_without_sampling:
            return self._finished("length")
        allowed: list[int] | None = None
        while True:
            max_tokens, limit_reason = self._remaining()
            if max_tokens <= 0 and self.request.max_tokens != 0:
                return self._finished(limit_reason)
            # A token among few is requested alone; then the model may generate freely again.
            reason = await self._complete(max_tokens if allowed is None else 1, allowed)
            if reason is None:
                if allowed is not None or self.request.constraint is None:
                    raise EngineError(
                        f"{self._client.endpoint} sent a token that the answer's form does not allow."
                    )
                allowed = self.request.constraint.allowed().tolist()
            elif allowed is not None and reason == "length":
                allowed = None
            else:
                return self._finished(limit_reason if reason == "length" else reason)

    def _remaining(self) -> tuple[int, FinishReason]:
        """Return how many tokens may still be generated, and the reason of that limit."""
        room = self._replicas.context_length - len(self.request.prompt) - len(self._generated)
        limit = self.request.max_tokens
        if limit is None or limit - len(self._generated) > room:
            return room, "context"
        return limit - len(self._generated), "length"

    async def _complete(self, max_tokens: int, allowed: list[int] | None) -> FinishReason | None:
        """Request one completion; None: the constraint rejected a token. As long as there is no token,
        a failed request is repeated, but not on server after server, as it may be what they fail at.
        Raises EngineError."""
        failed_at: float | None = None
        pauses = iter(self._client.timing.retry_pauses)
        while True:
            try:
                return await self._watched_stream(max_tokens, allowed)
            except EngineBusyError:
                if self._generated or not self._try_another():
                    raise
            except (httpx2.TransportError, ServerUnavailableError) as error:
                url, count = self._client.endpoint, len(self._generated)
                reason = describe_error(error)
                self._replicas.mark_away(self._replica, reason)
                if count:
                    raise EngineError(
                        f"The server at {url} went away after {count:,} tokens ({reason});"
                        " what was written is kept."
                    ) from None
                log.warning("%s fails (%s); asking again", url, reason)
                if isinstance(error, httpx2.ConnectError) and self._try_another():
                    continue
                if (pause := next(pauses, None)) is None:
                    raise EngineError(f"The server at {url} fails ({reason}).") from None
                if self._try_another():
                    continue
                failed_at = failed_at or time.monotonic()
                await asyncio.sleep(pause)
                await self._wait_until_healthy(failed_at)

    def _try_another(self) -> bool:
        other = self._replicas.choose_another(self.request, self._tried)
        if other is None:
            return False
        self._go_to(other)
        return True

    def _go_to(self, replica: Replica) -> None:
        self._replicas.release(self._replica)
        self._replicas.acquire(replica, self.request)
        self._replica = replica
        self._tried.add(replica)

    async def _wait_until_healthy(self, failed_at: float) -> None:
        """Wait for a restarting server, and report that to the reader; a background request does not
        wait. ``failed_at``: time.monotonic of the first failure. Raises EngineError."""
        endpoint, timing = self._replicas.endpoint, self._client.timing
        server = f"{endpoint.engine} at {endpoint}"
        is_reported = False
        while isinstance(ready := await self._replicas.find_ready(self._replica), HealthProblem):
            problem = ready
            max_wait = timing.loading_wait if problem.loading else timing.unreachable_wait
            max_wait = max_wait if endpoint.wait is None else endpoint.wait
            if self.request.background or time.monotonic() - failed_at >= max_wait:
                hint = "try again later" if problem.loading else "start it, or correct its url"
                after = "" if self.request.background else f" after {max_wait:g} s"
                raise EngineError(f"{server} {problem}{after}: {hint}.")
            if not is_reported:
                is_reported = True
                self._items.put_nowait(Waiting(f"{server} {problem}; waiting for it …"))
            await asyncio.sleep(timing.retry_poll)
        self._tried.clear()
        self._go_to(ready)
        if is_reported:
            await self._replicas.rejoin(ready)  # it may serve another model now
            self._began = time.perf_counter()
            self._items.put_nowait(Waiting(f"{server} can answer again."))

    # --- the stream ---

    async def _watched_stream(
        self, max_tokens: int, allowed: list[int] | None
    ) -> FinishReason | None:
        """As `_stream`; a server that has gone in silence is noticed."""
        self._heard_at = time.monotonic()
        watch = asyncio.create_task(self._watch(asyncio.current_task()))
        try:
            return await self._stream(max_tokens, allowed)
        except asyncio.CancelledError:
            if not self._gone or self._cancelled:
                raise
            self.task.uncancel()
            reason, self._gone = self._gone, ""
            raise ServerUnavailableError(reason) from None
        finally:
            watch.cancel()

    async def _watch(self, stream: asyncio.Task[object] | None) -> None:
        """Cancel a stream whose server has gone, or hangs, once it is silent."""
        assert stream is not None
        timing, asked_at = self._client.timing, 0.0
        while True:
            heard_at = self._heard_at
            await asyncio.sleep(max(heard_at, asked_at) + timing.silence - time.monotonic())
            if self._heard_at != heard_at:
                continue
            asked_at = time.monotonic()
            with suppress(EngineError):
                problem = await self._client.check_health(new_connection=True)
                if self._heard_at != heard_at:
                    continue
                if problem and problem.refused:
                    self._gone = "it is silent, and nothing listens there"
                elif (problem or self._generated) and asked_at >= heard_at + timing.stall:
                    self._gone = f"it has said nothing for {timing.stall:g} s"
                if self._gone:
                    stream.cancel()
                    return

    async def _stream(self, max_tokens: int, allowed: list[int] | None) -> FinishReason | None:
        """Request a completion and pass its tokens on; None: the constraint rejected a token.
        Raises ServerUnavailableError, httpx2.TransportError or EngineError."""
        client = self._client
        body = client.backend.completion_body(self.request, max_tokens, allowed)
        body["model"] = client.served_model  # for a router; other servers ignore it
        body["prompt"] = [*self.request.prompt, *self._generated]
        body["stream"] = allowed is None
        reason: FinishReason | None = None
        count, is_first_request = 0, not self._generated
        path = client.backend.completion_path
        async with client.http.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode("utf-8", "replace")
                if response.status_code >= 500:
                    raise ServerUnavailableError(
                        f"HTTP {response.status_code}: {error_message(text)}"
                    )
                raise client.refusal(response.status_code, text)
            messages = read_messages(response, client)
            async for message in messages:
                self._heard_at = time.monotonic()
                chunk = client.backend.parse_chunk(message)
                if not self._generated:
                    self._report_prefill(chunk)
                if chunk.ids and chunk.count is not None:
                    if chunk.count - count > len(chunk.ids):
                        # llama-server streams the last token of a character, with the text of all.
                        chunk.ids = client.vocabulary.encode_text(chunk.text)
                    count = chunk.count
                if chunk.ids and not await self._accept(chunk):
                    return None
                if (reason := "stop" if self._stopped else chunk.reason) is not None:
                    break
            if reason is None:
                raise ServerUnavailableError("the stream broke off")
            if is_first_request and allowed is None and client.backend.usage_last:
                await self._read_usage(messages)
        return reason

    async def _read_usage(self, messages: AsyncIterator[Json]) -> None:
        """Read the usage after the last token, with the cached prompt tokens; it may be missing."""
        failures = (httpx2.TransportError, ServerUnavailableError, EngineError, ValueError)
        with suppress(TimeoutError, *failures):
            async with asyncio.timeout(self._client.timing.usage_timeout):
                async for message in messages:
                    if (cached := self._client.backend.parse_chunk(message).cached) is not None:
                        self._cached = cached

    def _report_prefill(self, chunk: CompletionChunk) -> None:
        total = len(self.request.prompt)
        self._cached = chunk.cached if chunk.cached is not None else self._cached
        if chunk.prefill is not None and chunk.prefill.total == total:
            self._items.put_nowait(chunk.prefill)
        if chunk.ids:
            self._first = time.perf_counter()
            self._items.put_nowait(Prefill(total, total, self._cached))

    async def _accept(self, chunk: CompletionChunk) -> bool:
        """Pass on the ids up to a stop id, or up to the first that is rejected; then return False."""
        if self.request.max_tokens == 0:
            return True  # llama-server generates a token all the same
        constraint, accepted = self.request.constraint, 0
        for token in chunk.ids:
            if constraint is not None:
                if (grammar := constraint.pending) is not None:
                    await asyncio.wait({asyncio.wrap_future(grammar)})
                if not constraint.accept(token):
                    break
            accepted += 1
            if token in self.request.stop_ids:
                break
        if accepted:
            ids = chunk.ids[:accepted]
            self._generated += ids
            self._items.put_nowait(Tokens(ids, self._logprobs(chunk, ids)))
        return accepted == len(chunk.ids) or self._stopped

    @property
    def _stopped(self) -> bool:
        return bool(self._generated) and self._generated[-1] in self.request.stop_ids

    def _logprobs(self, chunk: CompletionChunk, ids: Sequence[int]) -> list[Logprob | None] | None:
        """Return a log probability for each id, if requested; None for ids that the server left out."""
        if (alternatives := self.request.logprobs) is None:
            return None
        rows: list[Logprob | None] = []
        reported = iter(chunk.logprobs)
        following = next(reported, None)
        for token in ids:
            if following is None or following.token != token:
                rows.append(None)
            else:
                rows.append(Logprob(token, following.logprob, following.top[:alternatives]))
                following = next(reported, None)
        return rows

    def _finished(self, reason: FinishReason) -> Finished:
        now = time.perf_counter()
        first = self._first if self._generated else now
        reason = "cancelled" if self._cancelled else reason
        tokens = len(self.request.prompt), self._cached, len(self._generated)
        return Finished(reason, *tokens, first - self._began, now - first)


class RemoteEngine:
    """An Engine whose model a server runs."""

    def __init__(
        self,
        endpoint: RemoteEndpoint,
        vocabulary: RemoteVocabulary,
        *,
        api_key: str | None = None,
        context: int | None = None,
        timing: RemoteTiming | None = None,
    ) -> None:
        self.name = endpoint.engine
        clients = [
            RemoteClient(each, vocabulary, api_key=api_key, max_context=context, timing=timing)
            for each in endpoint.replicas()
        ]
        self.replicas = Replicas(endpoint, clients)
        self._running: set[RemoteGeneration] = set()

    @property
    def context_length(self) -> int:
        return self.replicas.context_length

    @property
    def unfinished(self) -> int:
        return sum(not generation.request.background for generation in self._running)

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        if self.replicas.is_open:
            return
        await self.replicas.open(progress)
        if progress:
            progress(1.0)

    def generate(self, request: Request) -> RemoteGeneration:
        if not self.replicas.is_open:
            raise EngineError("The model is not loaded yet.")
        request.require_room(self.context_length)
        generation = RemoteGeneration(self.replicas, request)
        self._running.add(generation)
        generation.task.add_done_callback(lambda task: self._running.discard(generation))
        return generation

    async def close(self) -> None:
        connections = self.replicas.detach()
        for generation in self._running:
            generation.cancel()
        if self._running:
            await asyncio.wait({generation.task for generation in self._running})
        for http in connections:
            await http.aclose()


async def read_messages(response: httpx2.Response, client: RemoteClient) -> AsyncIterator[Json]:
    """Yield the JSON objects of an event stream, or the single one of a plain answer. Raises for an
    error among them: EngineError where the request is at fault, else ServerUnavailableError."""
    if "json" in response.headers.get("content-type", ""):
        yield json.loads(await response.aread())
        return
    response.headers["content-type"] = "text/event-stream"  # some proxies do not pass it on
    async for event in httpx2.EventSource(response, max_event_size=None):
        data = event.data.strip()
        if not data or data == "[DONE]":
            continue
        message = json.loads(data)
        if event.event == "error" or "error" in message:
            # vLLM and llama-server have the HTTP code in different places.
            error = message.get("error")
            code = error.get("code") if isinstance(error, dict) else message.get("code")
            if isinstance(code, int) and 400 <= code < 500:
                raise client.refusal(code, data)
            raise ServerUnavailableError(error_message(data))
        yield message

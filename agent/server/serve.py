"""`agent serve`: the endpoint as its own program, and beside the app (`agent --serve`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import uvicorn

from agent import bootstrap
from agent.cli.shared import Shared
from agent.config.settings import settings
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.runtime.runtime import Runtime
from agent.server.app import MAX_BODY, Endpoint, create
from agent.server.auth import is_loopback
from agent.server.sse import OPEN_RESPONSES, Wire
from agent.store.responses import DAYS, MOST, Archive
from agent.turn.endings import EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE, ending_signals
from agent.turn.options import Options
from agent.util.sanitize import say

log = logging.getLogger(__name__)

HOST, PORT = "127.0.0.1", 8080
DRAIN_SECONDS = 20.0
"""So long running responses may go on after the server was asked to end; then they are cancelled."""
KEEP_SECONDS = 15
"""So long an idle connection stays: longer than clients keep theirs (5 s with openai-python), for who
sends on one that is just being closed gets no answer."""
CLOSE_SECONDS = 5.0
"""So long clients have to take what is left for them."""


def listen(host: str, port: int, api_key: str | None) -> socket.socket:
    """The socket to serve on; port 0 takes a free one. Raises UserError."""
    if not is_loopback(host) and not api_key:
        raise UserError(
            f"--host {host} lets other machines in: set a key with --api-key, or stay on {HOST}."
        )
    try:
        if port not in range(65536):
            raise OverflowError("ports go from 0 to 65535")
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot listen on {host} port {port}: {reason}.") from error
    return listener


def address(listener: socket.socket) -> str:
    """What clients take as their base URL."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/v1"


def main(
    shared: Shared,
    *,
    host: str = HOST,
    port: int = PORT,
    api_key: str | None = None,
    allow_origins: Collection[str] = (),
    keep_alive: float | None = None,
    face: Face | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Raises UserError."""
    runtime = bootstrap.runtime(shared, tools="none", keep_alive=keep_alive)
    options = bootstrap.options(shared, runtime.model)
    listener = listen(host, port, api_key)
    # The operator's tools are exposed: there are none but those that --tools named.
    face = replace(face or Face(), api_key=api_key, allow_origins=allow_origins, expose_tools=True)
    return asyncio.run(_main(runtime, options, listener, face))


async def _main(runtime: Runtime, options: Options, listener: socket.socket, face: Face) -> int:
    server = Server(runtime, options, listener, face)
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, server.end)
    await runtime.start()
    serving = asyncio.create_task(server.run())
    try:
        code = await _ready(runtime, server)
        if code == EXIT_DONE and not server.ending:
            say(f"{runtime.model.name} is served at {address(listener)} (Ctrl-C ends it)")
        if code != EXIT_DONE:
            server.end()
        await serving
    finally:
        await runtime.close()
    return code


async def _ready(runtime: Runtime, server: Server) -> int:
    """Wait for model and tools; where they do not come there is nothing to serve."""
    loading = asyncio.create_task(runtime.ready())
    ended = asyncio.create_task(server.asked_to_end())
    await asyncio.wait({loading, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not loading.done():
        loading.cancel()
        return EXIT_DONE
    try:
        loading.result()
    except EngineError as error:
        say(f"agent: {error}", file=sys.stderr)
        return EXIT_FAILED
    missing = [s for s in runtime.host.servers() if s.required and s.status != "ready"]
    for state in missing:
        why = f": {state.error}" if state.error else ""
        say(f"agent: The required server {state.name} is not available{why}", file=sys.stderr)
    return EXIT_UNAVAILABLE if missing else EXIT_DONE


async def serve_in(
    runtime: Runtime,
    options: Options,
    listener: socket.socket,
    *,
    api_key: str | None = None,
    expose_tools: bool = False,
    allow_origins: Collection[str] = (),
) -> None:
    """Serve inside another program's loop until cancelled; signals and runtime are its own affair.

    ``listener``: from `listen`. ``expose_tools``: requests may name the operator's tools.
    """
    face = Face(api_key=api_key, allow_origins=allow_origins, expose_tools=expose_tools)
    server = Server(runtime, options, listener, face)
    serving = asyncio.create_task(server.run())
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.end()
        server.end()
        await serving
        raise


@dataclass(frozen=True, slots=True)
class Face:
    """How a server shows itself."""

    api_key: str | None = None
    allow_origins: Collection[str] = ()
    expose_tools: bool = False
    """Requests may name the operator's tools."""
    store: bool = True
    """Responses are kept on disk; else in memory, as long as the process."""
    reasoning_events: Literal["openai", "open-responses"] = "openai"
    """What the events of raw reasoning are called."""
    private_urls: bool = False
    """A request's own MCP servers may lie at any address."""


class Server:
    """One listening endpoint; `end` it once to drain, twice to hurry."""

    def __init__(
        self, runtime: Runtime, options: Options, listener: socket.socket, face: Face
    ) -> None:
        """Raises UserError."""
        self._archive = _archive(runtime) if face.store else None
        app = create(
            runtime,
            options,
            api_key=face.api_key,
            local=is_loopback(listener.getsockname()[0]),
            expose_tools=face.expose_tools,
            allow_origins=face.allow_origins,
            archive=self._archive,
            wire=Wire(OPEN_RESPONSES if face.reasoning_events == "open-responses" else None),
            private_urls=face.private_urls,
        )
        self.endpoint: Endpoint = app.state.endpoint
        self.ending = False
        self._asked = asyncio.Event()
        self._listener = listener
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="websockets-sansio",
            ws_max_size=2 * MAX_BODY,  # what is a little too long is told so, as over HTTP
            ws_per_message_deflate=False,
            timeout_keep_alive=KEEP_SECONDS,
            timeout_graceful_shutdown=int(DRAIN_SECONDS + CLOSE_SECONDS),
        )
        self._uvicorn = _Uvicorn(config, self.endpoint)

    async def run(self) -> None:
        try:
            await self._uvicorn.serve([self._listener])
            await self.endpoint.drained()
        finally:
            if self._archive is not None:
                self._archive.close()

    async def asked_to_end(self) -> None:
        await self._asked.wait()

    def end(self) -> None:
        """No new requests; running responses go on for a while. Again: they end now."""
        if self.ending:
            self.endpoint.stop_all()
            return
        self.ending = self.endpoint.ending = True
        self._asked.set()
        self._uvicorn.should_exit = True
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.endpoint.stop_all)


def _archive(runtime: Runtime) -> Archive:
    said = settings(runtime.where)
    days, most = said.responses_days, said.responses_most
    return Archive(
        runtime.where.store,
        days=DAYS if days is None else days,
        most=MOST if most is None else most,
    )


class _Uvicorn(uvicorn.Server):
    """Signals belong to the program around it; connections stay until their responses have ended."""

    def __init__(self, config: uvicorn.Config, endpoint: Endpoint) -> None:
        super().__init__(config)
        self._endpoint = endpoint

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        with contextlib.suppress(TimeoutError):  # a WebSocket would be closed at once
            await asyncio.wait_for(self._endpoint.drained(), DRAIN_SECONDS + CLOSE_SECONDS)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

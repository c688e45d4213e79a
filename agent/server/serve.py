"""Runs the HTTP server: as a program (``agent serve``), and within the app (``agent --serve``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import sqlite3
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import uvicorn

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.config.settings import load_settings
from agent.engine.grammars import ANY_OBJECT
from agent.engine.protocol import EngineError
from agent.errors import UserError, user_errors
from agent.models.catalog import Model
from agent.models.resolve import resolve_model
from agent.observability.logging import open_log_file
from agent.runtime.runtime import Runtime
from agent.server.app import create_app, health_problem
from agent.server.batch.batches import BatchQueue
from agent.server.http.access import is_loopback
from agent.server.http.connections import ConnectionLimits, close_late
from agent.server.http.options import DEFAULT_HOST, ServerOptions
from agent.server.http.signals import stop_on_signals
from agent.server.responses.models import ServedModels
from agent.server.responses.service import ResponseService
from agent.store.conversations import Store, StoreError
from agent.store.responses import MAX_DAYS, MAX_RESPONSES, ResponseStore
from agent.turn.options import TurnOptions
from agent.util.process import EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE
from agent.util.sanitize import echo

ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+/?")
"""An ``Origin`` of a browser or an app, or a star for all."""
log = logging.getLogger(__name__)

DRAIN_SECONDS = 20.0
"""Time that running responses have after a drain began; then they are cancelled."""
SILENCE_SECONDS = 1.0
"""Time that another server that runs the model has to answer when a drain begins."""
IDLE_CONNECTION_SECONDS = 15
"""Longer than clients keep theirs (openai-python: 5 s): a request on a closing one gets no answer."""
ACCEPT_BATCH = 64
"""Connections that are accepted before the event loop runs other tasks."""
CLOSE_SECONDS = 5.0
"""Time that clients have to read the rest of their answers."""
TICKS_PER_SECOND = 10
"""Rate at which uvicorn's server calls ``on_tick``."""


def listen(host: str, port: int, api_keys: Collection[str] | None) -> socket.socket:
    """Open the socket to serve on; port 0: any. Raises UserError, as for an open host without a key."""
    if not is_loopback(host) and not any(api_keys or ()):
        raise UserError(
            f"--host {host} lets other machines in: set a key with --api-key,"
            f" or stay on {DEFAULT_HOST}."
        )
    try:
        if port not in range(65536):
            raise OverflowError("ports go from 0 to 65535")
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot listen on {host} port {port}: {reason}.") from error
    return listener


def base_url(listener: socket.socket) -> str:
    """The base URL that clients need: ``http://HOST:PORT/v1``."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/v1"


def main(
    launch: LaunchOptions,
    options: ServerOptions,
    *,
    keep_alive: float | None = None,
    parallel: int | None = None,
    models: str | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. ``keep_alive``: seconds until an idle
    model is unloaded; None: as configured. ``parallel``: generations. ``models``: names of those that
    stay loaded. Raises UserError."""
    for alias in options.aliases:
        if not alias.isprintable() or not alias.strip():
            raise UserError(f"--alias must be a name, not {alias!r}.")
    for origin in options.allow_origins:
        if not ORIGIN.fullmatch(origin):
            raise UserError(
                f"--allow-origin must be an origin such as http://localhost:3000, not {origin!r}."
            )
    names = [name.strip() for name in (models or "").split(",") if name.strip()]
    if launch.model is None and names:
        launch = replace(launch, model=names[0])
    runtime = bootstrap.create_runtime(
        launch, tools="none", keep_alive=keep_alive, parallel=parallel
    )
    served = serve_models(runtime, launch, options, names, keep_alive)
    listener = listen(options.host, options.port, options.api_keys)
    options = replace(options, expose_tools=True)
    return asyncio.run(_main(served, listener, options))


def serve_models(
    runtime: Runtime,
    launch: LaunchOptions,
    options: ServerOptions,
    pinned: Sequence[str] = (),
    keep_alive: float | None = None,
) -> ServedModels:
    """All models of this machine, of which that of ``runtime`` is the first; a script is the only one.
    ``pinned``: names of those that stay loaded. Raises UserError."""

    def create(model: Model) -> tuple[Runtime, TurnOptions]:
        choices = (keep_alive, model.keep_alive, load_settings(runtime.paths).keep_alive)
        seconds = next((choice for choice in choices if choice is not None), None)
        return runtime.beside(model, seconds), turn_options(model)

    def turn_options(model: Model) -> TurnOptions:
        return replace(bootstrap.turn_options(launch, model), private=not options.store)

    with user_errors(EngineError):
        models = [resolve_model(name, runtime.paths) for name in pinned]
    further = create if runtime.script is None else None
    return ServedModels(runtime, turn_options(runtime.model), further, models)


async def _main(models: ServedModels, listener: socket.socket, options: ServerOptions) -> int:
    runtime = models.first.runtime
    server = HttpServer(models, listener, options, await open_store(runtime, options))
    stop_on_signals(*2 * [lambda _: server.drain()])
    await runtime.start()
    serving = asyncio.create_task(server.serve())
    try:
        code = await _wait_ready(runtime, server)
        if code == EXIT_DONE and not server.service.draining:
            echo(f"{runtime.model.name} is served at {base_url(listener)} (Ctrl-C stops)")
        if code != EXIT_DONE:
            server.drain()
        await serving
    finally:
        await runtime.close()
    return code


async def _wait_ready(runtime: Runtime, server: HttpServer) -> int:
    """Wait for the model and the required MCP servers; return an exit code, 0: continue to serve."""
    loading = asyncio.create_task(server.service.models.ready())
    draining = asyncio.create_task(server.drain_requested.wait())
    await asyncio.wait({loading, draining}, return_when=asyncio.FIRST_COMPLETED)
    draining.cancel()
    if not loading.done():
        loading.cancel()
        return EXIT_DONE
    try:
        loading.result()
    except EngineError as error:
        echo(f"agent: {error}", file=sys.stderr)
        return EXIT_FAILED
    if runtime.host.withheld and runtime.host.server_states():
        echo(f"agent: {runtime.host.withheld}", file=sys.stderr)
    if runtime.script is None and runtime.format is not None:
        # The first grammar holds the GIL for 0.45 s: at the start, not in a client's request.
        await runtime.format.grammars.wait_compiled(ANY_OBJECT)
    missing = [s for s in runtime.host.server_states() if s.required and s.status != "ready"]
    for state in missing:
        why = f": {state.error}" if state.error else ""
        echo(f"agent: The required server {state.name} is not available{why}", file=sys.stderr)
    return EXIT_UNAVAILABLE if missing else EXIT_DONE


async def serve_in(
    runtime: Runtime, turn_defaults: TurnOptions, listener: socket.socket, options: ServerOptions
) -> None:
    """Serve in another program's event loop until cancelled. Raises UserError."""
    store = await open_store(runtime, options)
    server = HttpServer(ServedModels(runtime, turn_defaults), listener, options, store)
    serving = asyncio.create_task(server.serve())
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.drain()
        server.drain()
        await serving
        raise


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers, which end the program by the signal at last."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer(QuietServer):
    """The server on one listening socket; call `drain` once to end it, twice to end it at once."""

    def __init__(
        self,
        models: ServedModels,
        listener: socket.socket,
        options: ServerOptions,
        store: ResponseStore | None,
    ) -> None:
        """``store``: it is closed in the end; None: responses stay in memory."""
        self._store = store
        local = is_loopback(listener.getsockname()[0])
        self._app = app = create_app(models, options, loopback_only=local, store=store)
        self._batches: BatchQueue | None = app.state.batches
        self.service: ResponseService = app.state.service
        self.drain_requested = asyncio.Event()
        self._silence: asyncio.Task[None] | None = None
        """Checks, in a drain, whether the model's server is silent."""
        self._listener = listener
        self.limits = ConnectionLimits(
            app,
            self.service.body_budget,
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            lifespan="off",
            backlog=ACCEPT_BATCH,
            ws_max_size=2 * options.max_body_bytes,  # a little more is read, to refuse it in words
            ws_per_message_deflate=False,
            timeout_keep_alive=IDLE_CONNECTION_SECONDS,
            timeout_graceful_shutdown=int(DRAIN_SECONDS + CLOSE_SECONDS),
        )
        super().__init__(self.limits)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until drained; every response has ended and is stored then (extends uvicorn's)."""
        open_log_file()
        try:
            if self._batches is not None:
                # One slot is kept for clients that wait for an answer.
                parallel = max(1, self.service.runtime.provider.loader.sequences - 1)
                self._batches.start(self._app, parallel, self._app.state.clients)
            await super().serve(sockets or [self._listener])
            await self.service.wait_idle()
        finally:
            if self._silence is not None:
                self._silence.cancel()
            if self._batches is not None:
                await self._batches.close()
            if self._store is not None:
                await asyncio.to_thread(self._store.store.close)

    def drain(self) -> None:
        """Accept no more requests; running responses have `DRAIN_SECONDS`. The second call stops
        them, and the first does where they still wait for the model."""
        if self.service.draining:
            self.service.stop_all()
            return
        self.service.draining = True
        self.drain_requested.set()
        if self._batches is not None:
            self._batches.stop()
        self.should_exit = True
        self.service.models.stop_waiting()
        for turn in list(self.service.running):
            if turn.runtime.loaded is None:
                turn.stop()
        self._silence = asyncio.create_task(self._stop_if_silent())
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.service.stop_all)

    async def _stop_if_silent(self) -> None:
        """Stop the responses that wait for another server which does not answer."""
        seen = {turn: len(turn.log.events) for turn in self.service.running}
        for runtime in {turn.runtime for turn in seen}:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_SECONDS):
                    if await health_problem(runtime) is None:
                        continue
            for turn, events in seen.items():
                if turn.runtime is runtime and len(turn.log.events) == events:
                    turn.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Let more connections wait than are accepted in a batch (extends uvicorn's)."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(socket.SOMAXCONN)

    async def on_tick(self, counter: int) -> bool:
        """Once a second, close connections whose requests do not arrive (extends uvicorn's)."""
        if counter % TICKS_PER_SECOND == 0:
            close_late(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the responses before connections are closed (overrides uvicorn's)."""
        for server in self.servers:
            server.close()
        with contextlib.suppress(TimeoutError):  # uvicorn closes WebSockets at once
            await asyncio.wait_for(self.service.wait_idle(), DRAIN_SECONDS + CLOSE_SECONDS)
        await super().shutdown(sockets)


async def open_store(runtime: Runtime, options: ServerOptions) -> ResponseStore | None:
    if not options.store:
        return None
    settings = load_settings(runtime.paths)
    # Neither can be set to 0.
    days, most = settings.responses_days or MAX_DAYS, settings.responses_max or MAX_RESPONSES
    failure = f"The store {runtime.paths.store} cannot be used"
    with user_errors(StoreError), user_errors(sqlite3.Error, failure=failure):
        return await asyncio.to_thread(
            lambda: ResponseStore(Store(runtime.paths.store), days=days, max_responses=most)
        )

"""The endpoints, as an ASGI application over one runtime."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from agent.events import Event, OutputItemDone
from agent.models.catalog import Model
from agent.observability.metrics import CONTENT_TYPE, Metrics
from agent.runtime.runtime import Runtime
from agent.server import chat_completions, compaction, openapi, routes_responses, websocket
from agent.server.auth import Guard, read_body
from agent.server.errors import JSON, ApiError, broken, too_many
from agent.server.parsing import parse
from agent.server.planner import Exposed, Plan, named_model, plan
from agent.server.response_cache import Memo, Memory
from agent.server.schemas import CreateResponse
from agent.server.sse import Body, EventStream, Wire
from agent.store.responses import Archive
from agent.turn.endings import RATE_LIMIT
from agent.turn.loop import Turn
from agent.turn.options import Options

log = logging.getLogger(__name__)

MAX_BODY = 32 * 1024 * 1024
"""Bytes of a request; a resent history with its tool results can be long."""
MAX_RUNNING = 256
"""Responses that run or wait for the engine; more are told to come back."""


class Endpoint:
    """Answers requests with turns, and knows which of them run."""

    def __init__(
        self,
        runtime: Runtime,
        base: Options,
        *,
        expose_tools: bool,
        archive: Archive | None = None,
        wire: Wire,
        private_urls: bool = False,
        max_body: int = MAX_BODY,
    ) -> None:
        self.runtime, self.base, self.wire, self.max_body = runtime, base, wire, max_body
        self.memory, self.memo = Memory(archive), Memo()
        self.running: dict[Turn, Plan] = {}
        self.ending = False
        """Nothing new is begun."""
        self._background: set[asyncio.Task[None]] = set()
        self.began = int(time.time())
        self._metrics = Metrics(runtime)
        self._exposed = Exposed(runtime, expose_tools, private_urls)

    def stop_all(self) -> None:
        """Every response ends now, as cancelled."""
        for turn in list(self.running):
            turn.stop()

    async def drained(self) -> None:
        """Until every response has ended, those too that nobody waits for."""
        while self._background:
            await asyncio.wait(self._background)

    def awaited(self, work: asyncio.Task[None]) -> None:
        """The server does not end before this does."""
        self._background.add(work)
        work.add_done_callback(self._background.discard)

    async def create(self, request: Request) -> Response:
        """POST /v1/responses"""
        wanted = parse(await read_body(request, self.max_body))
        turn = await self.begin(wanted)
        stays = self.running[turn].background
        if wanted.stream:
            return EventStream(turn, self, self.wire, stays=stays)
        return routes_responses.shown(routes_responses.now(turn)) if stays else Body(turn, self)

    async def begin(
        self, wanted: CreateResponse, kind: type[Turn] = Turn, memory: Memory | None = None
    ) -> Turn:
        """The turn that answers, started; whoever shows it calls `ended`. Raises ApiError.

        ``memory``: of the responses that it may go on from, where that is not everybody's.
        """
        self._takes_more()
        made = await plan(
            wanted, self.runtime, self.base, self._exposed, memory or self.memory, self.memo, kind
        )
        try:
            self._takes_more()  # others were planned meanwhile
        except ApiError:
            self._leave(made)
            raise
        turn = made.turn.start()
        self.running[turn] = made
        await self._admitted(turn)
        if made.store:
            self.memory.begin(made.kept())
            turn.log.first = lambda event: self._came(made, event)
        if made.background:
            self.awaited(asyncio.create_task(self._until_ended(turn)))
        return turn

    def _takes_more(self) -> None:
        """Raises ApiError."""
        if self.ending:
            raise ApiError(503, "This server is about to end.", code="server_error")
        if len(self.running) >= MAX_RUNNING:
            raise too_many()

    async def _admitted(self, turn: Turn) -> None:
        """The engine has a place for it. Raises ApiError."""
        try:
            await turn.admitted.wait()
        except BaseException:
            self.abandon(turn)
            raise
        error = turn.response.error
        if error is not None and error.code == RATE_LIMIT:
            self._leave(self.running.pop(turn))
            raise too_many(error.message)

    def _came(self, made: Plan, event: Event) -> None:
        """What is seen as finished is kept, even if this process is killed."""
        if isinstance(event, OutputItemDone) and made.store:
            self.memory.begin(made.kept())

    def abandon(self, turn: Turn) -> None:
        """Nobody is there for it any more: it stops, and is kept once it has ended. Harmless when it
        has ended."""
        if turn not in self.running:
            return
        turn.stop()
        self.awaited(asyncio.create_task(self._until_ended(turn)))

    async def _until_ended(self, turn: Turn) -> None:
        await turn.done()
        self.ended(turn)

    async def input_tokens(self, request: Request) -> Response:
        """POST /v1/responses/input_tokens: how long the prompt would be; nothing is begun."""
        wanted = parse(await read_body(request, self.max_body))
        made = await plan(wanted, self.runtime, self.base, self._exposed, self.memory, self.memo)
        self._leave(made)
        return JSON({"object": "response.input_tokens", "input_tokens": made.turn.prepare()})

    def ended(self, turn: Turn) -> None:
        """Keep of it what may be asked for; harmless when called again."""
        made = self.running.pop(turn, None)
        if made is None:
            return
        made.teach(self.memo)
        self._leave(made)
        if made.store:
            self.memory.keep(made.kept())
        if not self.running:
            self.memory.rest()

    def _leave(self, made: Plan) -> None:
        """The servers that the request brought end with it."""
        if made.turn.host is not self.runtime.host:
            self.awaited(asyncio.create_task(made.turn.host.close()))

    async def models(self, request: Request) -> Response:
        """GET /v1/models"""
        return JSON({"object": "list", "data": [self._model(self.runtime.model)]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{id}"""
        named_model(request.path_params["id"], self.runtime)
        return JSON(self._model(self.runtime.model))

    def _model(self, model: Model) -> dict[str, object]:
        return {
            "id": model.name,
            "object": "model",
            "created": self.began,
            "owned_by": "local",
            "aliases": ["default", *(name for name in model.aliases if "/" not in name)],
            "context_length": self.runtime.context_length,
        }

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: counters of all turns, in Prometheus's text format."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def health(self, request: Request) -> Response:
        """GET /health: 200 once the model is loaded, also while it sleeps until the next request; 503
        where it runs on a server that cannot answer."""
        if (trouble := await self.runtime.trouble()) is not None:
            return ApiError(503, trouble, code="model_not_available").response()
        ready = self.runtime.loaded or self.runtime.asleep
        status = "ok" if self.runtime.loaded else "asleep" if ready else "loading"
        return JSON({"status": status, "running": len(self.running)}, 200 if ready else 503)


def create(
    runtime: Runtime,
    base: Options | None = None,
    *,
    api_key: str | None = None,
    local: bool = True,
    expose_tools: bool = False,
    allow_origins: Collection[str] = (),
    archive: Archive | None = None,
    wire: Wire | None = None,
    private_urls: bool = False,
    max_body: int = MAX_BODY,
) -> Starlette:
    """The application; its ``state.endpoint`` is the Endpoint.

    ``base``: the operator's settings of a turn. ``local``: bound to loopback, so only local names
    are answered to. ``expose_tools``: requests may name the operator's servers and hands.
    ``archive``: where responses are stored; None: in memory only. ``wire``: how events are written.
    ``private_urls``: a request's own MCP servers may lie at addresses that are not public.
    ``max_body``: bytes.
    """
    endpoint = Endpoint(
        runtime,
        base or Options(),
        expose_tools=expose_tools,
        archive=archive,
        wire=wire or Wire(),
        private_urls=private_urls,
        max_body=max_body,
    )
    middleware = [Middleware(Guard, key=api_key, local=local, origins=allow_origins)]
    if allow_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=[origin.rstrip("/") for origin in allow_origins],
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
        )
        middleware.insert(0, cors)
    routes: list[Route | WebSocketRoute] = [
        Route("/v1/responses", endpoint.create, methods=["POST"]),
        websocket.route(endpoint),
        Route("/v1/responses/input_tokens", endpoint.input_tokens, methods=["POST"]),
        compaction.route(endpoint),
        *routes_responses.routes(endpoint),
        chat_completions.route(endpoint),
        Route("/v1/models", endpoint.models, methods=["GET"]),
        Route("/v1/models/{id:path}", endpoint.model, methods=["GET"]),
        Route("/health", endpoint.health, methods=["GET"]),
        Route("/metrics", endpoint.metrics, methods=["GET"]),
    ]
    app = Starlette(
        routes=[*routes, openapi.route(routes)],
        middleware=middleware,
        exception_handlers={
            ApiError: _refused,
            HTTPException: _no_such,
            ClientDisconnect: _gone,
            Exception: _broke,
        },
    )
    app.router.redirect_slashes = False
    app.state.endpoint = endpoint
    return app


# --- errors ---


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    log.info("%s %s: %d %s", request.method, request.url.path, error.status, error.code)
    return error.response()


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path[:200]}"
    message = (
        f"{what}: no such endpoint." if error.status_code == 404 else f"{what}: {error.detail}."
    )
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _broke(request: Request, error: Exception) -> Response:
    return broken().response()

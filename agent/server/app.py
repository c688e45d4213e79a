"""The ASGI application: all routes over one ``ResponseService``, access control, error answers."""

from __future__ import annotations

import logging
from dataclasses import replace

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from agent.observability.metrics import replicas_of
from agent.runtime.runtime import Runtime
from agent.server import openapi
from agent.server.batch.batches import BatchQueue
from agent.server.batch.file_store import FileStore
from agent.server.batch.routes_batches import BatchRoutes
from agent.server.chat import routes as chat_completions
from agent.server.http.access import AccessMiddleware, AddressMiddleware
from agent.server.http.clients import Clients
from agent.server.http.endpoints import endpoint, routes_of
from agent.server.http.errors import ApiError, internal_error
from agent.server.http.json_response import JsonResponse, error_response
from agent.server.http.options import ServerOptions
from agent.server.messages.routes import MessageRoutes
from agent.server.page import routes as page
from agent.server.raw import completions
from agent.server.raw.routes_models import ModelRoutes
from agent.server.responses import websocket
from agent.server.responses.answer_schemas import ServerHealth
from agent.server.responses.models import ServedModels
from agent.server.responses.routes_conversations import ConversationRoutes
from agent.server.responses.routes_responses import ResponseRoutes
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import OPEN_RESPONSES_NAMES, SseEncoder
from agent.store.responses import ResponseStore

log = logging.getLogger(__name__)


def create_app(
    models: ServedModels,
    options: ServerOptions,
    *,
    loopback_only: bool = True,
    store: ResponseStore | None = None,
) -> Starlette:
    """Build the application; its ``state`` has the `ResponseService`, the `Clients` and, unless nothing
    is stored, the `BatchQueue`. ``loopback_only``: only requests to local names are answered, and they
    may bring MCP servers. ``store``: None: responses stay in memory."""
    options = replace(options, client_servers=options.client_servers or loopback_only)
    service, clients = ResponseService(models, options, store), Clients(options.api_keys)
    state = service.runtime.paths.state
    batches = BatchQueue(state / "batches", FileStore(state / "files")) if options.store else None
    renames = OPEN_RESPONSES_NAMES if options.reasoning_events == "open-responses" else None
    encoder = SseEncoder(renames)
    routes: list[Route | WebSocketRoute] = [
        *routes_of(ResponseRoutes(service, encoder)),
        websocket.route(service, encoder),
        *routes_of(ConversationRoutes(service)),
        chat_completions.route(service),
        *routes_of(MessageRoutes(service)),
        completions.route(service),
        *routes_of(ModelRoutes(service)),
        *routes_of(BatchRoutes(service, batches)),
        *routes_of(_ServerRoutes(service)),
    ]
    page_routes = page.routes(service) if options.page else []
    app = Starlette(
        routes=[*routes, *page_routes, openapi.route(routes)],
        middleware=_middleware(options, loopback_only, clients),
        exception_handlers={
            ApiError: _on_api_error,
            HTTPException: _on_http_error,
            ClientDisconnect: lambda *_: Response(status_code=499),  # it has no reader
            Exception: lambda request, _: error_response(internal_error(), request.scope),
        },
    )
    app.router.redirect_slashes = False
    app.state.service, app.state.batches, app.state.clients = service, batches, clients
    return app


def _middleware(options: ServerOptions, loopback_only: bool, clients: Clients) -> list[Middleware]:
    """Addresses and access control; between these, web pages' preflights."""
    origins = [origin.rstrip("/") for origin in options.allow_origins]
    methods = ["GET", "POST", "DELETE"]
    cors = Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=["*"]
    )
    access = Middleware(
        AccessMiddleware, clients=clients, loopback_only=loopback_only, origins=origins
    )
    return [Middleware(AddressMiddleware), *([cors] if origins else []), access]


_ENDPOINTS = (
    "/v1/responses", "/v1/chat/completions", "/v1/messages", "/v1/completions", "/v1/models",
    "/health",
)  # fmt: skip


class _ServerRoutes:
    def __init__(self, service: ResponseService) -> None:
        self._service, self._runtime = service, service.runtime

    @endpoint("GET", "/metrics")
    async def metrics(self, request: Request) -> Response:
        """GET /metrics: counters of all turns and completions, in Prometheus's text format."""
        return Response(self._service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @endpoint("GET", "/")
    async def index(self, request: Request) -> Response:
        """GET /: a page for browsers; for programs and probes, the endpoints."""
        if self._service.options.page and (answer := page.index(request)) is not None:
            return answer
        return JsonResponse({"status": "ok", "endpoints": _ENDPOINTS})

    @endpoint("GET", "/health", ServerHealth)
    async def health(self, request: Request) -> Response:
        """GET /health: 200 once the model is loaded, also while it sleeps until the next request; 503
        where it runs on a server that cannot answer."""
        runtime = self._runtime
        if (problem := await health_problem(runtime)) is not None:
            return error_response(ApiError(503, problem, code="model_not_available"), request.scope)
        ready, running = runtime.loaded or runtime.asleep, len(self._service.running)
        status = "ok" if runtime.loaded else "asleep" if ready else "loading"
        return JsonResponse({"status": status, "running": running}, 200 if ready else 503)


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    log.info("%s %s: %d %s", request.method, request.url.path, error.status, error.code)
    return error_response(error, request.scope)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    endpoint = f"{request.method} {request.url.path[:200]}"
    problem = "no such endpoint" if error.status_code == 404 else error.detail
    refusal = ApiError(error.status_code, f"{endpoint}: {problem}.", headers=error.headers)
    return error_response(refusal, request.scope)


async def health_problem(runtime: Runtime) -> str | None:
    """Why the loaded model cannot answer now, in a sentence; None: it can, as far as is known. A remote
    model's server is asked, at most once a second."""
    if (replicas := replicas_of(runtime)) is None:
        return None
    problem = await replicas.cached_health()
    # Its address is not disclosed to all clients.
    name = replicas.endpoint.engine
    return None if problem is None else f"The {name} that runs the model {problem}."

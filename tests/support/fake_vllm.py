"""A fake vLLM server: it answers as its source does (docs/remote.md), and fails on demand."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agent.formats.harmony.format import HarmonyFormat

LOADING_ERROR = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
"""The body of llama-server's 503 while it loads."""


class FakeVllm:
    """Answers with vLLM's CompletionStreamResponse, TokenizeResponse and ModelCard."""

    def __init__(self, form: HarmonyFormat) -> None:
        self.form = form
        self.replies: list[list[Any] | Response] = []
        """One for each request: lists of ids, finish reasons, messages, events to wait for; or a full
        response."""
        self.bodies: list[dict[str, Any]] = []
        self.api_key: str | None = None
        self.loading = 0
        """Number of health checks that are still answered with 503; -1: all."""
        self.model = "openai/gpt-oss-120b"
        self.health_checks = 0
        """Number of requests for /health."""
        self.is_silent = False
        """Whether health checks are not answered at all."""
        self.port = 0
        self._running: tuple[uvicorn.Server, asyncio.Task[None]] | None = None
        self.app = Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/completions", self.complete, methods=["POST"]),
            ]
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(self.app, log_config=None, lifespan="off"))
        listening.listen()
        self._running = server, asyncio.create_task(server.serve([listening]))

    async def stop(self) -> None:
        """Stop listening; may be called again."""
        if self._running is not None:
            (server, task), self._running = self._running, None
            server.should_exit = server.force_exit = True
            await task

    def stop_listening(self) -> None:
        """As vLLM does when it is stopped: no new connections, and silence on the open ones."""
        assert self._running is not None
        for listening in self._running[0].servers:
            listening.close()

    async def health(self, request: HttpRequest) -> Response:
        self.health_checks += 1
        if self.is_silent:
            await asyncio.Event().wait()
        if self.loading:
            self.loading -= self.loading > 0
            return JSONResponse(LOADING_ERROR, 503)
        return Response()

    async def models(self, request: HttpRequest) -> Response:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return JSONResponse({"error": "Unauthorized"}, 401)
        card = {"id": self.model, "object": "model", "max_model_len": 1000}
        return JSONResponse({"object": "list", "data": [card]})

    async def tokenize(self, request: HttpRequest) -> Response:
        body = await request.json()
        tokens = self.form.encoding.encode(body["prompt"], allowed_special="all")
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": 1000})

    async def complete(self, request: HttpRequest) -> Response:
        if self.loading:
            return JSONResponse(LOADING_ERROR, 503)
        body = await request.json()
        self.bodies.append(body)
        reply = self.replies.pop(0)
        if isinstance(reply, Response):
            return reply
        if not body["stream"]:
            ids, reason = reply
            choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": reason}
            return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": 1}})
        return StreamingResponse(self._stream(reply), media_type="text/event-stream")

    async def _stream(self, reply: list[Any]) -> AsyncIterator[str]:
        for part in reply:
            message = part
            if isinstance(part, asyncio.Event):
                await part.wait()
                continue
            if isinstance(part, list):
                message = {"choices": [{"index": 0, "text": "", "token_ids": part}]}
            elif isinstance(part, str):
                choice = {"index": 0, "text": "", "token_ids": [], "finish_reason": part}
                message = {"choices": [choice]}
            yield f"data: {json.dumps(message)}\n\n"
        yield "data: [DONE]\n\n"

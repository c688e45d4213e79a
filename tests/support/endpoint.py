"""A real server on a loopback port, in the test's own event loop; the runtime behind it is at hand."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI

from agent import bootstrap
from agent.cli.shared import Shared
from agent.runtime import runtime as runtime_module
from agent.runtime.runtime import Runtime
from agent.server.app import Endpoint
from agent.server.serve import Face, Server, address, listen
from agent.turn import loop as turn_module
from agent.turn.loop import Turn

KEY = "a-key"


def plain_http() -> httpx2.AsyncClient:
    """Reading the certificates for a connection without TLS would take most of a test's time."""
    return httpx2.AsyncClient(timeout=60, verify=False)


@dataclass
class Served:
    """A running server, and what stands behind it."""

    url: str
    runtime: Runtime
    server: Server
    serving: asyncio.Task[None]
    turns: list[Turn] = field(default_factory=list)
    """Every turn that came through it, in order."""

    async def end(self) -> None:
        """At once; harmless when called again."""
        if not self.serving.done():
            self.server.end()
            self.server.end()
            await self.serving
            await self.runtime.close()

    @property
    def endpoint(self) -> Endpoint:
        return self.server.endpoint

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def client(self, **options: Any) -> AsyncOpenAI:
        return AsyncOpenAI(
            base_url=self.url,
            api_key=KEY,
            max_retries=0,
            http_client=plain_http(),
            _strict_response_validation=True,
            **options,
        )

    def sync_client(self) -> OpenAI:
        return OpenAI(
            base_url=self.url, api_key=KEY, max_retries=0, _strict_response_validation=True
        )

    async def post(self, body: Any = None, path: str = "", **options: Any) -> httpx2.Response:
        """POST /v1/responses, raw; ``path``: under it."""
        async with plain_http() as http:
            if "content" not in options:
                options["json"] = body
            return await http.post(f"{self.url}/responses{path}", **options)

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        async with plain_http() as http:
            return await http.get(f"{self.root}{path}", **options)

    async def stream(self, **body: Any) -> list[dict[str, Any]]:
        """The events of a streamed request; what is sent is read as strictly as it was meant."""
        answer = await self.post({**body, "stream": True})
        assert answer.status_code == 200, answer.text
        return events_of(answer.text)


def events_of(text: str) -> list[dict[str, Any]]:
    """Server-sent events, and nothing else: name and data agree, the end is marked."""
    *blocks, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    events = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert not event["type"].startswith("agent.")
        events.append(event)
    return events


def plain(value: Any) -> Any:
    """Without what differs from run to run: ids, times, what the engine had in memory."""
    match value:
        case dict():
            return {
                key: plain(one)
                for key, one in value.items()
                if key not in ("id", "call_id", "created_at", "completed_at", "cached_tokens")
            }
        case list():
            return [plain(one) for one in value]
        case _:
            return value


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
def own_logging() -> Iterator[None]:
    """The program sends all logging to its file; afterwards it is as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
async def serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_logging: None, script: Callable[..., str]
) -> AsyncIterator[Serve]:
    """Start a server: ``await serve("markup of a reply", …, tools="python")``.

    MCP servers are waited for however busy this machine is.
    """
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    for module in (runtime_module, turn_module):
        monkeypatch.setattr(module, "PATIENCE", 60.0)
    started: list[Served] = []

    async def start(
        *replies: str | dict[str, Any],
        api_key: str | None = None,
        allow_origins: tuple[str, ...] = (),
        face: dict[str, Any] | None = None,
        **options: Any,
    ) -> Served:
        engine = script(*replies) if replies else None
        shared = Shared(**{"engine": engine, "root": tmp_path, **options})
        runtime = bootstrap.runtime(shared, tools="none")
        await runtime.start()
        listener = listen("127.0.0.1", 0, api_key)
        server = Server(
            runtime,
            bootstrap.options(shared, runtime.model),
            listener,
            Face(api_key=api_key, allow_origins=allow_origins, expose_tools=True, **(face or {})),
        )
        serving = asyncio.create_task(server.run())
        served = Served(address(listener), runtime, server, serving)
        runtime.hub.listen(served.turns.append)
        started.append(served)
        return served

    yield start
    for served in started:
        await served.end()

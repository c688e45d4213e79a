"""A real server on a loopback port, in the test's own event loop; the runtime behind it is at hand."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from agent.config.launch import LaunchOptions
from agent.server.responses.models import ServedModels
from tests.support.waiting import HANG_SECONDS

if TYPE_CHECKING:  # most tests load this module's fixtures and start no server
    from openai import AsyncOpenAI, OpenAI

    from agent.runtime.runtime import Runtime
    from agent.server.responses.service import ResponseService
    from agent.server.serve import HttpServer
    from agent.turn.loop import Turn

API_KEY = "a-key"


def http_client() -> httpx2.AsyncClient:
    """Reading the certificates for a connection without TLS would take most of a test's time."""
    return httpx2.AsyncClient(timeout=HANG_SECONDS, verify=False)


@dataclass
class Served:
    """A running server, and what stands behind it."""

    url: str
    runtime: Runtime
    server: HttpServer
    serving: asyncio.Task[None]
    turns: list[Turn] = field(default_factory=list)
    """Every turn that came through it, in order."""

    async def end(self) -> None:
        """At once; harmless when called again."""
        if not self.serving.done():
            self.server.drain()
            self.server.drain()
            await self.serving
            await self.runtime.close()

    @property
    def service(self) -> ResponseService:
        return self.server.service

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def client(self, **options: Any) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self.url,
            api_key=API_KEY,
            max_retries=0,
            http_client=http_client(),
            _strict_response_validation=True,
            **options,
        )

    def sync_client(self) -> OpenAI:
        from openai import OpenAI

        return OpenAI(
            base_url=self.url, api_key=API_KEY, max_retries=0, _strict_response_validation=True
        )

    async def post(
        self, body: Any = None, path: str = "", url: str | None = None, **options: Any
    ) -> httpx2.Response:
        """POST /v1/responses, raw; ``path``: under it; ``url``: another address."""
        async with http_client() as http:
            if "content" not in options:
                options["json"] = body
            return await http.post(url or f"{self.url}/responses{path}", **options)

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        async with http_client() as http:
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


def comparable(value: Any) -> Any:
    """Without what differs from run to run: ids, times, what the engine had in memory."""
    match value:
        case dict():
            return {
                key: comparable(part)
                for key, part in value.items()
                if key not in ("id", "call_id", "created_at", "completed_at", "cached_tokens")
            }
        case list():
            return [comparable(part) for part in value]
        case _:
            return value


def api_error(answer: Any, status: int) -> dict[str, Any]:
    """The error of a refused request, after checks of its shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    (key,) = answer.json()
    error: dict[str, Any] = answer.json()[key]
    assert key == "error" and set(error) == {"message", "type", "param", "code"}
    assert error["message"] and "Traceback" not in error["message"]
    return error


async def open_request(
    served: Served, body: dict[str, object], path: str = "/v1/responses"
) -> asyncio.StreamWriter:
    """Send a request and never read the answer; closing the writer disconnects."""
    host, port = served.root.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    return writer


async def first_turn(served: Served) -> Turn:
    """The first turn of a server, as soon as its first token is there."""
    async with asyncio.timeout(HANG_SECONDS):
        started = asyncio.get_running_loop().create_future()
        served.runtime.hub.subscribe(lambda turn: started.done() or started.set_result(turn))
        turn: Turn = served.turns[0] if served.turns else await started
        async for batch in turn.log.follow():
            if any(event.type == "response.reasoning_text.delta" for event in batch):
                break
    return turn


def engine_markup(served: Served) -> str:
    """What the model read and wrote last, as markup."""
    from agent.formats.harmony.format import HarmonyFormat

    format = served.runtime.format
    assert isinstance(format, HarmonyFormat)
    engine: Any = served.runtime.loaded.engine
    return format.encoding.decode(engine.answered_ids)


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The program sends all logging to its file; afterwards it is as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
async def serve(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    restored_logging: None,
    script: Callable[..., str],
) -> AsyncIterator[Serve]:
    """Start a server: ``await serve("markup of a reply", …, tools="python")``.

    ``server``: fields of ServerOptions; other keywords are those of LaunchOptions. ``pinned``: it
    serves all models, as ``agent serve --models`` does. MCP servers are waited for however busy this
    machine is.
    """
    from agent import bootstrap
    from agent.server.http.options import ServerOptions
    from agent.server.serve import HttpServer, base_url, listen, open_store, serve_models

    monkeypatch.setenv("AGENT_HOME", str(home))
    started: list[Served] = []

    async def start(
        *replies: str | dict[str, Any],
        api_key: str | tuple[str, ...] = (),
        allow_origins: tuple[str, ...] = (),
        server: dict[str, Any] | None = None,
        pinned: tuple[str, ...] | None = None,
        **options: Any,
    ) -> Served:
        engine = script(*replies) if replies else None
        shared = LaunchOptions(**{"engine": engine, "root": tmp_path, **options})
        runtime = bootstrap.create_runtime(shared, tools="none")
        runtime.server_wait_seconds = 60.0
        await runtime.start()
        keys = (api_key,) if isinstance(api_key, str) else api_key
        listener = listen("127.0.0.1", 0, keys)
        settings = ServerOptions(
            api_keys=keys, allow_origins=allow_origins, expose_tools=True, **(server or {})
        )
        defaults = bootstrap.turn_options(shared, runtime.model)
        store = await open_store(runtime, settings)
        models = (
            ServedModels(runtime, defaults)
            if pinned is None
            else serve_models(runtime, shared, settings, pinned)
        )
        http_server = HttpServer(models, listener, settings, store)
        serving = asyncio.create_task(http_server.serve())
        served = Served(base_url(listener), runtime, http_server, serving)
        runtime.hub.subscribe(served.turns.append)
        started.append(served)
        return served

    yield start
    for served in started:
        await served.end()

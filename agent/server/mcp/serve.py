"""Runs the MCP server of `agent mcp serve`: over stdin and stdout, or over streamable HTTP."""

import asyncio
import os
import socket
import sys
from io import TextIOWrapper

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.server.http.access import AccessMiddleware, is_loopback
from agent.server.http.clients import Clients
from agent.server.http.options import ServerOptions
from agent.server.http.signals import ends_before, run_until_signal, stop_on_signals
from agent.server.mcp.server import AgentMcpServer
from agent.server.serve import QuietServer, base_url, listen
from agent.util.process import EXIT_DONE, private_stdout
from agent.util.sanitize import echo

DRAIN_SECONDS = 5
"""Time that running calls have after the server is asked to end; idle streams end at once."""


def main(
    launch: LaunchOptions,
    options: ServerOptions,
    *,
    http: bool = False,
    conversations: bool = False,
    drain_seconds: int = DRAIN_SECONDS,
) -> int:
    """Serve until stdin ends, or until SIGTERM or SIGINT; return the exit code. ``conversations``: let
    clients continue those that began elsewhere. Raises UserError."""
    runtime = bootstrap.create_runtime(launch, tools="none")
    listener = listen(options.host, options.port, options.api_keys) if http else None

    async def serve() -> None:
        store = await asyncio.to_thread(bootstrap.open_store, runtime) if options.store else None
        defaults = bootstrap.turn_options(launch, runtime.model)
        server = AgentMcpServer(runtime, defaults, store, all_conversations=conversations)
        await runtime.start()
        interrupted = False
        try:
            if listener is None:
                interrupted = not await run_until_signal(_serve_stdio(server))
            else:
                await _serve_http(server, listener, options, drain_seconds)
        finally:
            await runtime.close()
            if store is not None:
                await asyncio.to_thread(store.close)
        if interrupted:
            os._exit(EXIT_DONE)  # a thread still reads stdin, and nothing ends that

    asyncio.run(serve())
    return EXIT_DONE


async def _serve_stdio(server: AgentMcpServer) -> None:
    out = os.fdopen(private_stdout(), "wb")  # other output would read as messages
    stdin = anyio.wrap_file(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace"))
    stdout = anyio.wrap_file(TextIOWrapper(out, encoding="utf-8"))
    async with stdio_server(stdin, stdout) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _serve_http(
    server: AgentMcpServer, listener: socket.socket, options: ServerOptions, drain_seconds: int
) -> None:
    app = server.streamable_http_app(
        host=options.host,
        # AccessMiddleware checks hosts and origins, as for the other endpoints.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    ending = asyncio.Event()
    clients, local = Clients(options.api_keys), is_loopback(options.host)
    guarded = AccessMiddleware(
        _with_ending_streams(app, ending), clients=clients, loopback_only=local, origins=()
    )
    config = uvicorn.Config(
        guarded, log_config=None, access_log=False, timeout_graceful_shutdown=drain_seconds
    )
    echo(f"MCP at {base_url(listener).removesuffix('/v1')}/mcp (Ctrl-C stops)", file=sys.stderr)
    http = QuietServer(config)

    def stop(_: int) -> None:
        """Shut down; what only waits ends at once."""
        http.should_exit = True
        ending.set()
        server.subscriptions.close()

    stop_on_signals(stop)
    await http.serve([listener])


def _with_ending_streams(app: ASGIApp, ending: asyncio.Event) -> ASGIApp:
    """End responses to GET at an event: streams with what the server says outside of calls."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await app(scope, receive, send)
            return
        if not await ends_before(app(scope, receive, send), ending.wait()):
            await send({"type": "http.response.body"})

    return answer

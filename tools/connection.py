"""One MCP server while it is connected. Imports the SDK, which takes most of a second: the host
imports this module in a thread."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import anyio
import mcp.types as T
from mcp import Client, MCPError
from pydantic import ValidationError

from tools.base import OnOutput, OnProgress, Tool, ToolResult
from tools.config import ServerConfig
from tools.hands import emit, serve
from tools.naming import clean
from tools.results import Results, encodable, failure
from tools.stdio import Child

MAX_PAGES = 100
"""Of a server's list of tools: a paginator that never ends must not hang the start."""


class Connection:
    """From the start of a server to its end; a restart is a new one."""

    def __init__(self, config: ServerConfig, results: Results) -> None:
        self.config = config
        self._results = results
        self._client: Client | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopped = False
        self._child = None if config.hand else Child(config)
        self._listeners: list[OnOutput] = []

    async def run(self, ready: Callable[[list[Tool]], None]) -> str:
        """Connect, call ``ready`` with the tools, stay until the server ends or ``stop``.

        Answers with a sentence that says why it ended. Everything is entered and left in this one
        task: the SDK's cancel scopes allow nothing else. Calls come from other tasks.
        """
        timeout = self.config.startup_timeout_sec
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + timeout) as self._scope:
                if self._stopped:
                    return "was stopped"
                async with Client(
                    serve(self.config.hand) if self.config.hand else self._connecting(),
                    logging_callback=self._logged,
                    log_level="info",
                    client_info=T.Implementation(name="agent", version="0"),
                ) as client:
                    tools = await self._list(client)
                    self._scope.deadline = math.inf
                    self._client = client
                    ready(tools)
                    if self._child:
                        await self._child.ended.wait()
                    else:
                        await anyio.sleep_forever()
            if self._stopped:
                return "was stopped"
            if self._client is None and self._scope.cancelled_caught:
                return self._explain(f"did not answer within {timeout:g} s of its start")
            return self._explain("ended")
        except Exception as error:
            return self._explain(_reason(error, self.config))
        finally:
            self._client = None

    @property
    def alive(self) -> bool:
        return self._client is not None and not (self._child and self._child.ended.is_set())

    def stop(self) -> None:
        """Make ``run`` return, also while it is still connecting."""
        self._stopped = True
        if self._scope is not None:
            self._scope.cancel()

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        on_progress: OnProgress | None,
        on_output: OnOutput | None,
    ) -> ToolResult:
        """Run a tool; only being cancelled is an exception."""
        client, config = self._client, self.config
        # A hand bounds its own time, more gently than by being cancelled.
        timeout = None if config.hand else config.tool_timeout_sec

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress, total, message and encodable(message))

        def listener(stream: str, text: str) -> None:
            if on_output is not None:
                on_output(stream, encodable(text))

        token = emit.set(listener)
        self._listeners.append(listener)
        try:
            if client is None:
                raise MCPError(T.CONNECTION_CLOSED, "not connected")
            # The SDK's clock starts once the request is written, which a stuck server can prevent.
            async with asyncio.timeout(None if timeout is None else timeout + 1):
                result = await client.call_tool(
                    name, arguments, read_timeout_seconds=timeout, progress_callback=progressed
                )
        except TimeoutError:
            return self._failure(f"did not answer within {timeout:g} s", T.REQUEST_TIMEOUT)
        except MCPError as error:
            return await self._refused(name, error)
        except ValidationError:
            return self._failure("gave a result that is not valid MCP", T.INTERNAL_ERROR)
        except RuntimeError as error:
            return self._failure(f"gave a wrong result: {error}", T.INTERNAL_ERROR)
        except Exception as error:
            return self._failure(f"could not be called: {error}", T.INTERNAL_ERROR)
        finally:
            emit.reset(token)
            self._listeners.remove(listener)
        content = [
            block.model_dump(mode="json", by_alias=True, exclude_none=True)
            for block in result.content
        ]
        # Megabytes to join and write; not on the event loop.
        return await asyncio.to_thread(
            self._results.of, content, result.structured_content, failed=bool(result.is_error)
        )

    def _connecting(self) -> Any:
        assert self._child is not None
        return self._child.connect()

    async def _list(self, client: Client) -> list[Tool]:
        found: dict[str, T.Tool] = {}
        cursor = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                found.setdefault(tool.name, tool)
            if not (cursor := page.next_cursor):
                break
        return [
            Tool(
                server=self.config.name,
                name=tool.name,
                description=clean(tool.description or tool.title or ""),
                parameters=tool.input_schema,
                read_only=bool(tool.annotations and tool.annotations.read_only_hint),
            )
            for tool in found.values()
            # Such a tool can only be run as a task, which the protocol no longer has.
            if not (tool.execution and tool.execution.task_support == "required")
        ]

    async def _logged(self, params: T.LoggingMessageNotificationParams) -> None:
        # A log message names no request; with several calls under way, all of them show it.
        text = params.data if isinstance(params.data, str) else str(params.data)
        for listener in list(self._listeners):
            listener("log", f"{text}\n")

    async def _refused(self, name: str, error: MCPError) -> ToolResult:
        match error.code:
            case T.REQUEST_TIMEOUT:
                what = f"did not answer within {self.config.tool_timeout_sec:g} s"
            case T.CONNECTION_CLOSED:
                if self._child:
                    # The owner task learns how it ended a moment later.
                    with anyio.move_on_after(1):
                        await self._child.ended.wait()
                what = self._explain("ended before it answered")
            case T.METHOD_NOT_FOUND | T.INVALID_PARAMS:
                what = f"refused the call of {name}: {error.message}"
            case _:
                what = f"answered with an error: {error.message}"
        return self._failure(what, error.code)

    def _failure(self, what: str, code: int) -> ToolResult:
        return failure(f"the server {self.config.name} {what}", code)

    def _explain(self, what: str) -> str:
        """With what the child said last, and what may be done about it."""
        child = self._child
        if child is None:
            return what
        if child.complaint:
            what = f"was cut off: {child.complaint}"
        elif child.returncode is not None and what == "ended":
            code = child.returncode
            what = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        stderr = child.stderr()
        if "ImportError" in stderr and "mcp" in stderr:
            what += " (an older server; try: uvx --with 'mcp<2' ...)"
        return f"{what}; its last words: {stderr[-1500:]}" if stderr else what


def _reason(error: BaseException, config: ServerConfig) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case FileNotFoundError() if config.cwd and error.filename == config.cwd:
            return f"cannot be started: no such folder: {config.cwd}"
        case FileNotFoundError():
            return f"cannot be started: no such command: {config.command}"
        case OSError():
            return f"cannot be started: {config.command}: {error.strerror or error}"
        case MCPError(code=T.CONNECTION_CLOSED):
            return "ended"
        case MCPError():
            return f"answered its start with an error: {error.message}"
        case ValidationError():
            return "gave a list of tools that is not valid MCP"
        case _:
            return f"failed: {error or type(error).__name__}"

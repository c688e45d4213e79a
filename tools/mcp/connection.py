"""One MCP server while it is connected.

Imports the MCP SDK, which takes most of a second, so ``McpServer`` imports this module in a thread.

Two tasks meet here. The server's supervisor task is inside ``run`` from the start of the server to
its end, because the SDK's cancel scopes must be entered and left in one task. Turns call ``call``
and ``fetch`` from tasks of their own::

    supervisor  run(): connect ─▶ list tools ─▶ on_ready() ─▶ wait for the end ─▶ return why
                                                   ▲ _relist(): when the lists have changed
    a turn      call() ─▶ _request(): CallScope ─▶ SDK ─▶ ToolResult
                              ▲ _scope_of_request(): requests and log messages of the server

**Which call does a server's request belong to?** From version LISTEN_VERSION of the protocol on, the
SDK answers a request of the server's inside the call that it belongs to, so ``_current_scope`` says
which one that is. With older versions a server sends ``elicitation/create`` at any time and names
no call: then the newest one is taken, if all running calls belong to one conversation. If they do
not, the request is declined: a guess could show one conversation's question in another.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import anyio
import mcp.types as T
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import FileUrl, ValidationError

from agent.util.json_schema import find_violation
from tools.builtin_server import output_listener
from tools.config.servers import ServerConfig
from tools.mcp import listing
from tools.mcp.answers import ServerError
from tools.mcp.bearer_auth import BearerAuth
from tools.mcp.call_scope import CallScope, NewerVersionError, SessionLostError
from tools.mcp.client_requests import CallHandlers, ElicitationRequest, SamplingRequest
from tools.mcp.context import HostContext
from tools.mcp.diagnostics import describe_answer, describe_error, describe_invalid
from tools.mcp.forms import page_host
from tools.mcp.http import HttpTransport, find_challenge
from tools.mcp.login import LoginChallenge, LoginRequiredError, logs_in
from tools.mcp.mending import ResultMender, structured_content
from tools.mcp.negotiation import NegotiatingClient
from tools.mcp.start_wait import StartActivity
from tools.mcp.stdio import StdioTransport
from tools.mcp.transport import Transport
from tools.results import protocol_failure
from tools.sanitize import MAX_INSTRUCTION_CHARS, clean_schema, clean_text
from tools.types import Tool, ToolResult
from tools.version import program_version

RELIST_PAUSE_SECONDS, RELIST_WAIT_SECONDS, MAX_NEWS_CHARS = 0.5, 1.0, 4000
LISTEN_VERSION = "2026-07-28"
"""From this version of MCP on, changes of lists are sent to subscribers only."""
_LIST_CHANGES = (
    T.ToolListChangedNotification,
    T.PromptListChangedNotification,
    T.ResourceListChangedNotification,
)

V = TypeVar("V")
Work = Callable[[CallScope], Awaitable[ToolResult]]
OnReady = Callable[[list[Tool]], None]
ConnectMode = Literal["", "newest", "sse"]
"""newest: the newest version without a handshake, for a server that ends when it is sent one."""
_current_scope: ContextVar[CallScope | None] = ContextVar("current_scope", default=None)


class Connection:
    """One connection, from the start of a server to its end; a restart makes a new one."""

    def __init__(
        self, config: ServerConfig, context: HostContext, mode: ConnectMode = "", login: bool = True
    ) -> None:
        """``login``: whether requests have the token of a stored login."""
        self.config = config
        self.challenge: LoginChallenge | None = None
        """The login that the server asked for when it could not be connected."""
        self.refused = False
        """Whether the server wants a valid token, from a login or not."""
        self.transport = _make_transport(config, context, mode, login)
        self.protocol = self.protocol_reason = ""
        self._context, self._results = context, context.results
        self._needs_newest = mode == "newest"
        self._client: Client | None = None
        self._cancel_scope: anyio.CancelScope | None = None
        self._stopped = self._has_answered = False
        self._lists_changed, self._list_is_current = asyncio.Event(), asyncio.Event()
        self._list_is_current.set()
        self._listed: dict[str, Tool] = {}
        """The tools that the model may see, as they were last listed."""
        self._scopes: list[CallScope] = []
        """The running calls, the newest at the end."""
        self._mender = ResultMender()
        self.skipped: dict[str, str] = {}
        self._resource_tools: frozenset[str] = frozenset()
        """Names of the tools that we add for the server's resources."""

    async def run(self, on_ready: OnReady) -> str:
        """Connect, call ``on_ready`` with the tools, also when they change, and stay until `stop` or
        the server's end; returns why, as the predicate of a sentence."""
        return self.config.hide_headers(await self._run(on_ready))

    async def _run(self, on_ready: OnReady) -> str:
        timeout = self.config.startup_timeout_sec
        tasks: list[asyncio.Task[None]] = []
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + timeout) as self._cancel_scope:
                if self._stopped:
                    return "was stopped"
                client = await self._make_client()
                async with client:
                    self._has_answered = True
                    tools = await self._list_tools(client)
                    self._cancel_scope.deadline = math.inf
                    self._client, self.protocol = client, client.protocol_version
                    self.protocol_reason, self.transport.was_ready = client.reason, True
                    on_ready(tools)
                    tasks += self._watch_lists(client, on_ready)
                    await self.transport.ended.wait()
            if self._stopped:
                return "was stopped"
            if self._client is None and self._cancel_scope.cancelled_caught:
                since = ' of its start ("startup_timeout_sec" in its settings allows more)'
                since = "" if self.config.client_network else since
                return self.transport.describe_exit(f"did not answer within {timeout:g} s{since}")
            return self.transport.describe_exit("ended")
        except Exception as error:
            if challenge := find_challenge(error):
                self.refused = True
                if logs_in(self.config) and not self.transport.has_scope(challenge):
                    self.challenge = challenge
                if challenge.status == 401:
                    challenge = replace(challenge, scope="")  # the command gets to it by itself
                return self.transport.describe_challenge(challenge)
            reason = describe_error(error, self.config, self.transport.error_status)
            return self.transport.describe_exit(self.transport.cutoff_sentence(error) or reason)
        finally:
            self._client = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def probe(self) -> str:
        """Connect and end again; return why, ``protocol`` says whether it was connected."""
        return await self.run(lambda _: self.stop())

    @property
    def alive(self) -> bool:
        return self._client is not None and not self.transport.ended.is_set()

    def activity(self) -> StartActivity:
        return self.transport.activity()._replace(answers=self._has_answered)

    def stop(self) -> None:
        """Make ``run`` return, also while it is still connecting."""
        self._stopped = True
        if self._cancel_scope is not None:
            self._cancel_scope.cancel()

    # --- calls ---

    async def call(self, name: str, args: dict[str, Any], handlers: CallHandlers) -> ToolResult:
        """Run a tool. Raises SessionLostError, LoginRequiredError, CancelledError; else a result."""
        if name == listing.LIST_RESOURCES and name in self._resource_tools:
            return await self._request(handlers, self._list_resources)
        if name == listing.READ_RESOURCE and name in self._resource_tools:
            if not (uri := str(args.get("uri") or "")):
                reason = f"refused the call of {name}: uri is required"
                return self._failure(reason, T.INVALID_PARAMS)
            return await self._request(handlers, lambda _: self._read_resource(uri), name)
        known = self._listed
        result = await self._request(handlers, partial(self._call_tool, name, args), name)
        # A notification that came before the result is handled in a task of its own.
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._list_is_current.wait(), RELIST_WAIT_SECONDS)
        new = [tool for tool in self._listed.values() if tool.name not in known]
        return self._results.with_notes(result, [_news(new)] if new else [])

    async def fetch(self, work: Callable[[Client], Awaitable[V]]) -> V:
        """Make a request other than a tool call; raises ValueError with a sentence."""
        values: list[V] = []

        async def request(scope: CallScope) -> ToolResult:
            values.append(await work(self._connected_client()))
            return ToolResult("")

        try:
            result = await self._request(CallHandlers(), request)
        except SessionLostError as error:
            result = self._failure(f"lost the session: it {error}", T.CONNECTION_CLOSED)
        except LoginRequiredError as required:
            reason = self.transport.describe_challenge(required.challenge)
            result = self._failure(reason, T.INTERNAL_ERROR)
        if not values:
            raise ValueError(result.text)
        return values[0]

    def _connected_client(self) -> Client:
        if self._client is None:
            raise MCPError(T.CONNECTION_CLOSED, "not connected")
        return self._client

    async def _request(self, handlers: CallHandlers, work: Work, name: str = "") -> ToolResult:
        config = self.config
        # A built-in server bounds its own time, more gently than by being cancelled.
        scope = CallScope(handlers, None if config.builtin else config.timeout(name))
        listener_token, scope_token = output_listener.set(scope.output), _current_scope.set(scope)
        self._scopes.append(scope)
        try:
            async with scope:
                result = await work(scope)
            return self._results.with_notes(result, scope.notes)
        except TimeoutError:
            reason = scope.timeout_reason
            if scope.elicitations and self.transport.keeps_no_session:
                reason += "; it asked a question, but keeps no session in which answers arrive"
            return self._failure(reason, T.REQUEST_TIMEOUT)
        except MCPError as error:
            return await self._error_result(name, error)
        except ValidationError as error:
            return self._failure(describe_invalid(error), T.INTERNAL_ERROR)
        except RuntimeError as error:
            return self._failure(f"gave a wrong result: {str(error)[:2000]}", T.INTERNAL_ERROR)
        except (SessionLostError, LoginRequiredError):
            raise
        except Exception as error:
            return self._failure(f"could not be called: {error}", T.INTERNAL_ERROR)
        finally:
            output_listener.reset(listener_token)
            _current_scope.reset(scope_token)
            self._scopes.remove(scope)

    async def _call_tool(self, name: str, args: dict[str, Any], scope: CallScope) -> ToolResult:
        try:
            client = self._connected_client()
            result = await client.call_tool(name, args, progress_callback=scope.progress)
        except MCPError as error:
            if error.code != T.URL_ELICITATION_REQUIRED:
                raise
            try:
                pages = UrlElicitationRequiredError.from_error(error.error).elicitations
            except ValueError:
                pages = []
            if not pages:
                raise
            return self._failure(await self._show_pages(pages, scope), error.code)
        content = [
            b.model_dump(mode="json", by_alias=True, exclude_none=True) for b in result.content
        ]
        structured, failed = structured_content(result), bool(result.is_error)
        schema = self._mender.output_schemas.get(name)
        if schema and structured is not None and not failed:
            # The text is what the model needs, and may still be right.
            why = await asyncio.to_thread(find_violation, schema, structured)
            misfit = f"[The structured content does not fit the tool's output schema: {why}.]"
            scope.notes += [misfit] if why else []
        # Megabytes to join and write; not on the event loop.
        own = self.config.builtin is not None
        return await asyncio.to_thread(
            self._results.build, content, structured, failed=failed, own=own
        )

    async def _show_pages(self, pages: Sequence[T.ElicitRequestURLParams], scope: CallScope) -> str:
        """Ask the person to visit the pages that a call needs first; return the call's result."""
        where = "; ".join(f"{page.message} {page.url}" for page in pages)
        for page in pages:
            if page_host(page.url) is None:
                continue
            request = ElicitationRequest(self.config.name, clean_text(page.message), url=page.url)
            if (await scope.elicit(request)).action != "accept":
                return f"wants the user to visit a page first: {where}"
        return f"has shown the user a page; call it again once they are done there: {where}"

    async def _list_resources(self, scope: CallScope) -> ToolResult:
        text = listing.format_resources(await listing.list_resources(self._connected_client()))
        return await asyncio.to_thread(self._results.build, [{"type": "text", "text": text}])

    async def _read_resource(self, uri: str) -> ToolResult:
        blocks = await listing.read_resource(self._connected_client(), uri)
        return await asyncio.to_thread(self._results.build, blocks)

    async def _error_result(self, name: str, error: MCPError) -> ToolResult:
        """Turn a JSON-RPC error into a result; raises SessionLostError and LoginRequiredError."""
        if reason := self.transport.cutoff_sentence(error):
            return self._failure(reason, error.code)
        if challenge := find_challenge(error):
            raise LoginRequiredError(challenge)
        if isinstance(error, ServerError):
            if error.lost_session:
                self.transport.ended.set()
                raise SessionLostError(self.config.hide_headers(describe_answer(error)))
            asks = error.code == T.INVALID_PARAMS and "InputRequiredResult" in error.message
            if asks and not self.config.protocol and self.protocol < LISTEN_VERSION:
                # The tool asks by a result that older versions do not have, as FastMCP 4 says.
                raise NewerVersionError("needs the newest version of MCP")
            refused = error.code in (T.METHOD_NOT_FOUND, T.INVALID_PARAMS) and not error.http_status
            reason = f"refused the call of {name}: {error.describe()}" if refused else ""
            return self._failure(reason or describe_answer(error), error.code)
        match error.code:
            case T.REQUEST_TIMEOUT:
                reason = "did not answer in time"
            case T.CONNECTION_CLOSED:
                await self.transport.lose_session()
                reason = self.transport.describe_exit("ended before it answered")
                if self.transport.kind == "sse" and self.transport.cutoff_reason:
                    # Its one stream has all answers: what cut it off ended the connection.
                    reason = f"was cut off: {self.transport.cutoff_reason}"
            case T.METHOD_NOT_FOUND | T.INVALID_PARAMS:  # of a built-in server
                reason = f"refused the call of {name}: {error.message}"
            case _:
                reason = f"answered with an error: {error.message}"
        return self._failure(reason, error.code)

    def _failure(self, reason: str, code: int) -> ToolResult:
        reason = self.config.hide_headers(reason)
        return protocol_failure(f"the server {self.config.name} {reason}", code)

    # --- the connection ---

    async def _make_client(self) -> NegotiatingClient:
        client = NegotiatingClient(
            self.transport.connect(),
            mode="auto" if self.config.builtin else "legacy",
            cache=None,  # what has changed is read again when the server says so
            logging_callback=self._on_log,
            log_level="info",
            message_handler=self._on_message,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
            list_roots_callback=self._list_roots,
            client_info=T.Implementation(name="agent", version=program_version()),
        )
        client.mender = self._mender
        client.forced_version = self.config.protocol
        if self._needs_newest:
            client.forced_version = LISTEN_VERSION
            client.reason = "more of it works than over older versions"
        if isinstance(self.transport, HttpTransport) and self.transport.kind == "http":
            client.keeps_session = self.transport.keeps_session
        return client

    async def _list_tools(self, client: NegotiatingClient) -> list[Tool]:
        config, mender = self.config, self._mender
        tools, self._resource_tools = await listing.list_tools(client, config.name, mender)
        self.skipped = dict(mender.skipped)
        instructions = clean_text(client.instructions or "", MAX_INSTRUCTION_CHARS)
        tools = [
            replace(tool, constrained=config.constrain, server_instructions=instructions)
            for tool in tools
        ]
        self._listed = {tool.name: tool for tool in tools if config.offers(tool.name)}
        return tools

    def _watch_lists(
        self, client: NegotiatingClient, on_ready: OnReady
    ) -> list[asyncio.Task[None]]:
        if self.config.builtin:
            return []
        tasks = [self._relist(client, on_ready)]
        offers = client.server_capabilities
        lists = (offers.tools, offers.prompts, offers.resources)
        if client.protocol_version >= LISTEN_VERSION and any(
            capability and capability.list_changed for capability in lists
        ):
            tasks.append(self._listen(client))
        return [asyncio.create_task(task) for task in tasks]

    async def _relist(self, client: NegotiatingClient, on_ready: OnReady) -> None:
        while True:
            await self._lists_changed.wait()
            self._lists_changed.clear()
            with contextlib.suppress(MCPError, ValueError):
                on_ready(await self._list_tools(client))
            self._list_is_current.set()
            await asyncio.sleep(RELIST_PAUSE_SECONDS)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the lists, and again when the subscription is lost."""
        while True:
            try:
                async with client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                ) as notifications:
                    async for _ in notifications:
                        self._lists_changed.set()
            except SubscriptionLost:
                self._lists_changed.set()  # what was missed meanwhile
            except (MCPError, RuntimeError, TimeoutError):
                return  # it does not have it
            await asyncio.sleep(RELIST_PAUSE_SECONDS)

    # --- the server's requests, in the MCP SDK's types; the call that each belongs to answers it ---

    async def _elicit(self, context: Any, params: T.ElicitRequestParams) -> T.ElicitResult:
        schema = url = None
        if isinstance(params, T.ElicitRequestURLParams):
            url = params.url
        else:
            schema = clean_schema(params.requested_schema)
        scope = self._scope_of_request()
        if scope is None or (url is not None and page_host(url) is None):
            return T.ElicitResult(action="decline")  # no page that a browser should open unseen
        request = ElicitationRequest(self.config.name, clean_text(params.message), schema, url)
        result = await scope.elicit(request)
        return T.ElicitResult(action=result.action, content=result.content)

    async def _sample(
        self, context: Any, params: T.CreateMessageRequestParams
    ) -> T.CreateMessageResult | T.ErrorData:
        if params.tools or params.tool_choice:
            return T.ErrorData(code=T.INVALID_PARAMS, message="Sampling here takes no tools.")
        messages: list[tuple[T.Role, str]] = []
        for message in params.messages:
            text = [b for b in message.content_as_list if isinstance(b, T.TextContent)]
            if len(text) < len(message.content_as_list):
                return T.ErrorData(code=T.INVALID_PARAMS, message="Sampling here takes text alone.")
            messages.append((message.role, "\n".join(block.text for block in text)))
        request = SamplingRequest(
            self.config.name, tuple(messages), params.max_tokens, params.system_prompt,
            params.temperature, tuple(params.stop_sequences or ()),
        )  # fmt: skip
        scope = self._scope_of_request()
        result = await scope.sample(request) if scope else None
        if result is None:
            return T.ErrorData(code=T.INVALID_REQUEST, message="The user refused this request.")
        return T.CreateMessageResult(
            role="assistant",
            content=T.TextContent(text=result.text),
            model=result.model,
            stop_reason=result.stop_reason,
        )

    async def _list_roots(self, context: Any) -> T.ListRootsResult:
        roots = [T.Root(uri=FileUrl(root.as_uri()), name=root.name) for root in self._context.roots]
        return T.ListRootsResult(roots=roots)

    def _scope_of_request(self) -> CallScope | None:
        """Return the call that the server's current request belongs to (see the module's text)."""
        if (scope := _current_scope.get()) in self._scopes:
            return scope
        if len({scope.conversation_id for scope in self._scopes}) != 1:
            return None
        return self._scopes[-1]

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, _LIST_CHANGES):
            self._list_is_current.clear()
            self._lists_changed.set()

    async def _on_log(self, params: T.LoggingMessageNotificationParams) -> None:
        # A log message names no request; with several calls under way, all of them show it.
        text = log_text(params.data)
        for scope in list(self._scopes):
            scope.output("log", f"{text}\n")


def _make_transport(
    config: ServerConfig, context: HostContext, mode: ConnectMode, login: bool
) -> Transport:
    if config.builtin:
        return Transport(config)
    if config.command:
        return StdioTransport(config, context.sandbox)
    auth = BearerAuth(config, context.credentials) if login and logs_in(config) else None
    kind: Literal["http", "sse"] = "sse" if "sse" in (mode, config.transport) else "http"
    return HttpTransport(config, kind, auth, context.client_turn if config.client_network else None)


def _news(tools: Sequence[Tool]) -> str:
    """A sentence for the model about tools that a call has added."""
    new = [f"{tool.name} {json.dumps(tool.parameters, ensure_ascii=False)}" for tool in tools]
    return f"[The server has new tools, with these arguments: {'; '.join(new)[:MAX_NEWS_CHARS]}]"


def log_text(data: Any) -> str:
    """Return the data of a log message as text: some servers put the text into an object."""
    if isinstance(data, dict):
        text = data.get("msg") or data.get("message")
        data = text if isinstance(text, str) else data
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)

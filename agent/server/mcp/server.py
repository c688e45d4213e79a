"""This program as an MCP server: the tool ``ask``, python where it is allowed, conversations."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import mcp.types as T
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.runtime.runtime import Runtime
from agent.server.mcp.ask import Ask, result_of
from agent.store.conversations import Store, StoreError
from agent.store.export import ExportRecord, markdown
from agent.store.recorder import TurnRecorder
from agent.turn.loop import Turn
from agent.turn.options import MCP, TurnOptions
from agent.util.ids import new_id
from agent.util.json_schema import find_violation
from tools.builtin_server import ToolError, object_schema
from tools.builtin_server import conversation_id as current_conversation
from tools.mcp.host import Host
from tools.types import Tool, error_text
from tools.version import program_version

ASK, PYTHON = "ask", "python"
RESULT_FIELDS = ("answer", "conversation", "status")
URI_PREFIX = "agent://conversations/"
MAX_WAITING = 64
"""Turns that wait for a client's answer; the oldest is stopped for one more."""
MAX_TURNS = 256
"""Ended turns that stay in memory; older conversations are read from the store."""
MAX_SESSIONS = 64
"""Clients with a session that hear of changed tools; of more, the latest."""
STARTUP_SECONDS = 5.0
"""Time that a list of tools waits for the servers that start."""

_Context = ServerRequestContext[Any, Any]


class AgentMcpServer(Server[Any]):
    """Answers the requests of MCP's clients."""

    def __init__(
        self,
        runtime: Runtime,
        defaults: TurnOptions,
        store: Store | None,
        *,
        all_conversations: bool,
        startup_seconds: float = STARTUP_SECONDS,
    ) -> None:
        """``store``: None: conversations end with the program, no resources. ``all_conversations``:
        those that began elsewhere are resources, too. ``startup_seconds``: longest wait for tools."""
        self._changes = InMemorySubscriptionBus()
        """Through which clients of later versions hear of changed tools."""
        self.subscriptions = ListenHandler(self._changes)
        super().__init__(
            "agent",
            version=program_version(),
            title="Local GPT-OSS",
            instructions=f"The tool ask asks {runtime.model.name}, the user's own model.",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_read_resource=self.read_resource,
            on_subscriptions_listen=self.subscriptions,
        )
        self.add_notification_handler(
            "notifications/initialized", T.NotificationParams, self.on_initialized
        )
        self._runtime, self._defaults, self._store = runtime, defaults, store
        self._all_conversations = all_conversations
        self._startup_seconds = startup_seconds
        self._listed: list[T.Tool] | None = None
        """The list that was last sent to clients; None: not yet."""
        self._sessions = deque[ServerSession](maxlen=MAX_SESSIONS)
        self._announcements: set[asyncio.Task[None]] = set()
        runtime.host.subscribe(self._on_server_changed)
        self._turns: dict[str, Turn] = {}
        """The latest turn of each conversation that was used here lately, by the conversation's id."""
        self._own: set[str] = set()
        """Ids of the stored conversations that were used here."""
        self._waiting: dict[str, Ask] = {}
        """By their tokens: turns whose question a client is answering."""
        self._recorder = TurnRecorder(store) if store else None

    def get_capabilities(self, *args: Any, **settings: Any) -> T.ServerCapabilities:
        """Return that tools change, and resources go unannounced; the SDK takes either for both."""
        tools = T.ToolsCapability(list_changed=True)
        resources = T.ResourcesCapability(subscribe=False, list_changed=False)
        capabilities = super().get_capabilities(*args, **settings)
        return capabilities.model_copy(update={"tools": tools, "resources": resources})

    def _definitions(self) -> list[T.Tool]:
        names = sorted({tool.server for tool in self._runtime.host.tools()})
        tools = {
            "type": "array",
            "items": {"type": "string"},
            "description": "Tools that it may use: server or server.tool; default: all of "
            f"{', '.join(names)}."
            if names
            else "It has no tools.",
        }
        ask = T.Tool(
            name=ASK,
            title="Ask a local model",
            description=f"Asks {self._runtime.model.name}, the user's own model. It does not see your"
            " conversation, so say all that it needs.",
            input_schema=object_schema(
                ["prompt"],
                prompt={"type": "string", "minLength": 1},
                effort={
                    "type": "string",
                    "enum": ["low", "medium", "high"],
                    "description": "The reasoning effort.",
                },
                tools=tools,
                conversation={
                    "type": "string",
                    "description": "Continues the conversation of an earlier result.",
                },
            )
            | {"additionalProperties": False},
            output_schema=object_schema([*RESULT_FIELDS], **dict.fromkeys(RESULT_FIELDS, "string")),
            annotations=self._annotations(),
        )
        if (python := self._python) is None:
            return [ask]
        title, schema = "Run Python in a sandbox", python.parameters
        description = python.description
        return [ask, T.Tool(name=PYTHON, title=title, description=description, input_schema=schema)]

    def _annotations(self) -> T.ToolAnnotations:
        """Return the union of the tools' annotations. A server that is not ready counts as one that
        writes and reaches out, as its tools are not known."""
        host = self._runtime.host
        tools, states = host.tools(), host.server_states()
        all_known = all(each.is_builtin or each.status in ("ready", "disabled") for each in states)
        return T.ToolAnnotations(
            read_only_hint=all_known
            and all(tool.read_only or _is_safe(host, tool) for tool in tools),
            open_world_hint=not all_known or any(_is_open_world(host, tool) for tool in tools),
        )

    @property
    def _python(self) -> Tool | None:
        return self._runtime.host.find_tool("code_interpreter.python")

    async def list_tools(self, context: _Context, params: object) -> T.ListToolsResult:
        """Answer ``tools/list``, once the servers have started if that does not take long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._startup_seconds):
                await self._runtime.host.wait_started()
        return T.ListToolsResult(tools=self._list_anew())

    async def on_initialized(self, context: _Context, params: object) -> None:
        self._sessions.append(context.session)

    def _on_server_changed(self, name: str) -> None:
        if self._listed is not None:
            self._list_anew()

    def _list_anew(self) -> list[T.Tool]:
        """Return the definitions, and announce them if they differ from the last ones sent."""
        before, self._listed = self._listed, self._definitions()
        if before not in (None, self._listed):
            task = asyncio.create_task(self._announce_tools())
            self._announcements.add(task)
            task.add_done_callback(self._announcements.discard)
        return self._listed

    async def _announce_tools(self) -> None:
        await self._changes.publish(ToolsListChanged())
        for session in list(self._sessions):
            try:
                await session.send_tool_list_changed()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._sessions.remove(session)

    async def call_tool(
        self, context: _Context, params: T.CallToolRequestParams
    ) -> T.CallToolResult | T.InputRequiredResult:
        arguments = params.arguments or {}
        definition = next((tool for tool in self._definitions() if tool.name == params.name), None)
        if definition is None:
            raise MCPError(T.INVALID_PARAMS, f"Unknown tool: {params.name}")
        try:
            if params.name == PYTHON:
                return await self._run_python(arguments)
            if (problem := find_violation(definition.input_schema, arguments)) is not None:
                raise ToolError(f"{problem}.")
            return await self._ask(context, params, arguments)
        except (ToolError, StoreError) as error:
            content = T.TextContent(text=error_text(str(error)))
            return T.CallToolResult(content=[content], is_error=True)

    async def _run_python(self, arguments: dict[str, Any]) -> T.CallToolResult:
        tool = self._python
        assert tool is not None, "it was in the list"
        current_conversation.set("mcp")
        result = await self._runtime.host.call(tool, arguments)
        return T.CallToolResult(content=[T.TextContent(text=result.text)], is_error=result.failed)

    async def _ask(
        self, context: _Context, params: T.CallToolRequestParams, arguments: dict[str, Any]
    ) -> T.CallToolResult | T.InputRequiredResult:
        if params.request_state is not None:
            if (ask := self._waiting.pop(params.request_state, None)) is None:
                raise ToolError("The answer came too late: the question is no longer open.")
            ask.resume(params.input_responses)
        else:
            ask = await self._begin(context, arguments)
        if (question := await ask.wait(context)) is not None:
            self._waiting[ask.token] = ask
            while len(self._waiting) > MAX_WAITING:
                abandoned = self._waiting.pop(next(iter(self._waiting)))
                assert abandoned.turn is not None
                abandoned.turn.stop()
            return question
        assert ask.turn is not None
        return result_of(ask.turn.response, ask.turn.conversation.id)

    async def _begin(self, context: _Context, arguments: dict[str, Any]) -> Ask:
        conversation = await self._conversation(arguments.get("conversation"))
        if (before := self._turns.get(conversation.id)) is not None and not before.log.closed:
            raise ToolError("Another call is running in this conversation.")
        if arguments.get("tools"):
            await self._runtime.plan_placement()  # it says whether the model gets any
        ask, capabilities = Ask(), context.session.client_capabilities
        asks = capabilities is not None and capabilities.elicitation is not None
        options = replace(
            self._defaults,
            effort=arguments.get("effort", self._defaults.effort),
            tools=self._selected(arguments.get("tools")),
            approver=ask.approve if asks else None,
            answerer=ask.elicit if asks else None,
        )
        prompt = str(arguments["prompt"])
        turn = Turn(self._runtime, conversation, [User(prompt)], options, interface=MCP)
        if self._recorder is not None:
            self._recorder.record(turn, prompt)
        self._turns.pop(conversation.id, None)
        self._turns[conversation.id] = turn
        ended = [name for name, turn in self._turns.items() if turn.log.closed]
        for name in ended[: max(0, len(ended) - MAX_TURNS)]:
            del self._turns[name]
        if self._store is not None:
            self._own.add(conversation.id)
        ask.start(turn)
        return ask

    async def _conversation(self, name: str | None) -> Conversation:
        if name is None:
            return Conversation(new_id("conv"))
        if name in self._turns:
            return self._turns[name].conversation
        store = self._store
        if store is None or not (self._all_conversations or name in self._own):
            raise ToolError(f"There is no conversation {name!r} here.")
        loaded = await store.run(lambda: store.load(name))
        return self._turns[name].conversation if name in self._turns else loaded

    def _selected(self, names: Sequence[str] | None) -> tuple[Tool, ...] | None:
        if names is None:
            return None
        host, tools = self._runtime.host, self._runtime.host.tools()
        for name in names:
            if not any(name in _names(host, tool) for tool in tools):
                known = ", ".join(sorted({tool.server for tool in tools})) or "none"
                raise ToolError(host.withheld or f"There is no tool {name!r}; known: {known}.")
        return tuple(tool for tool in tools if _names(host, tool) & set(names))

    async def list_resources(self, context: _Context, params: object) -> T.ListResourcesResult:
        summaries = await self._store.run(self._store.summaries) if self._store else []
        return T.ListResourcesResult(
            resources=[
                T.Resource(
                    uri=f"{URI_PREFIX}{summary.id}",
                    name=summary.id,
                    title=summary.title,
                    mime_type="text/markdown",
                )
                for summary in summaries
                if self._all_conversations or summary.id in self._own
            ]
        )

    async def read_resource(
        self, context: _Context, params: T.ReadResourceRequestParams
    ) -> T.ReadResourceResult:
        uri = str(params.uri)
        name, store = uri.removeprefix(URI_PREFIX), self._store
        allowed = uri.startswith(URI_PREFIX) and (self._all_conversations or name in self._own)
        text = None
        if store is not None and allowed:
            text = await store.run(lambda: _export(store, name))
        if text is None:
            raise MCPError(T.INVALID_PARAMS, f"There is no resource {uri}")
        contents = T.TextResourceContents(uri=uri, mime_type="text/markdown", text=text)
        return T.ReadResourceResult(contents=[contents])


def _export(store: Store, name: str) -> str | None:
    if (summary := store.summary(name)) is None:
        return None
    return markdown(ExportRecord(summary, store.read(name), store.turns(name)))


def _is_safe(host: Host, tool: Tool) -> bool:
    config = host.server_config(tool.server)
    return bool(config and config.builtin and config.builtin.is_safe(tool.name))


def _is_open_world(host: Host, tool: Tool) -> bool:
    """Whether a tool may reach outside of this machine, as it does if it says nothing:
    https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations-openworldhint."""
    config = host.server_config(tool.server)
    is_builtin = config is not None and config.builtin is not None
    return ("sends" if is_builtin else "untrusted") in tool.labels


def _names(host: Host, tool: Tool) -> set[str]:
    """Return the names by which a client selects a tool: its server's, and its own."""
    config = host.server_config(tool.server)
    servers = {tool.server, *([config.builtin.alias] if config and config.builtin else [])}
    return servers | {f"{server}.{tool.name}" for server in servers}

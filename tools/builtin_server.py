"""Built-in servers: the interface of ``PythonServer``, ``FilesServer``, ``ShellServer`` and
``BrowserServer``, and how one becomes an MCP server, which the SDK's client reaches in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.errors import AgentError
from tools.results import replace_surrogates
from tools.types import Access, OnOutput, Requirement, Source, Tool, error_text

if TYPE_CHECKING:
    from mcp.server import Server

output_listener: ContextVar[OnOutput | None] = ContextVar("output_listener", default=None)
"""Where a running call sends partial output, for which the protocol has no message."""

conversation_id: ContextVar[str] = ContextVar("conversation_id", default="")
"""The conversation that makes the call: servers store variables, pages and changes by it."""
turn_id: ContextVar[str] = ContextVar("turn_id", default="")
"""The id of the response whose turn makes the call: changes of files are taken back by it."""
_JSON_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "a string"),
    "integer": (int, "an integer"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list of strings"),
}


class ToolError(AgentError):
    """The tool failed; the model reads the message."""

    def __init__(self, sentence: str, printed: str = "", structured: Any = None) -> None:
        """``printed``: output before the failure, whole lines. ``structured``: data for programs."""
        super().__init__(f"{printed}{error_text(sentence)}" if printed else sentence)
        self.structured = structured


def object_schema(required: list[str], **properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object from its properties' JSON types, or schemas."""
    parts = {key: k if isinstance(k, dict) else {"type": k} for key, k in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": parts}
    return schema | ({"required": required} if required else {})


@dataclass(frozen=True, slots=True)
class StructuredText:
    """The result of a call: text for the model, and data for programs."""

    text: str
    structured: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExtraPermission:
    """An action of a call that needs its own permission."""

    name: str
    """Rules name it as if it were a tool: ``shell.changes_git``."""
    reason: str
    requirements: tuple[Requirement, ...] = ()
    """Rules that allow it too; without any it is asked for each time."""
    host: str = ""
    """The host that the call may tell something."""
    is_granted: bool = False
    """Whether the settings allow it, as long as nothing read could be sent off."""


class BuiltinServer:
    """A tool server of our own. Its definitions are plain data: listing them imports nothing."""

    name: str
    alias: str
    """The name that a person uses in options: ``python``."""
    tools: Sequence[Tool]
    default_tools: Sequence[str]
    """Names of the tools that are offered unless others are selected."""
    keeps_tool_approvals = True
    """Whether an approval of a whole tool, of a version without rules, still counts."""
    knows_destinations = False
    """Whether `destination` says where arguments go."""

    async def start(self) -> None:
        """Find out whether it works, and begin what makes the first call fast."""

    def problem(self) -> str | None:
        """Return why no call can work here, as far as is known; never blocks."""
        return None

    async def call(self, name: str, arguments: dict[str, Any]) -> str | StructuredText:
        raise NotImplementedError

    async def close(self) -> None:
        """End what its calls have started."""

    # --- what a call may do ---

    def is_safe(self, name: str) -> bool:
        """Return whether calls of this tool can do no harm by construction: they run unasked."""
        return False

    def runs_unconfined(self) -> bool:
        """Return whether calls may do anything, as no isolation works on this machine; may block."""
        return False

    def access(self, offered: Collection[str]) -> Access:
        """Return what calls of the tools with these names can do; may block."""
        return Access()

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Return what a call would change, for the person who is asked; None: see the arguments."""
        return None

    def requirements(self, name: str, arguments: dict[str, Any]) -> list[Requirement] | None:
        """Return what a call needs; None: approved as a whole. Raises OnceOnlyError, ToolError."""
        return None

    def rule_verbs(self, tool: Tool) -> Sequence[str]:
        """Return the first words of the rules that can allow calls of this tool."""
        return ()

    def extra_permissions(self, name: str, arguments: dict[str, Any]) -> list[ExtraPermission]:
        """Return what this call needs beyond the permission for its tool; may block."""
        return []

    def destination(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Return the host that a call tells something new; None if there is none. May read files."""
        return None

    # --- what calls leave ---

    def source(self, cursor: int, line: int) -> Source | None:
        """Return the page that a line of a result of this conversation speaks of."""
        return None

    def why_missing(self, name: str) -> str | None:
        """Return in a sentence why there is no such tool, which models know, until it is configured."""
        return None

    def running(self) -> dict[str, str]:
        """Return what runs in the background, of all conversations: its id and a line for a person."""
        return {}

    async def stop_running(self, id: str) -> bool:
        """Stop what has this id; return whether something has."""
        return False

    def end_conversation(self, conversation: str, successor: str | None) -> None:
        """End a conversation's commands, or transfer them to ``successor``, which continues it."""


class BuiltinServers:
    """The built-in servers of a host."""

    def __init__(self, servers: Iterable[BuiltinServer]) -> None:
        self._servers = {server.name: server for server in servers}

    def __iter__(self) -> Iterator[BuiltinServer]:
        return iter(self._servers.values())

    def argument_problem(self, tool: Tool, arguments: dict[str, Any]) -> str | None:
        """Return why a built-in server would not take these arguments; None for any other server."""
        if tool.server in self._servers:
            try:
                check_arguments(tool.parameters, arguments)
            except ToolError as error:
                return str(error)
        return None

    async def preview(self, tool: Tool, arguments: dict[str, Any]) -> str | None:
        """Return a text for the person about the changes of a built-in server's call, or its error."""
        if (server := self._servers.get(tool.server)) is None:
            return None
        try:
            preview = await asyncio.to_thread(server.preview, tool.name, arguments)
            return preview and replace_surrogates(preview)
        except Exception as error:
            return replace_surrogates(str(error))

    def source(self, cursor: int, line: int) -> Source | None:
        """Return the page that a citation names by the number of a page and a line of it."""
        return next(filter(None, (server.source(cursor, line) for server in self)), None)

    def end_conversation(self, conversation: str, successor: str | None = None) -> None:
        """End what the calls of a conversation have left running, or give it to its successor."""
        for server in self:
            server.end_conversation(conversation, successor)


def as_mcp_server(builtin: BuiltinServer) -> Server[Any]:
    # Imported here: takes most of a second, and only processes that call a tool need it.
    import mcp.types as T
    from mcp.server import Server

    known = {tool.name: tool for tool in builtin.tools}

    async def list_tools(context: Any, params: Any) -> T.ListToolsResult:
        tools = [
            T.Tool(name=t.name, description=t.description, input_schema=t.parameters, annotations=a)
            for t in builtin.tools
            for a in [T.ToolAnnotations(read_only_hint=t.read_only)]
        ]
        return T.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: T.CallToolRequestParams) -> T.CallToolResult:
        try:
            tool = known.get(params.name)
            if tool is None:
                raise ToolError(f"no such tool: {params.name}")
            arguments = params.arguments or {}
            check_arguments(tool.parameters, arguments)
            result = await builtin.call(params.name, arguments)
            if isinstance(result, StructuredText):
                content = T.TextContent(text=result.text)
                return T.CallToolResult(content=[content], structured_content=result.structured)
            text, failed, structured = result, False, None
        except ToolError as error:
            text, failed, structured = str(error), True, error.structured
        except OSError as error:  # a full disk, a folder that cannot be written
            where = "" if error.filename is None else f"{error.filename}: "
            text, failed, structured = f"{where}{error.strerror or error}", True, None
        content = T.TextContent(text=text)
        return T.CallToolResult(content=[content], structured_content=structured, is_error=failed)

    return Server(builtin.name, on_list_tools=list_tools, on_call_tool=call_tool)


def check_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Check arguments by the flat schema of a built-in tool; raises ToolError, whose message the model
    reads. Not ``agent.util.json_schema``, which is for strangers' schemas and imports jsonschema."""
    properties = schema["properties"]
    for name in schema.get("required", ()):
        if name not in arguments:
            raise ToolError(f"missing argument: {name}")
    for name, value in arguments.items():
        if name not in properties:
            raise ToolError(f"unknown argument: {name}; known: {', '.join(properties)}")
        kinds = properties[name]["type"]
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(_has_type(kind, value) for kind in kinds):
            expected = " or ".join(_JSON_TYPES[kind][1] for kind in kinds)
            raise ToolError(f"{name} must be {expected}")


def _has_type(kind: str, value: Any) -> bool:
    if isinstance(value, bool) or kind == "boolean":
        return kind == "boolean" and isinstance(value, bool)
    if isinstance(value, list):
        return kind == "array" and all(isinstance(item, str) for item in value)
    return isinstance(value, _JSON_TYPES[kind][0])

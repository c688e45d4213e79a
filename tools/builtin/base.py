"""Built-in tools: what a hand is, and how it becomes an MCP server in this process."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tools.types import OnOutput, Source, Tool

if TYPE_CHECKING:
    from mcp.server import Server

emit: ContextVar[OnOutput | None] = ContextVar("emit", default=None)
"""Where a running hand sends partial output. An in-process call runs in its caller's context, so
this reaches the hand without passing through the protocol, which has no message for it."""

conversation: ContextVar[str] = ContextVar("conversation", default="")
"""Whose call it is, by its id: what a hand remembers, it remembers for one conversation."""


class HandError(Exception):
    """The tool failed; the model reads the message."""


def flat_schema(required: list[str], **properties: Any) -> dict[str, Any]:
    """Of an object with these properties, by their JSON types."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
    }
    return schema | ({"required": required} if required else {})


class Hand(Protocol):
    """A tool server of our own. Its definitions are plain data: listing them imports nothing."""

    name: str
    """The server's name."""
    short: str
    """What a person calls it: ``python``."""
    tools: Sequence[Tool]
    default: Sequence[str]
    """Names of those that are offered to every model; the others only where they are asked for."""

    async def start(self) -> None:
        """Find out whether it works, and begin what makes the first call fast."""
        ...

    def problem(self) -> str | None:
        """Why no call can work here, as far as is known; never blocks."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run one of ``tools``; raises HandError. A hand bounds its own time."""
        ...

    def contained(self, name: str) -> bool:
        """Whether calls of this tool can do no harm by construction, and so need no question."""
        ...

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        """What the call would change, for the person who is asked; None: the arguments say it."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Citable(Protocol):
    """A hand whose results an answer can cite."""

    def source(self, cursor: int, line: int) -> Source | None:
        """What this line of a page of the conversation that is under way tells of."""
        ...


def serve(hand: Hand) -> Server[Any]:
    """The hand as an MCP server."""
    import mcp.types as T
    from mcp.server import Server

    known = {tool.name: tool for tool in hand.tools}

    async def list_tools(context: Any, params: Any) -> T.ListToolsResult:
        return T.ListToolsResult(
            tools=[
                T.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.parameters,
                    annotations=T.ToolAnnotations(read_only_hint=tool.read_only),
                )
                for tool in hand.tools
            ]
        )

    async def call_tool(context: Any, params: T.CallToolRequestParams) -> T.CallToolResult:
        try:
            tool = known.get(params.name)
            if tool is None:
                raise HandError(f"Error: no such tool: {params.name}")
            arguments = params.arguments or {}
            check(tool.parameters, arguments)
            text, failed = await hand.call(params.name, arguments), False
        except HandError as error:
            text, failed = str(error), True
        except OSError as error:  # a full disk, a folder that cannot be written
            text, failed = f"Error: {error.filename}: {error.strerror}", True
        return T.CallToolResult(content=[T.TextContent(text=text)], is_error=failed)

    return Server(hand.name, on_list_tools=list_tools, on_call_tool=call_tool)


_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "a string"),
    "integer": (int, "an integer"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list of strings"),
}


def check(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise HandError where the arguments do not fit a hand's (flat) schema."""
    properties = schema["properties"]
    for name in schema.get("required", ()):
        if name not in arguments:
            raise HandError(f"Error: missing argument: {name}")
    for name, value in arguments.items():
        if name not in properties:
            raise HandError(f"Error: unknown argument: {name}; known: {', '.join(properties)}")
        kinds = properties[name]["type"]
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(_fits(kind, value) for kind in kinds):
            said = " or ".join(_TYPES[kind][1] for kind in kinds)
            raise HandError(f"Error: {name} must be {said}")


def _fits(kind: str, value: Any) -> bool:
    if isinstance(value, bool) or kind == "boolean":
        return kind == "boolean" and isinstance(value, bool)
    if isinstance(value, list):
        return kind == "array" and all(isinstance(one, str) for one in value)
    return isinstance(value, _TYPES[kind][0])


KEPT = ("python", "pages", "changes")
"""Folders in which hands keep something for each conversation."""


def folder_of(base: Path, key: str) -> Path:
    """Where a conversation's own is kept."""
    return base / (re.sub(r"[^\w-]", "_", key)[:100] or "none")


def forget(work: Path, key: str) -> None:
    """The conversation is deleted, and with it what hands keep of it."""
    for name in KEPT:
        shutil.rmtree(folder_of(work / name, key), ignore_errors=True)


def used(folder: Path) -> None:
    """A conversation's folder is used now: it is not the oldest one any more."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def prune(folder: Path, most: int, keep: Collection[Path] = ()) -> None:
    """Only what was used last of what hands keep by conversation stays, and ``keep``."""
    try:
        kept = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
    except OSError:
        return
    names = {one.name for one in keep}
    for one in kept[most:]:
        if one.name not in names:
            shutil.rmtree(one, ignore_errors=True)

"""What the turn knows of a tool: its definition, its result, and the state of its server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of one MCP server (the built-in hands are MCP servers too)."""

    server: str
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments object."""
    model_name: str = ""
    """What the model sees and writes: ``files__read`` (namespace functions), ``python``."""
    read_only: bool = False
    constrained: bool = True
    """The model is held to ``parameters``, and what it wrote is checked by them."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave; a failure is a result too, never an exception."""

    text: str
    """What the model reads: at most the configured size, head and tail of what was longer."""
    failure: Literal["none", "execution", "protocol"] = "none"
    """execution: the tool itself says that it failed; protocol: it could not be run."""
    code: int = 0
    """A protocol failure's JSON-RPC code."""
    content: list[dict[str, Any]] = field(default_factory=list)
    """MCP content blocks, as the wire has them."""
    whole: str | None = None
    """Path of a file that holds the whole text where ``text`` was cut."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that a server lets its clients read."""

    uri: str
    """With ``{names}`` to fill in where it is a template."""
    name: str
    description: str = ""
    mime: str = ""
    template: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text that a server has ready."""

    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()
    """Names, and whether each is required."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server as a person sees it."""

    name: str
    status: Literal["starting", "ready", "failed", "disabled"]
    tools: list[str]
    error: str | None = None
    required: bool = False
    protocol: str = ""
    """The version of MCP that is spoken with it; empty while it is not connected."""
    stderr: str = ""
    """The last of what it wrote there, in this run or the one before."""
    transport: str = ""
    """stdio, http, sse, built in"""


OnProgress = Callable[[float, float | None, str | None], None]
"""progress, total, message"""
OnOutput = Callable[[str, str], None]
"""stream (stdout, stderr, log), text"""


@dataclass(frozen=True, slots=True)
class Source:
    """A page that was read, as an answer cites it."""

    url: str
    title: str


Decision = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says to a call that waits; true where it may run."""

    choice: Literal["once", "session", "always", "no"]
    """session: as long as this process; always: in this folder, as long as the tool stays the same."""
    reason: str = ""
    """Of a no: what the model reads."""

    def __bool__(self) -> bool:
        return self.choice != "no"


Approver = Callable[[Tool, str], Awaitable[Answer]]
"""Asked with the tool and its arguments (JSON) where the policy says ask."""

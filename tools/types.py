"""The data types of tools: definitions, results, approvals, and the state of a server."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ConnectionStatus = Literal["starting", "ready", "failed", "disabled"]
Label = Literal["private", "untrusted", "sends"]
"""Data handling of a tool. private: its results may be confidential; untrusted: text of strangers may
be among them; sends: its arguments leave this machine."""
MAX_SKIPPED_LINES = 20
UNKNOWN_LABELS: frozenset[Label] = frozenset(("private", "untrusted"))
"""The labels of a tool that says nothing about itself."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One action of a call."""

    rule: str
    """The narrowest rule that allows it: what a person is offered."""
    broader: tuple[str, ...] = ()
    """Wider rules that allow it too."""

    def is_met(self, granted: Collection[str]) -> bool:
        return any(rule in granted for rule in (self.rule, *self.broader))


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of one MCP server; the built-in servers count as MCP servers too."""

    server: str
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments object."""
    model_name: str = ""
    """The name that the model sees and writes: ``files__read`` (a function), ``python``."""
    read_only: bool = False
    constrained: bool = True
    """Whether grammars hold the model to ``parameters`` and its arguments are checked by them."""
    labels: frozenset[Label] = UNKNOWN_LABELS
    server_instructions: str = ""
    """The text in which the server says how to use all its tools."""

    @property
    def model_parameters(self) -> dict[str, Any]:
        """``parameters`` without the name of their dialect, which says nothing to a model."""
        return {key: value for key, value in self.parameters.items() if key != "$schema"}


@dataclass(frozen=True, slots=True)
class Access:
    """Capabilities of a server's tools, as phrases for a person; empty: none."""

    read: str = ""
    change: str = ""
    run: str = ""
    reach: str = ""
    """Reachable networks and hosts."""
    reached: tuple[str, ...] = ()
    """Hosts that were reached, or refused, while this process ran."""
    running: tuple[str, ...] = ()


def error_text(sentence: str) -> str:
    """Return what a model reads of a call that failed."""
    return f"Error: {sentence}"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of a call; a failure is a result too, never an exception."""

    text: str
    """At most of the configured size, head and tail of a longer one."""
    failure: Literal["none", "execution", "protocol"] = "none"
    """execution: the tool itself reports that it failed; protocol: it could not be run."""
    code: int = 0
    """The JSON-RPC error code of a protocol failure."""
    content: list[dict[str, Any]] = field(default_factory=list)
    """MCP content blocks, as they are on the wire."""
    structured: Any = None
    full_text_path: str | None = None
    """Path of the file that has the full text where ``text`` was shortened."""

    @property
    def failed(self) -> bool:
        return self.failure != "none"

    @property
    def model_text(self) -> str:
        return error_text(self.text) if self.failed else self.text


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, or a template of resources, that a server lets its clients read."""

    uri: str
    """With ``{names}`` to fill in where it is a template."""
    name: str
    description: str = ""
    mime: str = ""
    template: bool = False
    size: int | None = None
    """Bytes, where the server says it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt template that a server offers."""

    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()
    """Pairs of a name and whether that argument is required."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server's state as it is shown to a person."""

    name: str
    status: ConnectionStatus
    tools: list[str]
    error: str | None = None
    required: bool = False
    protocol: str = ""
    """The negotiated version of MCP; empty while the server is not connected."""
    protocol_reason: str = ""
    """Why that version: a clause."""
    stderr: str = ""
    """The end of the server's stderr, of this run or of the one before."""
    transport: str = ""
    """stdio, http, sse, built in"""
    needs_login: bool = False
    """Whether it failed because it wants the person to log in."""
    refused: bool = False
    """Whether it failed because it wants a login, or rejects the one that it got."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Why tools that it lists are left out, by their names: clauses."""

    @property
    def is_builtin(self) -> bool:
        return self.transport == "built in"

    @property
    def skipped_lines(self) -> list[str]:
        """Sentences about tools that are left out, at most MAX_SKIPPED_LINES."""
        lines = [f"left out the tool {name}: {why}" for name, why in self.skipped.items()]
        more = f"left out {len(lines) - MAX_SKIPPED_LINES:,} more tools"
        return lines[:MAX_SKIPPED_LINES] + [more][: len(lines) > MAX_SKIPPED_LINES]


OnProgress = Callable[[float, float | None, str | None], None]
"""Receives progress, total and message."""
OnOutput = Callable[[str, str], None]
"""Receives the stream (stdout, stderr, log) and a piece of its text."""


@dataclass(frozen=True, slots=True)
class Source:
    """A page that the model read, as an answer cites it."""

    url: str
    title: str


Decision = Literal["allow", "ask", "deny"]
Mode = Literal["ask", "plan", "accept-edits"]
MODES: dict[Mode, str] = {
    "ask": "calls that change something ask first",
    "plan": "only tools that read run; the answer is a plan",
    "accept-edits": "the files tools change files without asking",
}
"""Which calls run in a turn, in the order in which a key goes through them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to a call that awaits approval; true if the call may run."""

    choice: Literal["once", "session", "always", "no"]
    """session: for this process; always: in this folder, until the tool's definition changes."""
    reason: str = ""
    """Why the person refused; the model reads it."""

    def __bool__(self) -> bool:
        return self.choice != "no"


Approver = Callable[[Tool, str], Awaitable[Answer]]
"""Asks a person about a tool and its arguments (JSON) where the policy's decision is ``ask``."""
